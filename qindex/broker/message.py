"""A message of the broker, and the bytes of it that a store keeps.

A store's message has the AMQP body as its body, and this table as its headers: `exchange`,
`routing_keys`, `properties` (raw, as the publisher sent them) and, if it may expire, `expires_us`.
The first three are what `qindex recover` stores of a RabbitMQ message, so that `qindex peek` and
`qindex republish` know them.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from qindex.brokers.amqp import AmqpError, Properties, decode_properties, encode_properties
from qindex.field_table import decode_table, encode_shortstr, encode_table

_U32: Final = Struct(">I")
_EXPIRES: Final = encode_shortstr("expires_us") + b"l"
_PROPERTIES: Final = encode_shortstr("properties") + b"x"
_I64: Final = Struct(">q")
_EXCHANGE: Final = encode_shortstr("exchange") + b"S"
_KEYS: Final = encode_shortstr("routing_keys") + b"A"
_NAMES_AT: Final = 4 + len(_EXCHANGE)
_NAMES_MIN: Final = _NAMES_AT + 4
_PREFIXES_MAX: Final = 4096

# Names as bytes, and back: publishers use few of them, again and again.
_prefixes: dict[tuple[str, ...], bytes] = {}
_names: dict[bytes, tuple[str, list[str]]] = {}
# Whole tables, too: many messages of one publisher have the same properties.
_tables: dict[bytes, tuple[tuple[str, list[str]], int, bytes]] = {}
_TABLE_BYTES_MAX: Final = 256


class Message:
    """What was published, with what the broker has made of it. Not changed once it is in a queue.

    `persistent` and `priority` are the publisher's wishes; `expires_us` is the moment of its end
    in the queue that it is in, in microseconds since 1970 (0: never). `awaited`: somebody waits
    until its publish survives a power cut.
    """

    __slots__ = (
        "_decoded",
        "awaited",
        "body",
        "exchange",
        "expires_us",
        "persistent",
        "priority",
        "properties",
        "routing_keys",
    )

    def __init__(
        self,
        exchange: str,
        routing_keys: list[str],
        properties: bytes,
        body: bytes,
        *,
        persistent: bool = False,
        priority: int = 0,
        expires_us: int = 0,
    ) -> None:
        self.exchange = exchange
        self.routing_keys = routing_keys
        self.properties = properties
        self.body = body
        self.persistent = persistent
        self.priority = priority
        self.expires_us = expires_us
        self.awaited = False
        self._decoded: Properties | None = None

    @property
    def decoded(self) -> Properties:
        """The properties. Decoded at the first use; AmqpError if they are damaged."""
        if self._decoded is None:
            self._decoded = decode_properties(self.properties)
        return self._decoded

    @property
    def headers(self) -> dict[str, Any]:
        """The headers among the properties; not to be changed."""
        return self.decoded.headers or {}

    @property
    def size(self) -> int:
        return len(self.body)

    def copy(self, *, expires_us: int) -> Message:
        """The same message for a queue in which it ends at another moment."""
        other = Message(
            self.exchange,
            self.routing_keys,
            self.properties,
            self.body,
            persistent=self.persistent,
            priority=self.priority,
            expires_us=expires_us,
        )
        other.awaited = self.awaited
        other._decoded = self._decoded
        return other

    def with_headers(self, headers: dict[str, Any], **changes: Any) -> bytes:
        """Its properties as bytes with these headers, and with other properties changed."""
        decoded = self.decoded
        values = {name: getattr(decoded, name) for name in decoded.__slots__}
        return encode_properties(Properties(**{**values, "headers": headers or None, **changes}))

    def to_table(self) -> bytes:
        """What a store keeps as the message's headers."""
        begin = begin_table(self.exchange, self.routing_keys, self.expires_us)
        size = len(begin) + 4 + len(self.properties)
        return b"".join((_U32.pack(size), begin, _U32.pack(len(self.properties)), self.properties))


