"""One connection of AMQP 0-9-1, seen from the server: bytes in, events and bytes out.

Rules of this file: no sockets, no clock, no storage. `receive()` takes what a socket has read and
returns events; what is to be written collects in `out`. Any split of the bytes gives the same
events. What a client does wrong ends its channel or the connection as RabbitMQ ends it: the bytes
that say so are in `out`, and the events say what ended.

The owner answers the events Login and Open with `accept_login()`, `accept_open()` or `fail()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final

from qindex._wire import Publishes, Taken
from qindex.amqp import methods as m
from qindex.amqp.contents import Channel
from qindex.amqp.events import (
    Acked,
    Called,
    ChannelClosed,
    ChannelOpened,
    Ended,
    Login,
    Open,
    Published,
    PublishedMany,
    reply_text,
)
from qindex.amqp.layouts import CODES
from qindex.amqp.wire import (
    ACKS,
    BODY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    NO_HEADER,
    PROTOCOL_HEADER,
    Frame,
    WireError,
    decode_method,
    encode_content,
    encode_method,
    scanner_in_c,
)

FRAME_MAX: Final = 131_072
FRAME_MIN: Final = 4096
CHANNEL_MAX: Final = 2047
HEARTBEAT_SECONDS: Final = 60
BODY_MAX: Final = 128 * 1024 * 1024


class _State(Enum):
    HEADER = "header"
    START = "start"
    LOGIN = "login"  # the owner looks at a Login
    TUNE = "tune"
    OPEN = "open"
    OPENING = "opening"  # the owner looks at an Open
    RUNNING = "running"
    CLOSING = "closing"  # we have sent connection.close
    ENDED = "ended"


class Connection:
    """The state of one connection. Not for use by several threads at once."""

    def __init__(
        self,
        server_properties: dict[str, Any],
        *,
        mechanisms: bytes = b"PLAIN AMQPLAIN",
        frame_max: int = FRAME_MAX,
        channel_max: int = CHANNEL_MAX,
        heartbeat: int = HEARTBEAT_SECONDS,
        body_max: int = BODY_MAX,
        scanner: Callable[[int], Any] = scanner_in_c,
    ) -> None:
        self.out: list[bytes] = []
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self.body_max = body_max
        self.client: dict[str, Any] = {}  # the client's properties
        self._server_properties = server_properties
        self._mechanisms = mechanisms
        self._state = _State.HEADER
        self._begin = b""
        self._channels: dict[int, Channel] = {}
        self._scanner = scanner(frame_max)
        self._scanner.body_max = body_max

    @property
    def is_running(self) -> bool:
        """True between the open and the close of the connection."""
        return self._state is _State.RUNNING

    @property
    def has_ended(self) -> bool:
        """True if nothing that the client still sends matters."""
        return self._state is _State.ENDED

    @property
    def waits_for_owner(self) -> bool:
        """True while a Login or an Open is not answered: the client must not send before that."""
        return self._state in (_State.LOGIN, _State.OPENING)

    def client_can(self, capability: str) -> bool:
        capabilities = self.client.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    # --- bytes in ------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview) -> Iterator[Any]:
        """The events of these bytes, one by one, in order; the iterator has to be used up.

        The owner carries out each event before it takes the next one, and calls keep() if the bytes
        change before it has taken all.
        """
        if self._state is _State.HEADER:
            self._begin += data
            if len(self._begin) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(self._begin):
                return
            data = self._begin[len(PROTOCOL_HEADER) :]
            if not self._begin.startswith(PROTOCOL_HEADER):
                self.out.append(PROTOCOL_HEADER)
                yield self._end("the client speaks another protocol")
                return
            self._begin = b""
            self._start()
        try:
            for each in self._scanner.frames(data):
                if self.has_ended:
                    return
                if type(each) is Publishes:
                    yield from self._publishes(each)
                else:
                    yield from self._frame(each)
        except WireError as error:
            self.keep()
            if self._state in (_State.HEADER, _State.START, _State.LOGIN):
                yield self._end(f"no login, and then: {error}")
            elif self._state is not _State.CLOSING:
                yield from self.fail(error.code, str(error))

    def keep(self) -> None:
        """Copy what is left of the bytes that receive() has got, and of its last event."""
        self._scanner.keep()

    def _frame(self, frame: Frame) -> Iterator[Any]:
        kind, number, _ = frame
        if kind == HEARTBEAT:
            return
        if self._state is not _State.RUNNING:
            yield from self._before_running(frame)
            return
        channel = self._channels.get(number)
        if kind == ACKS:
            if channel is not None and not channel.closing:
                yield Acked(number, frame.payload)
        elif channel is None or kind == METHOD:
            yield from self._method(number, channel, frame)
        elif not channel.closing:
            yield from self._content(channel, frame)

    def _before_running(self, frame: Frame) -> Iterator[Any]:
        if self._state is _State.CLOSING:
            if frame.kind == METHOD and frame.channel == 0:
                method = decode_method(frame.payload)
                if isinstance(method, m.ConnectionClose):
                    self.send(0, m.ConnectionCloseOk())
                if isinstance(method, m.ConnectionClose | m.ConnectionCloseOk):
                    yield self._end("closed by the server")
            return
        if frame.kind != METHOD or frame.channel != 0:
            raise WireError(505, "a frame before the connection was open")
        method = decode_method(frame.payload)
        if self._state is _State.START and isinstance(method, m.ConnectionStartOk):
            self.client = method.client_properties
            self._state = _State.LOGIN
            yield Login(method.mechanism, method.response, method.client_properties)
        elif self._state is _State.TUNE and isinstance(method, m.ConnectionTuneOk):
            self._tune_ok(method)
        elif self._state is _State.OPEN and isinstance(method, m.ConnectionOpen):
            self._state = _State.OPENING
            yield Open(method.virtual_host)
        elif isinstance(method, m.ConnectionClose):
            self.send(0, m.ConnectionCloseOk())
            yield self._end("closed by the client")
        else:
            raise WireError(503, f"unexpected method in connection state {self._state.value}")

    def _method(self, number: int, channel: Channel | None, frame: Frame) -> Iterator[Any]:
        if frame.kind != METHOD:
            if number:
                raise WireError(504, "expected 'channel.open'")
            raise WireError(505, "a frame on channel 0 that is no method")
        method = decode_method(frame.payload)
        if number == 0:
            yield from self._on_connection(method)
        elif channel is None:
            yield from self._open_channel(number, method)
        elif isinstance(method, m.ChannelCloseOk):
            del self._channels[number]
        elif isinstance(method, m.ChannelClose):
            del self._channels[number]
            self._scanner.open(number, False)
            if not channel.closing:
                yield ChannelClosed(number)
            self.send(number, m.ChannelCloseOk())
        elif channel.closing:
            return
        elif channel.method is not None:
            raise WireError(505, NO_HEADER)
        elif isinstance(method, m.ChannelOpen):
            raise WireError(504, "second 'channel.open' seen")
        elif isinstance(method, m.BasicPublish):
            channel.method = method
        else:
            yield Called(number, method)

    def _on_connection(self, method: Any) -> Iterator[Any]:
        if isinstance(method, m.ConnectionClose):
            self.send(0, m.ConnectionCloseOk())
            yield self._end("closed by the client")
        elif isinstance(method, m.ConnectionUpdateSecret):
            yield Called(0, method)
        else:
            raise WireError(503, f"unexpected method {_name(method)} on channel 0")

    def _open_channel(self, number: int, method: Any) -> Iterator[Any]:
        if isinstance(method, m.ChannelCloseOk | m.ChannelClose):
            if isinstance(method, m.ChannelClose):
                self.send(number, m.ChannelCloseOk())
            return
        if not isinstance(method, m.ChannelOpen):
            raise WireError(504, "expected 'channel.open'")
        count = len(self._channels)
        if count >= self.channel_max:  # as in RabbitMQ, the number of a channel may be higher
            raise WireError(
                530,
                f"number of channels opened ({count}) has reached the "
                f"negotiated channel_max ({self.channel_max})",
            )
        self._channels[number] = Channel(number)
        self._scanner.open(number, True)
        yield ChannelOpened(number)
        self.send(number, m.ChannelOpenOk())

    def _content(self, channel: Channel, frame: Frame) -> Iterator[Any]:
        if frame.kind == HEADER:
            method = channel.take_header(frame.payload)
            if channel.size > self.body_max:
                text = (
                    f"message size {channel.size} is larger than configured max size "
                    f"{self.body_max}"
                )
                yield from self.fail_channel(channel.number, 406, text, method)
                return
        elif frame.kind == BODY:
            channel.take_body(frame.payload)
        else:
            raise WireError(501, f"unknown frame type {frame.kind}")
        if (event := channel.published()) is not None:
            yield event

    def _publishes(self, messages: Publishes) -> Iterator[Any]:
        event = PublishedMany(messages)
        channel = messages.channel
        if channel is None:
            are_open = all(self.is_open(group.channel) for group in event.groups)
        else:
            are_open = self.is_open(channel)
        if are_open:
            yield event
        else:
            yield from self.one_by_one(event)

    def one_by_one(self, event: PublishedMany) -> Iterator[Any]:
        """Its publishes as single events, each if its channel is open when its turn comes."""
        for number, properties, body in event.messages.contents():
            group = event.groups[number]
            if self.is_open(group.channel):
                yield Published(group.channel, group.method, properties, body)

    # --- the owner's answers and bytes out -----------------------------------------------------

    def _start(self) -> None:
        self._state = _State.START
        start = m.ConnectionStart(0, 9, self._server_properties, self._mechanisms, b"en_US")
        self.send(0, start)

    def accept_login(self) -> None:
        """The answer to a Login: go on."""
        self._state = _State.TUNE
        self.send(0, m.ConnectionTune(self.channel_max, self.frame_max, self.heartbeat))

    def refuse_login(self, text: str) -> Iterator[Any]:
        """The answer to a Login: no. A client that does not know the close sees the end only."""
        if self.client_can("authentication_failure_close"):
            yield from self.fail(403, text)
        else:
            yield self._end(text)

    def _tune_ok(self, method: m.ConnectionTuneOk) -> None:
        for name, value, limit in (
            ("frame_max", method.frame_max, self.frame_max),
            ("channel_max", method.channel_max, self.channel_max),
        ):
            if value > limit or (value == 0 and name == "channel_max" and limit):
                unlimited = " (no limit)" if value == 0 else ""
                raise WireError(
                    530,
                    f"negotiated {name} = {value}{unlimited} is higher than the maximum allowed "
                    f"value ({limit})",
                )
        if method.frame_max and method.frame_max < FRAME_MIN:
            raise WireError(
                530,
                f"negotiated frame_max = {method.frame_max} is lower than the minimum allowed "
                f"value ({FRAME_MIN})",
            )
        self.frame_max = self._scanner.frame_max = method.frame_max or self.frame_max
        self.channel_max = method.channel_max
        self.heartbeat = method.heartbeat
        self._state = _State.OPEN

    def accept_open(self) -> None:
        """The answer to an Open: the connection runs."""
        self._state = _State.RUNNING
        self.send(0, m.ConnectionOpenOk())

    def send(self, channel: int, method: Any) -> None:
        self.out.append(encode_method(channel, method))

    def send_content(self, channel: int, method: Any, properties: bytes, body: bytes) -> None:
        """A method with content: deliver, get-ok or return."""
        self.out.append(encode_method(channel, method))
        self.out += encode_content(channel, properties, body, self.frame_max)

    def send_deliveries(
        self, channel: int, consumer_tag: bytes, first_tag: int, taken: Taken, share: range
    ) -> int:
        """A basic.deliver with its content for each of these messages; their tags follow each
        other. Returns the bytes of that.
        """
        which = share.start, share.stop, share.step
        frames = taken.frames(channel, consumer_tag, first_tag, self.frame_max, *which)
        self.out.append(frames)
        return len(frames)

    def send_heartbeat(self) -> None:
        self.out.append(HEARTBEAT_FRAME)

    def is_open(self, channel: int) -> bool:
        """True if the channel takes methods: it was opened, and no close is under way."""
        found = self._channels.get(channel)
        return found is not None and not found.closing and self._state is _State.RUNNING

    def fail_channel(self, channel: int, code: int, text: str, method: Any) -> Iterator[Any]:
        """Close a channel because of an error, and give the event of that."""
        found = self._channels.get(channel)
        if found is None or found.closing:
            return
        found.closing = True
        self._scanner.open(channel, False)
        found.body = []
        code_of = CODES[type(method)] if method is not None else 0
        self.send(
            channel, m.ChannelClose(code, reply_text(code, text), code_of >> 16, code_of & 0xFFFF)
        )
        yield ChannelClosed(channel)

    def fail(self, code: int, text: str, method: Any = None) -> Iterator[Any]:
        """Close the connection because of an error, and give the events of that."""
        if self._state in (_State.CLOSING, _State.ENDED):
            return
        self._state = _State.CLOSING
        code_of = CODES[type(method)] if method is not None else 0
        reply = reply_text(code, text)
        self.send(0, m.ConnectionClose(code, reply, code_of >> 16, code_of & 0xFFFF))
        for number, channel in self._channels.items():
            if not channel.closing:
                yield ChannelClosed(number)
        self._channels.clear()

    def _end(self, why: str) -> Ended:
        self._state = _State.ENDED
        return Ended(why)


def _name(method: Any) -> str:
    return type(method).__name__
