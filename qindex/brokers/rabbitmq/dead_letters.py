"""A RabbitMQ node's dead letters, between the queues of a recovery: see deaths.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qindex.brokers.rabbitmq.deaths import Deaths, Letter
from qindex.brokers.rabbitmq.topology import CLASSIC, Rules, Unknown
from qindex.brokers.rabbitmq.topology_files import read_topology
from qindex.names import as_bytes

if TYPE_CHECKING:
    from qindex.brokers.reader import Arrival, DeadMessage, DeadQueue, QueueDeaths
    from qindex.brokers.tree import Findings, Tree


def deaths_of(
    tree: Tree, log: Findings, queues: Sequence[DeadQueue], now_us: int
) -> Callable[[DeadQueue], QueueDeaths]:
    """See reader.DeadNode.deaths(). Reads the node's definitions once."""
    topology = read_topology(tree, log)
    places = {(as_bytes(queue.group), as_bytes(queue.name)): queue for queue in queues}

    def of(queue: DeadQueue) -> QueueDeaths:
        vhost = as_bytes(queue.group)
        deaths = Deaths(topology, vhost, now_us, lambda name: (vhost, name) in places)
        return Dying(queue, as_bytes(queue.name), deaths, places)

    return of


@dataclass(slots=True)
class Dying:
    """One queue. Counts what is still in it, so that it has to be asked about each message once."""

    queue: DeadQueue
    name: bytes
    deaths: Deaths
    places: dict[tuple[bytes, bytes], DeadQueue]
    rules: Rules | None = None  # None: not known
    messages: int = 0
    body_bytes: int = 0

    def __post_init__(self) -> None:
        account = self.queue.account
        self.messages, self.body_bytes = account.live, account.live_body_bytes
        with suppress(Unknown):
            self.rules = self.deaths.rules_of(self.name)

    @property
    def may_die(self) -> bool:
        return self.rules is None or self.rules.exchange is not None

    @property
    def is_classic(self) -> bool:
        definition = self.deaths.topology.queues.get((self.deaths.vhost, self.name))
        return definition is not None and definition.type == CLASSIC

    @property
    def is_too_long(self) -> bool:
        if self.rules is None or not self.is_classic:
            return False  # other types count what is delivered, too: they are never too long
        messages_max, bytes_max = self.rules.messages_max, self.rules.bytes_max
        too_many = messages_max is not None and self.messages > messages_max
        return too_many or (bytes_max is not None and self.body_bytes > bytes_max)

    def is_over(self, message: DeadMessage) -> bool:
        over = self.is_too_long
        if over:
            self.messages -= 1
            self.body_bytes -= len(message.body)
        return over

    def send(self, message: Any, reason: str) -> list[Arrival] | str:
        from qindex.brokers.reader import Arrival

        if not hasattr(message, "routing_keys"):
            return "its exchange and routing keys are not known"
        ends = self.deaths.send(message, self.name, reason)
        if ends[0].kept and ends[0].properties is message.properties:  # it went nowhere
            return ends[0].kept
        vhost = self.deaths.vhost
        return [
            Arrival(
                self.places[vhost, end.queue], _headers(end), end.expiry_us, end.may_die, end.kept
            )
            for end in ends
        ]


def _headers(letter: Letter) -> dict[str, Any]:
    """As those of every other message: text, or bytes where it is no UTF-8."""
    return {
        "exchange": _text(letter.exchange),
        "routing_keys": [_text(key) for key in letter.routing_keys],
        "properties": letter.properties,
    }


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