def begin_table(exchange: str, routing_keys: list[str], expires_us: int) -> bytes:
    """The table behind its size, up to the size of the properties, which are its end."""
    key = (exchange, *routing_keys)
    prefix = _prefixes.get(key)
    if prefix is None:
        if len(_prefixes) >= _PREFIXES_MAX:
            _prefixes.clear()
        table = {"exchange": exchange, "routing_keys": routing_keys}
        prefix = _prefixes[key] = encode_table(_storable(table))[4:]
    if expires_us:
        return prefix + _EXPIRES + _I64.pack(expires_us) + _PROPERTIES
    return prefix + _PROPERTIES


def _storable(table: dict[str, Any]) -> dict[str, Any]:
    """Names that are no UTF-8 are kept as bytes."""

    def one(text: str) -> str | bytes:
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogateescape")
        return text

    return {
        "exchange": one(table["exchange"]),
        "routing_keys": [one(key) for key in table["routing_keys"]],
    }


def from_table(
    table: bytes, body: bytes, *, persistent: bool, priority: int, queue: str
) -> Message:
    """The message that a store has kept. Headers of other programs are the message's headers."""
    known = _tables.get(table)
    if known is None:
        known = _known(table)
    if known is not None:
        names, ends_us, raw = known
        options: dict[str, Any] = {"priority": priority, "expires_us": ends_us}
        return Message(*names, raw, body, persistent=persistent, **options)
    found = decode_table(table) if table else {}
    properties = found.get("properties")
    if not isinstance(properties, bytes):
        properties = encode_properties(
            Properties(headers=found or None, delivery_mode=2 if persistent else 1)
        )
        found = {}
    keys = found.get("routing_keys")
    expires_us = found.get("expires_us")
    return Message(
        _text(found.get("exchange", "")),
        [_text(key) for key in keys] if isinstance(keys, list) and keys else [queue],
        properties,
        body,
        persistent=persistent,
        priority=priority,
        expires_us=expires_us if isinstance(expires_us, int) else 0,
    )


def _known(table: bytes) -> tuple[tuple[str, list[str]], int, bytes] | None:
    """What to_table() wrote, without decoding what was decoded before: the names, the end of the
    message, and its properties. None: somebody else wrote the table.
    """
    if not table.startswith(_EXCHANGE, 4) or len(table) < _NAMES_MIN:
        return None
    keys_at = _NAMES_AT + 4 + _U32.unpack_from(table, _NAMES_AT)[0] + len(_KEYS)
    if not table.startswith(_KEYS, keys_at - len(_KEYS)) or len(table) < keys_at + 4:
        return None
    end = keys_at + 4 + _U32.unpack_from(table, keys_at)[0]
    names = table[4:end]
    at = end + len(_EXPIRES) + 8 if table.startswith(_EXPIRES, end) else end
    begin = at + len(_PROPERTIES) + 4
    if not table.startswith(_PROPERTIES, at) or len(table) < begin:
        return None
    if _U32.unpack_from(table, begin - 4)[0] != len(table) - begin:
        return None
    expires_us = _I64.unpack_from(table, end + len(_EXPIRES))[0] if at > end else 0
    known = _names.get(names)
    if known is None:
        if len(_names) >= _PREFIXES_MAX:
            _names.clear()
        found: Any = decode_table(_U32.pack(len(names)) + names)
        if not found["routing_keys"]:
            return None
        keys = [_text(key) for key in found["routing_keys"]]
        known = _names[names] = (_text(found["exchange"]), keys)
    found_all = known, expires_us, table[begin:]
    if len(table) <= _TABLE_BYTES_MAX and not expires_us:
        if len(_tables) >= _PREFIXES_MAX:
            _tables.clear()
        _tables[table] = found_all
    return found_all


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else ""


__all__ = ["AmqpError", "Message", "from_table"]
