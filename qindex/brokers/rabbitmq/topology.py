"""What a RabbitMQ node would do with a message: its exchanges, bindings, policies and queue rules.

All of it is in the node's directory, in mnesia's tables or in Khepri. A policy is matched when it
is asked for, as the node does when it starts. What the tables do not say for certain raises
`Unknown`: nothing may be dropped because of a guess. Checked against what a 3.10.8 node does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from qindex.brokers.rabbitmq.definitions import Definitions
from qindex.field_table import FieldValue
from qindex.names import as_bytes, written

Place = tuple[bytes, bytes]  # virtual host, name

CLASSIC: Final = "rabbit_classic_queue"
QUORUM: Final = "rabbit_quorum_queue"
_APPLY_TO_QUEUES: Final = {
    CLASSIC: b"classic_queues",
    QUORUM: b"quorum_queues",
    "rabbit_stream_queue": b"streams",
}
_NOT_FOR_CLASSIC: Final = frozenset(
    (b"max-age", b"stream-max-segment-size-bytes", b"queue-leader-locator",
     b"initial-cluster-size", b"delivery-limit", b"dead-letter-strategy")
)  # fmt: skip
_SMALLER_WINS: Final = frozenset((b"message-ttl", b"max-length", b"max-length-bytes"))
_REPLY_TO: Final = b"amq.rabbitmq.reply-to."


class Unknown(Exception):
    """The definitions do not say for certain what the node would do; the text says why."""


@dataclass(frozen=True, slots=True)
class Binding:
    key: bytes
    to_exchange: bool
    destination: bytes
    arguments: Mapping[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Exchange:
    type: str
    arguments: Mapping[str, FieldValue]
    auto_delete: bool = False
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    name: bytes
    pattern: bytes
    apply_to: bytes
    priority: int
    definition: Mapping[bytes, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a queue's arguments and policies say together. None: nothing."""

    exchange: bytes | None = None  # dead letters go there
    routing_key: bytes | None = None
    ttl_ms: int | None = None
    messages_max: int | None = None
    bytes_max: int | None = None
    keeps_dead: bool = False  # dead letters that reach no queue wait until they do

    @property
    def fate(self) -> str:
        """What becomes of a dead letter that reaches no queue."""
        return "keep it as a dead letter" if self.keeps_dead else "drop it"


@dataclass
class Topology:
    """By (virtual host, name). Only what is durable: the rest is gone when a node starts."""

    exchanges: dict[Place, Exchange] = field(default_factory=dict)
    bindings: dict[Place, list[Binding]] = field(default_factory=dict)
    queues: Definitions = field(default_factory=dict)
    policies: dict[bytes, list[Policy]] = field(default_factory=dict)
    operator_policies: dict[bytes, list[Policy]] = field(default_factory=dict)
    has_policies: bool = False  # the table is there, with or without rows
    doubt: str = ""  # why what is here may not be what the node had

    def __post_init__(self) -> None:
        self.rules_of = lru_cache(maxsize=10_000)(self._rules_of)
        self._targets = lru_cache(maxsize=10_000)(self._targets_of)

    def check_known(self, vhost: bytes) -> None:
        """Unknown if the exchanges or the policies of this virtual host are not there, or old."""
        if self.doubt:
            raise Unknown(self.doubt)
        if (vhost, b"") not in self.exchanges:  # every virtual host has this one
            raise Unknown("the exchanges of its virtual host are not in the directory")
        if not self.has_policies:
            raise Unknown("the policies of the node are not in the directory")

    def _rules_of(self, vhost: bytes, queue: bytes) -> Rules:
        self.check_known(vhost)
        definition = self.queues.get((vhost, queue))
        if definition is None:
            raise Unknown("its queue is not in the node's definitions")
        own = {as_bytes(key): value for key, value in definition.arguments.items()}
        by_policy = self._by_policy(vhost, queue, definition.type)
        exchange = binary(
            own.get(b"x-dead-letter-exchange", by_policy.get(b"dead-letter-exchange"))
        )
        key = own.get(b"x-dead-letter-routing-key", by_policy.get(b"dead-letter-routing-key"))
        ttl_ms, messages_max, bytes_max = (
            _smaller(own.get(b"x-" + name), by_policy.get(name))
            for name in (b"message-ttl", b"max-length", b"max-length-bytes")
        )
        strategy, overflow = (
            binary(own.get(b"x-" + name, by_policy.get(name)))
            for name in (b"dead-letter-strategy", b"overflow")
        )
        keeps_dead = definition.type == QUORUM and strategy == b"at-least-once"
        keeps_dead = keeps_dead and overflow == b"reject-publish" and exchange is not None
        return Rules(exchange, binary(key), ttl_ms, messages_max, bytes_max, keeps_dead)

    def _by_policy(self, vhost: bytes, name: bytes, kind: str) -> dict[bytes, Any]:
        """`kind`: the type of a queue, or "exchange"."""
        merged: dict[bytes, Any] = {}
        for policies in (self.policies, self.operator_policies):
            policy = _match(policies.get(vhost, ()), name, kind)
            for key, value in policy.definition.items() if policy else ():
                if key in merged and key in _SMALLER_WINS:
                    value = min(value, merged[key])
                merged[key] = value
        return merged

    def route(
        self,
        vhost: bytes,
        exchange: bytes,
        keys: tuple[bytes, ...],
        headers: Mapping[str, FieldValue],
    ) -> list[bytes]:
        """The queues that a message published to the exchange goes to, sorted; whether there are
        such queues is not looked at."""
        if not exchange:
            return sorted({key for key in keys if not key.startswith(_REPLY_TO)})
        queues: set[bytes] = set()
        seen, left = {exchange}, [exchange]
        while left:
            name = left.pop()
            found = self.exchanges.get((vhost, name))
            if found is None:
                continue
            if found.type == "headers":
                targets = self._by_headers(vhost, name, headers)
            else:
                targets = self._targets(vhost, name, keys)
            if not targets:
                targets = self._alternate(vhost, name, found)
            for to_exchange, target in targets:
                if not to_exchange:
                    queues.add(target)
                elif target not in seen:
                    seen.add(target)
                    left.append(target)
        return sorted(queues)

    def _targets_of(
        self, vhost: bytes, exchange: bytes, keys: tuple[bytes, ...]
    ) -> list[tuple[bool, bytes]]:
        kind = self.exchanges[vhost, exchange].type
        bindings = self.bindings.get((vhost, exchange), [])
        if kind == "fanout":
            chosen = bindings
        elif kind == "direct":
            chosen = [binding for binding in bindings if binding.key in keys]
        elif kind == "topic":
            chosen = [b for b in bindings if any(topic_matches(b.key, key) for key in keys)]
        else:
            raise Unknown(f"the exchange {_text(exchange)!r} has the type {kind!r}")
        return [(binding.to_exchange, binding.destination) for binding in chosen]

    def _by_headers(
        self, vhost: bytes, exchange: bytes, headers: Mapping[str, FieldValue]
    ) -> list[tuple[bool, bytes]]:
        bindings = self.bindings.get((vhost, exchange), [])
        chosen = (binding for binding in bindings if headers_match(binding.arguments, headers))
        return [(binding.to_exchange, binding.destination) for binding in chosen]

    def _alternate(self, vhost: bytes, name: bytes, found: Exchange) -> list[tuple[bool, bytes]]:
        own = found.arguments.get("alternate-exchange")
        if own is None:
            own = self._by_policy(vhost, name, "exchange").get(b"alternate-exchange")
        alternate = binary(own)
        return [] if alternate is None else [(True, alternate)]


