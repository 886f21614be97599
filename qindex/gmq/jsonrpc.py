"""Version 1: a stream of JSON-RPC objects, as Go's net/rpc/jsonrpc reads and answers them."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from qindex import strict_json
from qindex.gmq.text import go_json

REQUEST_BYTES_MAX: Final = 128 * 1024 * 1024
_SPACE: Final = b" \t\r\n"
_BEGINS: Final = b"{["
_NAMES: Final = {"id", "method", "params"}
_IN_TEXT: Final = re.compile(rb'["\\]')
_OUTSIDE: Final = re.compile(rb'["{}\[\]]')


class Request(NamedTuple):
    """One call. `wrong` says what is wrong with it, if something is: it is answered, not made."""

    id: Any
    method: str = ""
    params: list[Any] = []
    wrong: str = ""
    is_last: bool = False  # what follows cannot be read


class Reader:
    """Cuts a stream into objects. The work is linear: no byte is looked at twice."""

    def __init__(self, bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._at = 0  # where to go on looking
        self._depth = 0
        self._in_text = False
        self._ended = False

    def feed(self, data: bytes) -> list[Request]:
        """The requests that these bytes complete."""
        self._buffer += data
        found: list[Request] = []
        while not self._ended and (request := self._next()) is not None:
            found.append(request)
            self._ended = request.is_last
        return found

    def _next(self) -> Request | None:
        """The request at the buffer's start; None: it is not complete."""
        buffer = self._buffer
        if not self._at:
            del buffer[: len(buffer) - len(buffer.lstrip(_SPACE))]
            if buffer and buffer[0] not in _BEGINS:
                return Request(None, wrong="invalid JSON", is_last=True)
        end = self._end()
        if end is None:
            if len(buffer) <= self._bytes_max:
                return None
            text = f"a request may have {self._bytes_max} bytes"
            return Request(None, wrong=text, is_last=True)
        raw = bytes(buffer[:end])
        del buffer[:end]
        self._at = 0
        return _request(raw)

    def _end(self) -> int | None:
        """Behind the brace that closes what was begun; None: it is not there yet."""
        buffer = self._buffer
        while match := (_IN_TEXT if self._in_text else _OUTSIDE).search(buffer, self._at):
            sign, end = match[0], match.end()
            if sign == b"\\":
                if end == len(buffer):
                    self._at = match.start()  # what it is before has not come yet
                    return None
                end += 1
            elif sign == b'"':
                self._in_text = not self._in_text
            else:
                self._depth += 1 if sign in _BEGINS else -1
            self._at = end
            if not self._depth and not self._in_text:
                return end
        self._at = len(buffer)
        return None


def _request(raw: bytes) -> Request:
    try:
        found = strict_json.loads(raw)
    except ValueError as error:
        return Request(None, wrong=f"invalid JSON: {error}", is_last=True)
    if not isinstance(found, dict):
        return Request(None, wrong="a request is an object", is_last=True)
    if not found.keys() >= _NAMES:  # Go does not tell big letters from small ones here
        found = {name.lower(): value for name, value in found.items()} | found
    number, method, params = found.get("id"), found.get("method", ""), found.get("params")
    if not isinstance(method, str) or method.count(".") < 1:
        shown = method if isinstance(method, str) else json.dumps(method)[:80]
        return Request(number, wrong=f"rpc: service/method request ill-formed: {shown}")
    if not isinstance(params, list) or len(params) != 1:
        return Request(number, wrong="jsonrpc: request body missing params")
    return Request(number, method, params)


def answer(request: Request, result: Any) -> bytes:
    return go_json({"id": request.id, "result": result, "error": None}) + b"\n"


def refusal(request: Request, error: str) -> bytes:
    return go_json({"id": request.id, "result": None, "error": error}) + b"\n"
