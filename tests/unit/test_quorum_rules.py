"""Each row of rules.py decides something: its value in each version, and what another one changes.

A rule is played with the value that its version has, and with others. What comes of the first is
what RabbitMQ's sources say of that version; the others have to differ, or nothing would hold the
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from quorum_player import FAR, ONE, TWO, C, P, Player

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.quorum.rules import RULES, Rules

Outcome = Any
VERSIONS = range(9)
BOTH = (False, True)


class Case:
    """One rule: what is played, what comes of it by version, its values, and where they matter."""

    def __init__(
        self,
        play: Callable[[Player], Outcome],
        expected: dict[range, Outcome],
        values: tuple[Any, ...] = BOTH,
        matters: range = VERSIONS,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.play = play
        self.expected = {v: told for span, told in expected.items() for v in span}
        self.values, self.matters, self.settings = values, matters, settings or {}

    def outcome(self, version: int, **rules: Any) -> Outcome:
        player = Player(version, **self.settings)
        player.machine.rules = replace(player.machine.rules, **rules)
        if rules:
            player.machine.ready = type(player.machine.ready)(player.machine.rules.lines)
        return self.play(player)


def lines(player: Player) -> Outcome:
    """Messages by priority, here the numbers of their entries."""
    for priority in (1, 9, 7, 8, 2, 6):
        player.publish(priority=priority)
    first = player.index - 5
    return [index - first for index in player.order()]


def tries(player: Player) -> Outcome:
    """A plain return, of a queue that allows one."""
    player.publish()
    key = player.consume(credit=1)
    player.do("return", key, [0])
    player.do("return", key, [1])
    return player.machine.live


def counts(player: Player) -> Outcome:
    """Of a message that was given back once."""
    player.publish()
    key = player.consume(credit=1)
    player.do("return", key, [0])
    (message,) = player.machine.consumers[key].checked.values()
    return message.deliveries, message.acquired


def returned(player: Player) -> Outcome:
    """In which order messages wait again that were given back as 2, 0, 1."""
    for _ in range(3):
        player.publish()
    key = player.consume(credit=3)
    player.machine.consumers[key].lifetime = "once"  # it gets nothing more
    first = min(player.has(key))
    player.do("return", key, [2, 0, 1])
    return [message.index - first for message in player.machine.returns]


def many_consumers(player: Player) -> Outcome:
    """How many messages of a process with 33 consumers come back in an order of Erlang's maps."""
    for _ in range(33):
        player.publish()
    for number in range(33):
        player.consume((b"tag%d" % number, C), credit=1)
    player.do("down", C, Atom("normal"))
    return player.machine.mixed.count


def credit_at_return(player: Player) -> Outcome:
    """How many messages a consumer has that gave two back, which were dropped for that."""
    for _ in range(9):
        player.publish()
    key = player.consume(credit=2)
    player.machine.consumers[key].mode = "simple_prefetch"  # no most that it may have
    player.do("modify", key, [0, 1], Atom("true"), Atom("false"), {})
    return len(player.has(key))


def credit_max(player: Player) -> Outcome:
    """The credit of a consumer that had all of it, and settles something."""
    player.publish()
    key = player.consume(credit=5)
    consumer = player.machine.consumers[key]
    consumer.mode, consumer.credit = ("simple_prefetch", 5), 5
    player.do("settle", key, [0])
    return consumer.credit


def suspected_credit(player: Player) -> Outcome:
    """The credit of a consumer with a prefetch of 5 and no most, whose node is away."""
    for _ in range(2):
        player.publish()
    key = player.consume((b"tag", FAR), credit=5)
    consumer = player.machine.consumers[key]
    consumer.mode = "simple_prefetch"
    player.do("down", FAR, Atom("noconnection"))
    return consumer.credit


def waiting(player: Player) -> Outcome:
    """Which of three consumers gets the place of the first, the last being the most urgent."""
    one = player.consume(ONE, 1)
    player.consume(TWO, 1)
    player.consume((b"tag3", FAR), 1, priority=5)
    player.do("checkout", ONE, Atom("cancel"), {})
    assert one not in player.machine.consumers
    return [consumer.tag for consumer in player.machine.consumers.values()]


def taking_over(command: str) -> Callable[[Player], Outcome]:
    """Whether a more urgent consumer has its place once the first one is done with its message."""

    def play(player: Player) -> Outcome:
        player.publish()
        key = player.consume(ONE, 1)
        player.consume(TWO, 1, priority=5)
        if command == "requeue":
            player.do("requeue", key, 0, 1, 10, _message())
        else:
            player.do(command, key, [0])
        return TWO[0] in {each.tag for each in player.machine.consumers.values()}

    return play


def _message() -> Any:
    content = (Atom("content"), 60, Atom("none"), b"\0\0", Atom("none"), [b"x"])
    return Atom("mc"), Atom("mc_amqpl"), content, {Atom("x"): b"", Atom("rk"): [b"q"]}


