"""Exchanges and bindings: which queues a message goes to.

A binding leads from an exchange to a queue or to another exchange. Each type of exchange keeps its
bindings in the way in which it looks them up; `Exchange.matches()` is that look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from qindex.broker.message import Message

TYPES: Final = ("direct", "fanout", "topic", "headers")
DELAYED: Final = "x-delayed-message"  # of one of TYPES, which its argument x-delayed-type names
QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
_NO_PROPERTIES: Final = b"\0\0"


class Destination(NamedTuple):
    kind: str  # QUEUE or EXCHANGE
    name: str


class Binding(NamedTuple):
    """What is equal to another one is the same binding: `arguments` is a digest of them."""

    source: str
    destination: Destination
    routing_key: str
    arguments: str


class Exchange:
    """An exchange and the bindings that begin at it. Subclasses are the types."""

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        self.bindings: dict[Binding, dict[str, Any]] = {}  # with their arguments, in order

    @property
    def delays(self) -> bool:
        """True if messages with a header x-delay are delayed before they are ready."""
        return self.kind == DELAYED

    @property
    def alternate(self) -> str | None:
        """The exchange that gets what no binding here takes."""
        found = self.arguments.get("alternate-exchange")
        return found if isinstance(found, str) else None

    def add(self, binding: Binding, arguments: dict[str, Any]) -> bool:
        """Add a binding; False if it is there."""
        if binding in self.bindings:
            return False
        self.bindings[binding] = arguments
        self._added(binding, arguments)
        return True

    def remove(self, binding: Binding) -> bool:
        """Remove a binding; False if it is not there. O(1), but for the type's own look-up."""
        arguments = self.bindings.pop(binding, None)
        if arguments is None:
            return False
        self._removed(binding, arguments)
        return True

    def matches(self, key: str, message: Message) -> Iterable[Destination]:
        """Where a message with this routing key goes. A destination may come more than once."""
        raise NotImplementedError

    def _added(self, binding: Binding, arguments: dict[str, Any]) -> None:
        raise NotImplementedError

    def _removed(self, binding: Binding, arguments: dict[str, Any]) -> None:
        raise NotImplementedError


class Direct(Exchange):
    """To the bindings with the message's routing key. O(those)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._by_key: dict[str, dict[Binding, None]] = {}

    def matches(self, key: str, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self._by_key.get(key, ())]

    def _added(self, binding: Binding, arguments: dict[str, Any]) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding] = None

    def _removed(self, binding: Binding, arguments: dict[str, Any]) -> None:
        same = self._by_key[binding.routing_key]
        del same[binding]
        if not same:
            del self._by_key[binding.routing_key]


class Fanout(Exchange):
    """To all bindings."""

    def matches(self, key: str, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.bindings]

    def _added(self, binding: Binding, arguments: dict[str, Any]) -> None:
        pass

    def _removed(self, binding: Binding, arguments: dict[str, Any]) -> None:
        pass


def _words(key: str) -> list[str]:
    """The words between dots; an empty key has none."""
    return key.split(".") if key else []


class _Node:
    """A word of the patterns: what comes behind it, and the bindings that end with it."""

    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.ends: dict[Binding, None] = {}


class Topic(Exchange):
    """To the bindings whose pattern matches: words between dots, * is one word, # any number.

    The patterns are a tree of words. A look-up walks the paths that match, each place at most once
    for each number of words that are left.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._root = _Node()

    def matches(self, key: str, message: Message) -> Iterable[Destination]:
        words = _words(key)
        found: dict[Binding, None] = {}
        seen: set[tuple[int, int]] = set()
        open_ = [(self._root, 0)]
        while open_:
            node, at = open_.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(words):
                found.update(node.ends)
            else:
                nexts = [node.next.get(word) for word in (words[at], "*") if word != "#"]
                open_ += ((below, at + 1) for below in nexts if below is not None)
            if (any_ := node.next.get("#")) is not None:
                open_ += ((any_, skipped) for skipped in range(at, len(words) + 1))
        return [binding.destination for binding in found]

    def _added(self, binding: Binding, arguments: dict[str, Any]) -> None:
        node = self._root
        for word in _words(binding.routing_key):
            node = node.next.setdefault(word, _Node())
        node.ends[binding] = None

    def _removed(self, binding: Binding, arguments: dict[str, Any]) -> None:
        path, node = [], self._root
        for word in _words(binding.routing_key):
            path.append((node, word))
            node = node.next[word]
        del node.ends[binding]
        for above, word in reversed(path):
            if above.next[word].ends or above.next[word].next:
                break
            del above.next[word]


