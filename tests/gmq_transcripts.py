"""What gmq's own servers answered, and how it is said again to another server.

``tests/compat/data/gmq/*.json`` hold conversations. Each step of one has what the client sends, and
what gmq's server answered when it was recorded. Where qindex answers something else on purpose,
the step has that too, and a piece of the sentence of ``docs/guide/gmq.rst`` that says why.

The servers were those of wuzhc/gmq, 5d9f9b5 (version 1, on Redis 7) and 4ceecb6 (version 2), built
with Go 1.19. ``clients-1.json`` and ``clients-2.json`` have what the author's clients sent.

Ids that a server makes differ each time. In what is recorded they are ``<<1>>``, ``<<2>>`` ... in
the order in which they came; a step that sends ``<<1>>`` sends the first id of its conversation.

    python tests/gmq_transcripts.py FILE HOST:PORT      fills in what a server of gmq answers
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "compat" / "data" / "gmq"
PATIENCE_SECONDS = 8.0  # for an answer; gmq's pop gives up after two, its heartbeat comes each five
_MADE_ID = re.compile(r"(?<!\d)\d{18,19}(?!\d)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def load(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.json").read_text())


class Player:
    """One conversation with a server; a step names its connection if there are several."""

    def __init__(self, protocol: str, address: tuple[str, int], hurry: float = 0) -> None:
        """`hurry`: seconds less to wait before a step; what only gmq needs is below half a one."""
        self._hurry = hurry
        self._protocol = protocol
        self._address = address
        self._sockets: dict[str, socket.socket] = {}
        self._ids: list[str] = []

    def step(self, step: dict[str, Any]) -> list[str]:
        """Send what the step says; what the server answers: answers, "closed" or "nothing"."""
        time.sleep(max(0, step.get("after_seconds", 0) - self._hurry))
        name = step.get("connection", "")
        if name not in self._sockets:
            self._sockets[name] = socket.create_connection(self._address)
        connection = self._sockets[name]
        connection.settimeout(step.get("patience_seconds", PATIENCE_SECONDS))
        sent = re.sub("<<(\\d+)>>", lambda found: self._ids[int(found[1]) - 1], step["send"])
        connection.sendall(sent.encode("latin-1"))
        answers = []
        for _ in range(step.get("answers", 1)):
            try:
                answer = _READERS[self._protocol](connection)
            except TimeoutError:
                answers.append("nothing")
                break
            except ConnectionError:
                answer = b""
            answers.append(self._plain(answer.decode("latin-1")) if answer else "closed")
            if not answer:
                break
        if self._protocol == "http":
            self._sockets.pop(name).close()
        return answers

    def _plain(self, answer: str) -> str:
        """The answer with marks in place of what differs each time."""

        def mark(found: re.Match[str]) -> str:
            if found[0] not in self._ids:
                self._ids.append(found[0])
            return f"<<{self._ids.index(found[0]) + 1}>>"

        return _TIME.sub("<<time>>", _MADE_ID.sub(mark, answer))

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()


def _line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n") and (piece := connection.recv(1)):
        found += piece
    return found


def _framed(connection: socket.socket) -> bytes:
    head = _exactly(connection, 6)
    return head and head + _exactly(connection, struct.unpack(">HI", head)[1])


def _http(connection: socket.socket) -> bytes:
    """Status, type and body; the other headers are those of the HTTP server that is used."""
    raw = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = raw.partition(b"\r\n\r\n")
    status = head.split(b" ")[1]
    kind = re.search(rb"(?i)\r\ncontent-type: *([^\r;]*)", head)
    return status + b" " + (kind[1] if kind else b"-") + b" " + body


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := connection.recv(size - len(found))):
        found += piece
    return found


_READERS = {"lines": _line, "frames": _framed, "http": _http}


def record(path: Path, address: tuple[str, int]) -> None:
    """Say all conversations of a file to gmq's own server, and keep what it answers."""
    found = json.loads(path.read_text())
    for conversation in found["conversations"]:
        player = Player(found["protocol"], address)
        for step in conversation["steps"]:
            step["gmq"] = player.step(step)
            print(conversation["name"], step["send"], step["gmq"])
        player.close()
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    host, _, port = sys.argv[2].rpartition(":")
    record(Path(sys.argv[1]), (host, int(port)))
