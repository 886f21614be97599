"""What a connection reports to its owner, and the names of the reply codes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from qindex._wire import Publishes
from qindex.amqp.methods import BasicPublish
from qindex.amqp.wire import decode_publish

REPLIES: Final = {
    200: "OK",
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}

_TEXT_MAX: Final = 255  # bytes of a short string


def reply_text(code: int, text: str) -> str:
    """RabbitMQ's form of a reply text, cut to what a short string holds."""
    full = f"{REPLIES[code]} - {text}" if text else REPLIES[code]
    raw = full.encode("utf-8", "surrogateescape")
    return full if len(raw) <= _TEXT_MAX else raw[: _TEXT_MAX - 3].decode("utf-8", "ignore") + "..."


class Login(NamedTuple):
    """The client says who it is."""

    mechanism: str
    response: bytes
    properties: dict[str, Any]


class Open(NamedTuple):
    """The client wants to use this virtual host."""

    vhost: str


class ChannelOpened(NamedTuple):
    channel: int


class ChannelClosed(NamedTuple):
    """The channel has ended, by the client or because of an error."""

    channel: int


class Called(NamedTuple):
    """A method of an open channel, or channel 0, that the owner has to carry out."""

    channel: int
    method: Any


class Acked(NamedTuple):
    """Several basic.acks, in order. For each: its tag (8 bytes), and a byte: 1 with `multiple`."""

    channel: int
    acks: bytes


class Published(NamedTuple):
    """A basic.publish with its content."""

    channel: int
    method: BasicPublish
    properties: bytes
    body: bytes


class Group(NamedTuple):
    """Publishes of one channel with the same method.

    `properties` are those of all of them. None: each has its own, and what they say is here.
    Nothing else in them has to be looked at: no CC, BCC or user_id, and no direct reply.
    """

    channel: int
    method: BasicPublish
    persistent: bool
    priority: int
    expiration_ms: int  # 0: none
    properties: bytes | None
    size: int  # number of messages


class PublishedMany:
    """One or more publishes that came one behind the other, of channels that are open.

    Instead of carrying it out, the owner may go through Connection.one_by_one() of it.
    """

    __slots__ = ("_groups", "messages")

    def __init__(self, messages: Publishes) -> None:
        self.messages = messages
        self._groups: list[Group] | None = None

    @property
    def groups(self) -> list[Group]:
        """Decoded at the first use: an owner that has seen the same before needs none of it."""
        if self._groups is None:
            self._groups = [
                Group(channel, decode_publish(payload), persistent, priority, ms, properties, count)
                for channel, payload, persistent, priority, ms, properties, count in (
                    self.messages.groups
                )
            ]
        return self._groups


class Ended(NamedTuple):
    """Nothing more comes: write what is in `out`, then close the socket."""

    why: str