class Headers(Exchange):
    """To the bindings whose arguments the message's headers have: all of them, or any one.

    Arguments that begin with x- are not compared, unless x-match says so. O(number of bindings).
    """

    def matches(self, key: str, message: Message) -> Iterable[Destination]:
        headers = message.headers
        return [
            binding.destination
            for binding, arguments in self.bindings.items()
            if _has(headers, arguments)
        ]

    def _added(self, binding: Binding, arguments: dict[str, Any]) -> None:
        pass

    def _removed(self, binding: Binding, arguments: dict[str, Any]) -> None:
        pass


def _has(headers: dict[str, Any], arguments: dict[str, Any]) -> bool:
    how = arguments.get("x-match", "all")
    with_x = how in ("all-with-x", "any-with-x")
    wanted = [
        (name, value)
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    found = (
        # A binding's value of None asks only that the header is there.
        name in headers and (value is None or _equal(headers[name], value))
        for name, value in wanted
    )
    return any(found) if how in ("any", "any-with-x") else all(found)


def _equal(one: Any, other: Any) -> bool:
    """Equal, and of the same kind: True is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


_CLASSES: Final[dict[str, type[Exchange]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
}


def make_exchange(name: str, kind: str, **options: Any) -> Exchange:
    """An exchange of one of TYPES, or DELAYED, without bindings."""
    routes_as = options["arguments"]["x-delayed-type"] if kind == DELAYED else kind
    return _CLASSES[routes_as](name, kind, **options)


class Router:
    """Finds the queues of a message, through exchanges that are bound to exchanges.

    What a key led to is kept until a binding changes: `changed()` has to be called for that.
    """

    KEPT_MAX: Final = 16_384

    def __init__(self, exchanges: dict[str, Exchange]) -> None:
        self._exchanges = exchanges
        self._kept: dict[tuple[str, str], tuple[str, ...]] = {}

    def changed(self) -> None:
        self._kept.clear()

    def route(self, exchange: Exchange, key: str) -> tuple[str, ...] | None:
        """The queues of all messages with this key; None if their headers have a say."""
        if exchange.delays:
            return None
        kept = self._kept.get((exchange.name, key))
        if kept is not None:
            return kept
        message = Message(exchange.name, [key], _NO_PROPERTIES, b"")
        cacheable = self._walk(exchange, message)[1]
        return self.queues_of(exchange, message) if cacheable else None

    def queues_of(self, exchange: Exchange, message: Message) -> tuple[str, ...]:
        """The names of the queues, each once, in the order in which they were found."""
        keys = message.routing_keys
        place = (exchange.name, keys[0])
        kept = self._kept.get(place) if len(keys) == 1 else None
        if kept is not None:
            return kept
        found, cacheable = self._walk(exchange, message)
        if cacheable and len(keys) == 1:
            if len(self._kept) >= self.KEPT_MAX:
                self._kept.clear()
            self._kept[place] = found
        return found

    def _walk(self, start: Exchange, message: Message) -> tuple[tuple[str, ...], bool]:
        queues: dict[str, None] = {}
        cacheable = True
        seen = {start.name}
        open_ = [start]
        while open_:
            exchange = open_.pop(0)
            cacheable = cacheable and not isinstance(exchange, Headers)
            found = [
                d for key in message.routing_keys for d in self._matches(exchange, key, message)
            ]
            if not found and exchange.alternate is not None:
                found = [Destination(EXCHANGE, exchange.alternate)]
            for kind, name in found:
                if kind == QUEUE:
                    queues[name] = None
                elif name not in seen and name in self._exchanges:
                    seen.add(name)
                    open_.append(self._exchanges[name])
        return tuple(queues), cacheable

    def _matches(self, exchange: Exchange, key: str, message: Message) -> Iterable[Destination]:
        if not exchange.name:  # the default exchange: the key is the queue's name
            return (Destination(QUEUE, key),)
        return exchange.matches(key, message)
