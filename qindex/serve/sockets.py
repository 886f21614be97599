"""Sockets that listen: made here, or handed over by somebody else."""

from __future__ import annotations

import socket

BACKLOG = 1024  # connections that the kernel keeps until they are accepted


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
