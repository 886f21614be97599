"""A state machine of quorum queues that tests drive command by command."""

from __future__ import annotations

from typing import Any

from ra_files import pid

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.quorum.attendance import restart
from qindex.brokers.rabbitmq.quorum.entries import Step, take
from qindex.brokers.rabbitmq.quorum.machine import At, Machine

P, P2, C, C2 = (pid(number) for number in (10, 11, 20, 21))
FAR = pid(30, "other@host")
ONE, TWO = (b"tag1", C), (b"tag2", C2)


class Player:
    """A machine of some version, and the index of its last entry."""

    def __init__(self, version: int, **settings: Any) -> None:
        self.machine = Machine()
        self.index = 0
        self.now = 1000
        take(self.machine, Step(At(0, self.now, None), version=version))
        if settings:
            told = {Atom(name): value for name, value in settings.items()}
            told.setdefault(Atom("dead_letter_handler"), Atom("undefined"))
            self.do("update_config", told)
        self.sent: dict[Any, int] = {}

    def do(self, *command: Any, reply: Any = None) -> int:
        self.index += 1
        step = Step(At(self.index, self.now, reply), (Atom(command[0]), *command[1:]))
        take(self.machine, step)
        return self.index

    def publish(self, ttl: int | None = None, priority: int | None = None, who: Any = P) -> int:
        notes: dict[Any, Any] = {Atom("x"): b"", Atom("rk"): [b"q"]}
        if ttl is not None:
            notes[Atom("ttl")] = ttl
        if priority is not None:
            notes[Atom("p")] = priority
        content = (Atom("content"), 60, Atom("none"), b"\0\0", Atom("none"), [b"x" * 10])
        message = (Atom("mc"), Atom("mc_amqpl"), content, notes)
        self.sent[who] = self.sent.get(who, 0) + 1
        return self.do("enqueue", who, self.sent[who], message)

    def consume(self, who: Any = ONE, credit: int = 10, **meta: Any) -> Any:
        told = {Atom(name): value for name, value in meta.items()}
        if self.machine.version >= 4:
            spec: Any = (Atom("auto"), (Atom("simple_prefetch"), credit))
        else:
            spec = (Atom("auto"), credit, Atom("simple_prefetch"))
            told[Atom("prefetch")] = credit
        index = self.do("checkout", who, spec, told)
        return index if self.machine.version >= 4 else who

    def has(self, key: Any) -> list[int]:
        """The messages that a consumer has, by number."""
        consumer = self.machine.consumers[key]
        return [consumer.checked[number].index for number in sorted(consumer.checked)]

    def after_restart(self) -> list[tuple[int, int, int]]:
        """(index, delivery count, acquired count) of every message, in order."""
        restart(self.machine)
        found = []
        while True:
            message = self.machine.take_next()
            if message is None:
                return found
            found.append((message.index, message.deliveries or 0, message.acquired or 0))

    def order(self) -> list[int]:
        return [index for index, _, _ in self.after_restart()]
