"""Version 2: a line with a command, for some commands with bodies behind it.

::

    pub TOPIC KEY DELAY\\n  size 4  body
    mpub TOPIC COUNT\\n     COUNT times: size 4  JSON
    publish CHANNEL\\n      size 4  body
    answers:               kind 2  size 4  data

Sizes are big-endian. A command whose bodies are not yet there is not yet given out.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from qindex import strict_json
from qindex.gmq.text import go_json

MESSAGE, ERROR, RESULT, CHANNEL, PING = 101, 102, 103, 104, 105
LINE_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 128 * 1024 * 1024
MPUB_MAX: Final = 1000
_COUNT_DIGITS_MAX: Final = 9  # more are no number that is meant, and slow to read
_HEAD: Final = Struct(">HI")
_SIZE: Final = Struct(">I")
# How many parameters a command takes: the least, the most; and what gmq calls the error.
_PARAMETERS: Final = {
    "pub": (3, 3),
    "mpub": (2, 2),
    "pop": (2, 2),
    "ack": (3, 3),
    "dead": (2, 2),
    "set": (2, 5),
    "queue": (2, 2),
    "subscribe": (1, 1),
    "publish": (1, 1),
    "ping": (0, 1),
}


class Command(NamedTuple):
    name: str
    parameters: list[str]
    bodies: list[bytes]


class Wrong(NamedTuple):
    """What cannot be carried out. After a fatal one the connection is closed, as in gmq."""

    code: str
    text: str
    is_fatal: bool = False

    @property
    def data(self) -> bytes:
        return f"{self.code} - {self.text}".encode("utf-8", "replace")


class Reader:
    """Cuts a stream into commands."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._buffer = bytearray()
        self._begun: tuple[Command, int] | None = None  # and how many bodies are missing
        self._ended = False

    def feed(self, data: bytes) -> list[Command | Wrong]:
        """The commands that these bytes complete."""
        if self._ended:
            return []
        self._buffer += data
        found: list[Command | Wrong] = []
        while not self._ended:
            one = self._bodies() if self._begun is not None else self._line()
            if one is None:
                break
            if isinstance(one, Wrong) and one.is_fatal:
                self._ended = True
            found.append(one)
        return found

    def _line(self) -> Command | Wrong | None:
        end = self._buffer.find(b"\n", 0, LINE_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= LINE_BYTES_MAX:
                return Wrong("E_INVALID_PARAMS", f"a line may have {LINE_BYTES_MAX} bytes", True)
            return None
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        try:
            name, *parameters = line.decode().split(" ")
        except UnicodeDecodeError:
            return Wrong("E_INVALID_PARAMS", "names are UTF-8", True)
        if not name:
            return Wrong("E_INVALID_CMD", "cmd is empty", True)
        if name not in _PARAMETERS:
            return Wrong("E_INVALID_CMD", f"unkown cmd: {name}")
        least, most = _PARAMETERS[name]
        if not least <= len(parameters) <= most:
            needed = f"{least}" if least == most else f"{least} to {most}"
            dot = "." if name == "pop" else ""  # as gmq has it
            return Wrong("E_INVALID_PARAMS", f"{needed} parameters required{dot}", True)
        command = Command(name, parameters, [])
        if name in ("pub", "publish"):
            self._begun = command, 1
            return self._bodies()
        if name == "mpub":
            count = parameters[1]
            is_number = count.isascii() and count.isdigit() and len(count) <= _COUNT_DIGITS_MAX
            if not is_number or not 0 < int(count) <= MPUB_MAX:
                text = f"number of push must be between 1 and {MPUB_MAX}"
                return Wrong("E_INVALID_PUSHNUM", text, True)
            self._begun = command, int(count)
            return self._bodies()
        return command

    def _bodies(self) -> Command | Wrong | None:
        """The command that was begun, if all its bodies are there."""
        if self._begun is None:
            return None
        command, missing = self._begun
        at = 0
        while missing and len(self._buffer) >= at + 4:
            size = _SIZE.unpack_from(self._buffer, at)[0]
            if size > self._body_bytes_max:
                text = f"a body may have {self._body_bytes_max} bytes, not {size}"
                return Wrong("E_INVALID_READ", text, True)
            if len(self._buffer) < at + 4 + size:
                break
            command.bodies.append(bytes(self._buffer[at + 4 : at + 4 + size]))
            at += 4 + size
            missing -= 1
        del self._buffer[:at]
        self._begun = command, missing
        if missing:
            return None
        self._begun = None
        return command


def reply(kind: int, data: bytes) -> bytes:
    return _HEAD.pack(kind, len(data)) + data


def message(number: str, body: str, retries: int) -> bytes:
    return reply(MESSAGE, go_json({"id": number, "body": body, "retry_count": retries}))


def pushed(raw: bytes) -> dict[str, Any] | str:
    """One message of mpub, or what is wrong with it. Names are compared as Go does it."""
    try:
        found = strict_json.loads(raw)
    except ValueError as error:
        return f"decode msg failed, {error}"
    if not isinstance(found, dict):
        return "decode msg failed, it is no object"
    fields = {name.lower(): value for name, value in found.items()}
    body, key = fields.get("body", ""), fields.get("route_key", fields.get("routekey", ""))
    topic = fields.get("topic", "")
    if not all(isinstance(each, str) for each in (body, key, topic)):
        return "decode msg failed, body, topic and route_key are texts"
    return {"body": body, "route_key": key, "topic": topic, "delay": fields.get("delay", 0)}