# --- matching -------------------------------------------------------------------------------------


def topic_matches(pattern: bytes, key: bytes) -> bool:
    """Words between dots: `*` is any one word, `#` any number of words."""
    words = key.split(b".") if key else []
    reached = {0}  # how many words the pattern so far may have taken
    for part in pattern.split(b".") if pattern else []:
        if part == b"#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {n + 1 for n in reached if n < len(words) and part in (b"*", words[n])}
    return len(words) in reached


def headers_match(arguments: Mapping[str, FieldValue], headers: Mapping[str, FieldValue]) -> bool:
    """A binding's arguments against a message's headers."""
    kind = arguments.get("x-match")
    with_x = kind in ("all-with-x", "any-with-x")
    wanted = {
        key: value
        for key, value in arguments.items()
        if key != "x-match" and (with_x or not key.startswith("x-"))
    }
    fits = [key in headers and _same(value, headers[key]) for key, value in wanted.items()]
    return any(fits) if kind in ("any", "any-with-x") else all(fits)


def _same(wanted: FieldValue, value: FieldValue) -> bool:
    """As Erlang compares values without their types; a void asks only for the header's presence."""
    if wanted is None:
        return True
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, (str, bytes)) and isinstance(value, (str, bytes)):
        return binary(wanted) == binary(value)
    return wanted == value


def _match(policies: Iterable[Policy], name: bytes, kind: str) -> Policy | None:
    """The one policy of the highest priority that is for this queue or exchange."""
    found: list[Policy] = []
    for policy in policies:
        wanted = (b"all", b"exchanges") if kind == "exchange" else (b"all", b"queues")
        if policy.apply_to not in wanted and policy.apply_to != _APPLY_TO_QUEUES.get(kind):
            continue
        if kind == CLASSIC and _NOT_FOR_CLASSIC.intersection(policy.definition):
            continue
        try:
            matches = re.search(policy.pattern, name)
        except (re.error, RecursionError, OverflowError):
            raise Unknown(
                f"the pattern of the policy {_text(policy.name)!r} is not understood"
            ) from None
        if matches:
            found.append(policy)
    highest = max((policy.priority for policy in found), default=0)
    best = [policy for policy in found if policy.priority == highest]
    if any(policy.definition != best[0].definition for policy in best):
        raise Unknown(f"several policies of priority {highest} match {_text(name)!r}")
    return best[0] if best else None


def binary(value: Any) -> bytes | None:
    if isinstance(value, str):
        return as_bytes(value)
    return value if isinstance(value, bytes) else None


def _smaller(*values: Any) -> int | None:
    """Of the values that are numbers."""
    numbers = [int(v) for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0]
    return min(numbers, default=None)


def _text(name: bytes) -> str:
    return written(name.decode("utf-8", "surrogateescape"))