def by_id(player: Player) -> Outcome:
    """Whether a consumer is found by its tag and pid, and has a number."""
    player.publish()
    player.consume(ONE, 1)
    (key,) = player.machine.consumers
    player.do("settle", ONE, [0])
    return player.machine.gone["acked"], isinstance(key, int)


def discards(player: Player) -> Outcome:
    player.publish()
    player.consume(ONE, 1)
    player.do("discard", ONE, [0])
    return player.machine.gone["rejected"]


def early(player: Player) -> Outcome:
    """What is live if the second message comes before the first."""
    player.sent[P] = 1
    player.publish()
    player.sent[P] = 0
    player.publish()
    return player.machine.live


def size(player: Player) -> Outcome:
    """Of a message with 10 bytes of body and 2 of metadata."""
    player.publish()
    return player.machine.ready_bytes


def suspected(player: Player) -> Outcome:
    """How many messages come back at once from a consumer whose node is away."""
    player.publish()
    player.consume((b"tag", FAR), 1)
    player.do("down", FAR, Atom("noconnection"))
    return len(player.machine.returns)


def configured(player: Player) -> Outcome:
    player.do("update_config", {Atom("max_length"): 7})
    return player.machine.config.length_max


def counted_before(player: Player) -> Outcome:
    """A message that was delivered in another queue before."""
    *_, notes = message = _message()
    notes[Atom("delivery_count")] = 3
    player.do("enqueue", Atom("undefined"), Atom("undefined"), message)
    return player.machine.ready.first().deliveries


SINGLE: dict[str, Any] = {"single_active_consumer_on": Atom("true")}
CASES: dict[str, list[Case]] = {
    "lines": [
        Case(
            lines,
            {
                range(4): [0, 1, 2, 3, 4, 5],
                range(4, 8): [1, 2, 0, 3, 5, 4],
                range(8, 9): [1, 3, 2, 5, 4, 0],
            },
            ("one", "two", "many"),
        )
    ],
    "limit": [
        Case(
            tries,
            {range(8): 0, range(8, 9): 1},
            ("deliveries", "acquired"),
            settings={"delivery_limit": 1},
        )
    ],
    "counts_acquired": [Case(counts, {range(4): (1, None), range(4, 9): (None, 1)})],
    "returns_as_told": [Case(returned, {range(4): [0, 1, 2], range(4, 9): [2, 0, 1]})],
    "sorts_consumers": [Case(many_consumers, {range(6): 33, range(6, 9): 0})],
    "credit_at_return": [
        Case(
            credit_at_return,
            {range(3): 4, range(3, 9): 2},
            ("once", "each"),
            settings={"delivery_limit": 0},
        )
    ],
    "has_credit_max": [Case(credit_max, {range(3): 6, range(3, 9): 5})],
    "keeps_credit_when_suspected": [
        Case(suspected_credit, {range(3): 5, range(3, 8): 5}, matters=range(8))
    ],
    "sorts_waiting": [
        Case(waiting, {range(4): [TWO[0]], range(4, 9): [b"tag3"]}, settings=SINGLE),
    ],
    "activates_after": [
        Case(
            taking_over(name),
            {range(since): False, range(since, 9): True},
            (frozenset({name}),),
            range(4, 9),
            SINGLE,
        )
        for name, since in (("settle", 4), ("return", 7), ("requeue", 7))
    ],
    "finds_by_id": [
        Case(by_id, {range(4): (1, False), range(4, 9): (1, True)}, matters=range(4, 9))
    ],
    "discard_needs_key": [
        Case(discards, {range(4): 1, range(4, 5): 0, range(5, 9): 1}, matters=range(4, 9))
    ],
    "keeps_pending": [Case(early, {range(2): 2, range(2, 9): 1})],
    "counts_headers": [Case(size, {range(8): 10, range(8, 9): 12})],
    "suspects_by_pid": [Case(suspected, {range(8): 1, range(8, 9): 0})],
    "needs_handler": [
        Case(configured, {range(2): 7, range(2, 4): None, range(4, 9): 7}),
    ],
    "counts_from_message": [Case(counted_before, {range(4): None, range(4, 9): 3})],
}
EACH = [(name, at) for name, cases in CASES.items() for at in range(len(cases))]


def test_every_rule_is_played() -> None:
    assert set(CASES) == {field.name for field in fields(Rules)} - {"version"}
    assert [rules.version for rules in RULES] == list(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "at"), EACH)
def test_what_comes_of_a_rule_in_each_version(name: str, at: int, version: int) -> None:
    case = CASES[name][at]
    if version in case.expected:
        assert case.outcome(version) == case.expected[version]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "at"), EACH)
def test_another_value_of_a_rule_makes_a_difference(name: str, at: int, version: int) -> None:
    case = CASES[name][at]
    if version not in case.matters:
        return
    value = getattr(RULES[version], name)
    others = [each for each in case.values if each != value]
    if isinstance(value, frozenset):
        others = [value ^ each for each in case.values]
    told = case.outcome(version)
    for other in others:
        assert case.outcome(version, **{name: other}) != told, (value, other)
