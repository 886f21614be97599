"""Sockets that listen: made here, or handed over by somebody else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import MutableMapping
from typing import Final, NoReturn

BACKLOG: Final = 1024  # connections that the kernel keeps until they are accepted


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of `host`; port 0: one that the system chooses.

    Clients can connect from now on: they wait until somebody accepts them. OSError.
    """
    found: list[socket.socket] = []
    flags = socket.AI_PASSIVE
    try:
        for family, kind, proto, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=flags
        ):
            if any(each.family == family and each.getsockname()[0] == address[0] for each in found):
                continue
            if found:  # the port that the system has chosen for the first one
                address = (address[0], found[0].getsockname()[1], *address[2:])
            each = socket.socket(family, kind, proto)
            found.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
            each.listen(BACKLOG)
    except BaseException:
        for each in found:
            each.close()
        raise
    return found


_FIRST: Final = 3  # descriptor of the first socket that is handed over, as systemd has it
_OUT_OF_THE_WAY: Final = 200  # descriptors from here on are nobody's


def handed_over(environment: MutableMapping[str, str]) -> dict[str, list[socket.socket]]:
    """Sockets that systemd, or the process that this one was before, has left open for it.

    They listen. The key is the name that they were given (FileDescriptorName= in systemd): "gmq",
    "gmq-http", "http", and "amqp" for all others. The variables are removed: no child takes the
    sockets.
    """
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdecimal():
        return {}
    found: dict[str, list[socket.socket]] = {}
    for number in range(int(count)):
        os.set_inheritable(_FIRST + number, False)
        each = socket.socket(fileno=_FIRST + number)
        each.setblocking(False)
        name = names[number] if number < len(names) else ""
        found.setdefault(name if name in ("gmq", "gmq-http", "http") else "amqp", []).append(each)
    return found


def kept(sockets: dict[str, list[socket.socket]]) -> list[tuple[str, int]]:
    """Names and descriptors of the same sockets, which stay open when these are closed.

    As long as one is open, the kernel takes connections, and nobody is refused.
    """
    return [
        (name, fcntl.fcntl(each.fileno(), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY))
        for name, own in sockets.items()
        for each in own
    ]


def start_anew(descriptors: list[tuple[str, int]]) -> NoReturn:
    """Become the program that is installed now, with the same arguments and these sockets."""
    for number, (_, descriptor) in enumerate(descriptors):
        os.dup2(descriptor, _FIRST + number, inheritable=True)
    os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), str(len(descriptors))
    os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in descriptors)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - what was started by hand before
