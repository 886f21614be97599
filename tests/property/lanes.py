"""The model of a queue with lanes: priorities, times, expiry, leases, dead letters, a bound.

Beside what qindex.testing.Model knows of each message stand its priority, its time and how often it
was delivered. What a crash may leave of a time is one of those that it had since the last sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from qindex.testing import Model, Promise, Sent
from qindex.testing.promise import Crash, Level

REDRIVEN = 1  # a time that always has been
FIRST = 3  # what due=0 becomes: no time of a message is less
Dead = str  # or the reason why it is a dead letter: a time that never comes
Time = int | Dead  # 0: it stands in the order of ReqIds


@dataclass(frozen=True)
class Rules:
    """What a queue does by itself; as the arguments of Store.queue()."""

    max_messages: int | None = None
    max_bytes: int | None = None
    overflow: str = "reject"
    max_deliveries: int | None = None
    dead_letters: bool = False


@dataclass
class Facts:
    """What stands beside a message."""

    priority: int = 0
    payload: int = 0  # bytes of headers and body
    delayed: bool = False  # published with a delay: its place is its time, for ever
    expiry: int = 0  # 0: never
    times: list[Time] = field(default_factory=lambda: [0])  # since the last sync; the last counts
    doubt: list[Time] = field(default_factory=list)  # of calls that did not return
    count: int = 0  # of deliveries
    count_synced: int = 0
    lease: int | None = None  # until when it is out

    @property
    def time(self) -> Time:
        return self.times[-1]


class LaneModel(Model):
    """`now`, `steady`: the clocks of the store, in microseconds; leases go by the second."""

    def __init__(
        self, promise: Promise, rules: Rules, now: Callable[[], int], steady: Callable[[], int]
    ) -> None:
        super().__init__(promise)
        self.rules = rules
        self.now = now
        self.steady = steady
        self.facts: dict[int, Facts] = {}
        self.late: list[Any] = []  # messages whose delivery has ended
        self.dropping: list[Sent] = []  # what a get() that is under way drops on its way

    def of(self, message: Sent) -> Facts:
        return self.facts[message.serial]

    def begin(
        self,
        sizes: Sequence[int],
        priority: int,
        due: int,
        *,
        batch: bool,
        persistent: bool,
        headers: int = 0,
        expiry: int = 0,
    ) -> list[Sent]:
        """`headers`: bytes of them, of each."""
        messages = self.publishing(sizes, batch=batch, persistent=persistent)
        for message in messages:
            payload = headers + len(message.body)
            self.facts[message.serial] = Facts(priority, payload, due > 0, expiry, [due])
        return messages

    # --- states ----------------------------------------------------------------------------------

    def dead(self) -> list[Sent]:
        return [m for m in self.live() if isinstance(self.of(m).time, Dead)]

    def delayed(self) -> list[Sent]:
        waiting = [m for m in self.live() if not m.out]
        return [m for m in waiting if self._is_later(self.of(m).time)]

    def _is_later(self, time: Time) -> bool:
        return isinstance(time, int) and time > self.now()

    def waiting(self) -> list[Sent]:
        """What nobody has: ready, delayed, or dead letters."""
        return [m for m in self.live() if not m.out]

    def in_state(self, state: str) -> list[Sent]:
        """Those that purge(state=...) drops."""
        if state == "all":
            return self.waiting()
        dead, delayed = self.dead(), self.delayed()
        ready = [m for m in self.waiting() if m not in dead and m not in delayed]
        return {"ready": ready, "delayed": delayed, "dead": dead}[state]

    def ready(self) -> list[Sent]:
        """In the order of get(): by priority, and of each first what is due, by its time."""
        now = self.now()

        def order(message: Sent) -> tuple[int, bool, int, int]:
            facts = self.of(message)
            assert isinstance(facts.time, int)
            assert isinstance(message.id, int)
            return -facts.priority, facts.time == 0, facts.time, message.id

        times = ((m, self.of(m).time) for m in self.waiting())
        return sorted((m for m, t in times if isinstance(t, int) and t <= now), key=order)

    def newest(self) -> list[Sent]:
        """In the order of get_newest(): of each priority the last in its place, then the due."""
        ready = self.ready()
        ranks = {m.serial: rank for rank, m in enumerate(ready)}

        def order(message: Sent) -> tuple[int, bool, int]:
            facts = self.of(message)
            in_place = facts.time == 0
            assert isinstance(message.id, int)
            return (
                -facts.priority,
                not in_place,
                -message.id if in_place else ranks[message.serial],
            )

        return sorted(ready, key=order)

    # --- what happens to a message ---------------------------------------------------------------

    def timing(self, messages: Iterable[Sent], time: Time) -> None:
        """A change of their time begins: after a crash it may have happened."""
        for message in messages:
            self.of(message).doubt.append(time)

    def timed(self, messages: Iterable[Sent], time: Time) -> None:
        """It returned."""
        for message in messages:
            self.of(message).times.append(time)

    def delivered(self, message: Sent, lease: int | None = None) -> None:
        super().delivered(message)
        facts = self.of(message)
        facts.count += 1
        facts.lease = lease
        time = self.after_delivery(facts)
        if time != facts.time:
            facts.times.append(time)

    def after_delivery(self, facts: Facts) -> Time:
        if facts.delayed:
            return REDRIVEN + 1 if facts.time == REDRIVEN else facts.time
        return 0

    def end_leases(self, handles: dict[int, Any]) -> None:
        """Time went on. `handles`: what get() gave, by serial."""
        for message in self.out():
            lease = self.of(message).lease
            if lease is not None and lease <= self.steady():
                message.out = False
                if message.serial in handles:
                    self.late.append(handles.pop(message.serial))

    def doomed(self, message: Sent) -> Dead | None:
        """Why nobody gets it any more: delivered too often, or expired."""
        facts = self.of(message)
        if facts.time == REDRIVEN:
            return None
        if self.is_spent(facts.count):
            return "deliveries"
        return "expired" if 0 < facts.expiry <= self.now() else None

    def is_spent(self, count: int) -> bool:
        most = self.rules.max_deliveries
        return bool(most and count and count % most == 0)

    def spent(self) -> list[Sent]:
        """Nobody has it, and it was delivered as often as it may be."""
        waiting = [m for m in self.waiting() if not isinstance(self.of(m).time, Dead)]
        return [m for m in waiting if self.doomed(m) == "deliveries"]

    def leave_spent(self, *, sure: bool) -> None:
        """Those leave by themselves; `sure`: the disk does what it should."""
        spent = self.spent()
        if not sure:
            for message in spent:
                self.timing([message], self.of(message).time)
        if self.rules.dead_letters:
            self.timed(spent, "deliveries")
            return
        self.removing(spent)
        if sure:
            self.removed(spent)

    def left_by_a_look(self, leaving: Iterable[tuple[Sent, list[Time]]]) -> None:
        """A look behind the opening made them leave: opening has synced what was there before it,
        not this. `leaving`: with the times that they may have had."""
        for message, before in leaving:
            if message.gone is not None:
                message.gone = min(message.gone, Level.RETURNED)
            elif self.of(message).time == "deliveries":
                self.of(message).times = [*before, "deliveries"]

    def expired(self) -> list[Sent]:
        """What expire() drops: also what waits for its time."""
        waiting = [m for m in self.waiting() if self.of(m).time != REDRIVEN]
        waiting = [m for m in waiting if not isinstance(self.of(m).time, Dead)]
        return [m for m in waiting if 0 < self.of(m).expiry <= self.now()]

    def drop_doomed(self, order: Callable[[], list[Sent]]) -> Sent | None:
        """What get() meets on its way to the first that somebody may have, which is returned."""
        while (first := next(iter(order()), None)) is not None and (why := self.doomed(first)):
            if self.rules.dead_letters:
                self.timed([first], why)
            else:
                self.removing([first])
                self.dropping.append(first)
        return first

    def dropped(self) -> None:
        """The get() returned."""
        self.removed(self.dropping)
        self.dropping = []

    def foresee(self, count: int) -> list[Sent]:
        """What get_many() takes. Behind the first it drops nothing: it steps over the doomed."""
        if self.drop_doomed(self.ready) is None:
            return []
        return [message for message in self.ready() if not self.doomed(message)][:count]

    # --- bounds ----------------------------------------------------------------------------------

    def counted(self) -> tuple[int, int]:
        """What counts for a bound: messages, bytes."""
        here = [self.of(m) for m in self.live()]
        payloads = [facts.payload for facts in here if not isinstance(facts.time, Dead)]
        return len(payloads), sum(payloads)

    def excess(self, payloads: Sequence[int]) -> list[Sent] | None:
        """What leaves for more with so many bytes each; None: there is no place."""
        if not payloads:
            return []  # also where there is too much already, since a bound was lowered
        count, size = self.counted()
        count, size = count + len(payloads), size + sum(payloads)
        ready = self.ready() if self.rules.overflow != "reject" else []
        ready = [m for m in ready if self.of(m).time != REDRIVEN]
        oldest = iter(sorted(ready, key=self._leaves_in_order))
        leaving: list[Sent] = []
        while self._is_over(count, size):
            head = next(oldest, None)
            if head is None:
                return None
            leaving.append(head)
            count, size = count - 1, size - self.of(head).payload
        return leaving

    def _leaves_in_order(self, message: Sent) -> tuple[int, bool, int, int]:
        """The lowest priority first; of each those in their place, then the due, by their times."""
        facts = self.of(message)
        assert isinstance(facts.time, int)
        assert isinstance(message.id, int)
        return facts.priority, facts.time != 0, facts.time, message.id

    def _is_over(self, count: int, size: int) -> bool:
        most, most_bytes = self.rules.max_messages, self.rules.max_bytes
        over = most is not None and count > most
        return over or (most_bytes is not None and size > most_bytes)

    def leaving(self, messages: list[Sent]) -> None:
        """They make place, by a call that is under way."""
        if self.rules.overflow == "dead-letter":
            self.timing(messages, "full")
        else:
            self.removing(messages)

    def left(self, messages: list[Sent]) -> None:
        """It returned."""
        if self.rules.overflow == "dead-letter":
            self.timed(messages, "full")
        else:
            self.removed(messages)

    # --- ends ------------------------------------------------------------------------------------

    def _raise_to(self, level: Any) -> None:
        super()._raise_to(level)
        for facts in self.facts.values():
            facts.times = facts.times[-1:]
            facts.count_synced = facts.count

    def failed(self) -> None:
        """A call failed: whatever it does to a message may have happened."""
        for message in self.live():
            message.maybe_delivered = True
            facts = self.of(message)
            facts.doubt += [*facts.times, self.after_delivery(facts)]
            if self.rules.dead_letters:
                facts.doubt += ["deliveries", "full", "expired"]
        self.dropping = []

    def explain(self, message: Sent, time: Time, count: int, crash: Crash | None) -> None:
        """After opening: the message may have this time and count, and takes them over."""
        facts = self.of(message)
        allowed = facts.times if crash == "power" else facts.times[-1:]
        assert time in [*allowed, *facts.doubt], (str(message), time, facts)
        least = facts.count_synced if crash == "power" else facts.count
        assert least <= count <= facts.count + message.maybe_delivered, (str(message), count, facts)
        facts.times, facts.doubt = [time], []
        facts.count = facts.count_synced = count
        facts.lease = None
