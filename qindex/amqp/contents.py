"""The content of a channel that comes as frames: a publish, its header, then its body in pieces.

The scanner in C puts most contents together itself. What it does not take, comes here.
"""

from __future__ import annotations

from qindex.amqp.events import Published
from qindex.amqp.methods import BasicPublish
from qindex.amqp.wire import WireError, decode_header


class Channel:
    """A channel of a connection, with the content that is coming."""

    __slots__ = ("body", "closing", "method", "missing", "number", "properties", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.closing = False  # we have sent channel.close
        self.method: BasicPublish | None = None  # whose content is coming
        self.properties: bytes | None = None
        self.missing = self.size = 0  # bytes of the body
        self.body: list[bytes] = []

    def take_header(self, payload: bytes) -> BasicPublish:
        """The header has come: `size` is that of the body. Returns the method that it is for."""
        if self.method is None or self.properties is not None:
            raise WireError(505, "expected method frame, got content header frame instead")
        self.size, self.properties = decode_header(payload)
        self.missing = self.size
        return self.method

    def take_body(self, payload: bytes) -> None:
        """A piece of the body has come."""
        if self.properties is None:
            raise WireError(505, "expected method frame, got content body frame instead")
        self.missing -= len(payload)
        if self.missing < 0:
            raise WireError(501, "content body is larger than its header says")
        self.body.append(payload)

    def published(self) -> Published | None:
        """The publish, if all of it has come."""
        method, properties, pieces = self.method, self.properties, self.body
        if method is None or properties is None or self.missing:
            return None
        self.method = self.properties = None
        self.body = []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return Published(self.number, method, properties, body)
