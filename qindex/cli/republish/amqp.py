"""The door to an AMQP 0-9-1 broker, by pika: one confirmed, mandatory publish at a time.

Properties go out as the bytes that they came in as, so that not even the width of an int in a
header changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from qindex.brokers.amqp import AmqpError, Properties, decode_properties, encode_properties
from qindex.look.at_time import now_us
from qindex.look.messages import Found
from qindex.look.screen import CommandError
from qindex.look.text import count, printable
from qindex.names import as_bytes

AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
_NOT_FOUND: Final = 404
_NAMES_MAX: Final = 5


class Stopped(Exception):
    """The broker, or the way to it, does not go on: what happened and what to do."""


class Unroutable(Exception):
    """The broker has no queue for this one message."""


class Unsendable(Exception):
    """This one message is damaged in a way that the broker would close the connection for."""


@dataclass(frozen=True, slots=True)
class Login:
    """`place` names the broker without the password."""

    url: str
    user: str
    place: str

    @classmethod
    def from_url(cls, url: str) -> Self:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname or port == -1:
            raise CommandError("--amqp is no URL like amqp://user:password@host:5672/vhost")
        default = AMQP_PORT if parts.scheme == "amqp" else AMQPS_PORT
        vhost = unquote(parts.path[1:]) or "/"
        place = f"{parts.scheme}://{parts.hostname}:{port or default} vhost {vhost}"
        return cls(url, unquote(parts.username or "guest"), place)


@contextmanager
def connect(login: Login, at_time: float | None = None) -> Iterator[Broker]:
    """An open connection with confirms on. `at_time`: see Broker."""
    try:
        import pika
    except ImportError:
        raise CommandError("republish needs pika: pip install 'qindex[amqp]'") from None
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # all of it is told in the errors
    try:
        connection = pika.BlockingConnection(pika.URLParameters(login.url))
    except (pika.exceptions.AMQPError, OSError) as error:
        raise CommandError(f"no connection to {login.place}: {_text_of(error)}") from None
    except ValueError as error:
        raise CommandError(f"--amqp: {error}") from None
    try:
        yield Broker(connection, login, at_time)
    finally:
        with suppress(pika.exceptions.AMQPError, OSError):
            connection.close()


def _text_of(error: BaseException) -> str:
    """pika's errors often have their reason inside, and no text."""
    text = str(error) or str(error.__cause__ or "")
    return f"{type(error).__name__}: {text}".rstrip(": ")


class Pace:
    """Waits so that there are at most `rate` calls a second; None: never waits."""

    def __init__(
        self,
        rate: int | None,
        sleep: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step = 1 / rate if rate else 0.0
        self._sleep = sleep
        self._clock = clock
        self._due = clock()

    def wait(self) -> None:
        """Time that was lost is not caught up with: a burst is what the limit is against."""
        if not self._step:
            return
        left = self._due - self._clock()
        if left > 0:
            self._sleep(left)
        self._due = max(self._due, self._clock()) + self._step


class _Name(str):
    """A name that pika sends as the bytes that it stands for: they need not be UTF-8."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return as_bytes(str(self))


class Broker:
    """Publishes over one connection, which has pika's interface.

    A message has the time left that it had at `at_time` (seconds since 1970; None: now).
    """

    def __init__(self, connection: Any, login: Login, at_time: float | None = None) -> None:
        import pika

        self._pika = pika
        self._at_time = at_time
        self._connection = connection
        self._login = login
        self._channel = connection.channel()
        self._channel.confirm_delivery()

        class Raw(pika.BasicProperties):  # type: ignore[misc]
            """A property list that is written as it is."""

            def __init__(self, raw: bytes) -> None:
                super().__init__()
                self.raw = raw

            def encode(self) -> list[bytes]:
                return [self.raw]

        self._raw = Raw

    def sleep(self, seconds: float) -> None:
        """Answers the broker's heartbeats meanwhile."""
        self._connection.sleep(seconds)

    def need_queues(self, names: Iterable[str], *, declare: bool) -> None:
        """CommandError if queues are missing, before anything is published; or makes them."""
        missing = [name for name in dict.fromkeys(names) if not self._has_queue(name)]
        if declare:
            for name in missing:
                with self._errors():
                    self._channel.queue_declare(_Name(name), durable=True)
        elif missing:
            told = ", ".join(map(printable, missing[:_NAMES_MAX]))
            more = f" and {len(missing) - _NAMES_MAX} more" if len(missing) > _NAMES_MAX else ""
            raise CommandError(
                f"{self._login.place} has {count(len(missing), 'queue')} too few: {told}{more}."
                " Declare them with the arguments that they had, or give --declare; nothing was"
                " published"
            )

    def _has_queue(self, name: str) -> bool:
        with self._errors():
            channel = self._connection.channel()
            try:
                channel.queue_declare(_Name(name), passive=True)
            except self._pika.exceptions.ChannelClosedByBroker as error:
                if error.reply_code == _NOT_FOUND:
                    return False
                raise
            channel.close()
        return True

    def publish(self, message: Found, queue: str | None) -> None:
        """Into the queue; None: to where it was published. Returns when it is confirmed.

        Unroutable if the broker gave it back, Unsendable if it is damaged, Stopped if the broker
        refused it or is gone.
        """
        headers = message.headers
        exchange, key = "", queue
        if key is None:
            exchange = _text(headers.get("exchange", ""))
            keys = headers.get("routing_keys") or [message.queue]
            key = _text(keys[0])
        properties = self._raw(self._properties(message, headers))
        with self._errors():
            try:
                self._channel.basic_publish(
                    _Name(exchange), _Name(key), message.body, properties, mandatory=True
                )
            except self._pika.exceptions.UnroutableError:
                where = f"exchange {printable(exchange)!r}, " if exchange else ""
                raise Unroutable(f"{where}routing key {printable(key)!r}") from None
            except self._pika.exceptions.NackError:
                raise Stopped(
                    f"the broker refused message {message.req_id} of"
                    f" {printable(message.queue)}: is the queue full, or has it a max-length?"
                ) from None

    def _properties(self, message: Found, headers: dict[str, Any]) -> bytes:
        raw = headers.get("properties")
        if not isinstance(raw, bytes):
            expiration = None
            if message.expiry_us:
                left_ms = int((message.expiry_us - now_us(self._at_time)) / 1000)
                expiration = str(max(0, left_ms))
            return encode_properties(
                Properties(
                    headers=headers or None,
                    delivery_mode=2 if message.persistent else 1,
                    priority=message.priority,
                    expiration=expiration,
                )
            )
        try:
            properties = decode_properties(raw)
        except AmqpError as error:
            raise Unsendable(f"damaged properties: {error}") from None
        if properties.user_id not in (None, self._login.user):
            return encode_properties(replace(properties, user_id=None))
        return raw

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What pika raises, as Stopped."""
        exceptions = self._pika.exceptions
        try:
            yield
        except (exceptions.UnroutableError, exceptions.NackError):
            raise
        except exceptions.ChannelClosedByBroker as error:
            raise Stopped(f"the broker closed the channel: {error.reply_text}") from None
        except (exceptions.AMQPError, OSError) as error:
            raise Stopped(f"the connection is lost: {_text_of(error)}") from None


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
