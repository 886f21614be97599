"""The socket in a served directory through which `qindex ctl` asks: DIR/control.

Only who may write to DIR/control (mode 0600) can connect. One request and one reply for each
connection, each one line of JSON::

    {"command": "add_vhost", "arguments": ["work"], "vhost": "/"}
    {"text": "...", "columns": [], "rows": []}  or  {"error": "..."}

The log says what was carried out on what; passwords, which are in requests, are never logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qindex.broker.errors import Refused
from qindex.errors import QindexError
from qindex.serve.administration import Administration, Reply
from qindex.serve.commands import COMMANDS, carry_out

if TYPE_CHECKING:
    from qindex.serve.server import Server

log: Final = logging.getLogger("qindex.control")
NAME: Final = "control"
_LINE_MAX: Final = 32 * 1024 * 1024  # definitions may be long
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group
_SECONDS: Final = 10.0  # that a client has for its request


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's address: through a descriptor, since an address has at most 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


async def open_control(server: Server, directory: Path) -> asyncio.Server:
    """Listen in the directory, which this process has locked: a socket that is there is stale."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        (directory / NAME).unlink(missing_ok=True)
        with _address(directory) as address:
            found.bind(address)
        (directory / NAME).chmod(0o600)  # before anybody can connect
        found.listen()
        found.setblocking(False)
    except BaseException:
        found.close()
        raise

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            line = await asyncio.wait_for(reader.readuntil(), _SECONDS)
            who = f"uid {_uid(writer)}: "
            writer.write(json.dumps(_answer(server, line, who)).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), _SECONDS)
        writer.close()

    return await asyncio.start_unix_server(serve, sock=found, limit=_LINE_MAX)


def _uid(writer: asyncio.StreamWriter) -> int:
    """Who asks: root and the server's own user can."""
    raw = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    return int(_CREDENTIALS.unpack(raw)[1])


def _answer(server: Server, line: bytes, who: str) -> dict[str, Any]:
    try:
        asked = json.loads(line)
        admin = Administration(server.node, server, str(asked.get("vhost", "/")))
        command, arguments = str(asked["command"]), [str(each) for each in asked["arguments"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"error": "a request is one line of JSON with command, arguments and vhost"}
    return answer(admin, command, arguments, who)


def answer(
    admin: Administration, command: str, arguments: list[str], who: str = ""
) -> dict[str, Any]:
    """The reply as plain values; {"error": ...} if it was refused."""
    try:
        reply: Reply = carry_out(admin, command, arguments)
    except (Refused, QindexError) as error:
        log.info("%s%s was refused", who, named(command, arguments, admin.vhost))
        return {"error": str(error)}
    log.info("%s%s was carried out", who, named(command, arguments, admin.vhost))
    return {key: _plain(value) for key, value in asdict(reply).items()}


def named(command: str, arguments: list[str], vhost: str) -> str:
    """A command and what it acts on, without a password."""
    found = COMMANDS.get(command)
    if found is None:
        return f"an unknown command {command[:80]!r}"
    words = [command, *(repr(each) for each in arguments[: found.logged])]
    if "-p VHOST" in found.usage:
        words.append(f"in vhost {vhost!r}")
    return " ".join(words)


def _plain(value: Any) -> Any:
    """JSON has no bytes, dates and decimals."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def ask(directory: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """The reply of the server of this directory; None: nobody serves it. OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        try:
            with _address(directory) as address:
                found.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        found.sendall(json.dumps(request).encode() + b"\n")
        data = b""
        while piece := found.recv(65536):
            data += piece
    if not data:
        raise ConnectionResetError("the server has ended before it answered")
    reply: dict[str, Any] = json.loads(data)
    return reply
