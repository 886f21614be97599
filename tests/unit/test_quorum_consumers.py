"""The state machine of quorum queues: consumers that come, go, and cannot be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quorum_player import C2, FAR, ONE, TWO, C, P, Player

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.quorum.entries import Step, take
from qindex.brokers.rabbitmq.quorum.machine import At

version = pytest.mark.parametrize("version", range(9))


@version
def test_a_single_get_takes_one_message(version: int) -> None:
    player = Player(version)
    first, second, third = (player.publish() for _ in range(3))
    player.do("checkout", ONE, (Atom("dequeue"), Atom("settled")), {})
    player.do("checkout", TWO, (Atom("dequeue"), Atom("unsettled")), {})
    assert player.has(TWO) == [second]
    assert player.order() == [second, third]
    assert first not in player.order()
    assert player.machine.gone == {"acked": 1}


@version
def test_a_cancelled_consumer_keeps_what_it_has_until_it_settles(version: int) -> None:
    player = Player(version)
    first, second = player.publish(), player.publish()
    key = player.consume(credit=1)
    player.do("checkout", ONE, Atom("cancel"), {})
    assert player.has(key) == [first]
    player.do("settle", key, [0])
    assert player.machine.consumers == {}
    assert player.order() == [second]


@pytest.mark.parametrize("version", [4, 7, 8])
def test_a_removed_consumer_gives_back_what_it_has(version: int) -> None:
    player = Player(version)
    first = player.publish()
    player.consume(credit=1)
    player.do("checkout", ONE, Atom("remove"), {})
    assert player.after_restart() == [(first, 0, 1)]


@version
def test_consumers_are_served_in_turn_and_the_urgent_first(version: int) -> None:
    player = Player(version)
    player.consume(ONE, 10)
    player.consume(TWO, 2, args=[(b"x-priority", Atom("long"), 5)])
    sent = [player.publish() for _ in range(4)]
    one, two = player.machine.consumers.values()
    assert [each.index for each in two.checked.values()] == sent[:2]
    assert [each.index for each in one.checked.values()] == sent[2:]


@version
def test_of_a_single_active_consumer_only_one_is_served(version: int) -> None:
    player = Player(version, single_active_consumer_on=Atom("true"))
    sent = [player.publish() for _ in range(4)]
    one = player.consume(ONE, 1)
    two = player.consume(TWO, 2)
    assert player.has(one) == sent[:1]
    assert two not in player.machine.consumers
    player.do("down", C, Atom("normal"))
    assert player.has(two) == sent[:2]


@pytest.mark.parametrize(("version", "takes"), [(3, False), (4, True), (7, True), (8, True)])
def test_a_more_urgent_single_active_consumer_takes_over(version: int, takes: bool) -> None:
    player = Player(version, single_active_consumer_on=Atom("true"))
    one = player.consume(ONE, 1)
    two = player.consume(TWO, 5, priority=3) if version >= 4 else player.consume(TWO, 5)
    sent = [player.publish() for _ in range(2)]
    assert player.has(two if takes else one) == (sent if takes else sent[:1])


@pytest.mark.parametrize("version", [2, 3, 7, 8])
def test_consumers_of_a_node_that_cannot_be_reached(version: int) -> None:
    """They lose what they have at once; in version 8 when they did not come back in time."""
    player = Player(version)
    sent = [player.publish() for _ in range(3)]
    key = player.consume((b"tag", FAR), 2)
    player.do("down", FAR, Atom("noconnection"))
    assert player.machine.live == 3
    assert len(player.machine.returns) == (0 if version == 8 else 2)
    if version == 8:
        player.do("timeout", (Atom("consumer_disconnected_timeout"), key))
        assert len(player.machine.returns) == 2
    player.do("nodeup", Atom("other@host"))
    assert len(player.has(key)) == 2
    assert sorted(player.order()) == sent


def test_version_8_keeps_failed_messages_apart_for_a_while() -> None:
    player = Player(8, delayed_retry=(Atom("all"), 100, 1000))
    first, second = player.publish(), player.publish()
    key = player.consume(credit=1)
    player.do("return", key, [0])
    assert player.has(key) == [second]
    assert len(player.machine.delayed) == 1
    player.now += 200
    player.do("timeout", (Atom("expire_msgs"), Atom("shallow")))
    assert player.order() == [first]  # a consumer that goes down gives back, too
    assert [message.index for _, message in player.machine.delayed] == [second]


def test_version_8_takes_back_what_takes_too_long() -> None:
    player = Player(8)
    player.publish()
    player.consume(credit=1, timeout=500)
    player.now += 499
    player.do("timeout", Atom("evaluate_consumer_timeout"))
    assert not player.machine.returns
    player.now += 1
    player.do("timeout", Atom("evaluate_consumer_timeout"))
    assert len(player.machine.returns) == 1


@pytest.mark.parametrize("version", [2, 3, 7, 8])
def test_credit_is_granted_and_drained(version: int) -> None:
    player = Player(version)
    sent = [player.publish() for _ in range(3)]
    spec: Any = (Atom("auto"), 0, Atom("credited"))
    if version >= 4:
        spec = (Atom("auto"), (Atom("credited"), 2**32 - 1))
    key = player.do("checkout", ONE, spec, {}) if version >= 4 else ONE
    if version < 4:
        player.do("checkout", ONE, spec, {})
    assert player.has(key) == []
    start = 2**32 - 1 if version >= 4 else 0
    player.do("credit", key, 2, start, Atom("false"))
    assert player.has(key) == sent[:2]
    player.do("settle", key, [0, 1])
    assert player.has(key) == []
    player.do("credit", key, 5, (start + 2) % 2**32, Atom("true"))
    assert player.has(key) == sent[2:]
    assert player.machine.consumers[key].credit == 0


def test_a_machine_that_goes_through_every_version_loses_nothing() -> None:
    player = Player(0)
    player.do("update_config", {Atom("dead_letter_handler"): Atom("undefined")})
    sent = []
    for number in range(1, 9):
        sent.append(player.publish())
        if number == 2:
            player.consume(credit=2)
        take(player.machine, Step(At(player.index, player.now, None), version=number))
        assert player.machine.version == number
        assert player.machine.live == number
    assert player.order() == sent


def test_an_unknown_command_is_counted_and_changes_nothing() -> None:
    player = Player(7)
    player.publish()
    player.do("frobnicate", 1)
    assert player.machine.unknown == {"frobnicate": 1}
    assert player.machine.live == 1


def test_a_node_that_starts_asks_first_for_whom_it_knew(tmp_path: Path) -> None:
    """Up to what it had noted as applied: in their order. The others while it applies the rest."""
    player = Player(2)
    sent = [player.publish() for _ in range(4)]
    player.consume(TWO, 2)
    player.machine.known = [P, C2]
    player.consume(ONE, 2)
    assert player.machine.watched == [C]
    assert player.order() == sent
    other = Player(2)
    sent = [other.publish() for _ in range(4)]
    other.consume(TWO, 2)
    other.consume(ONE, 2)
    assert other.order() == [*sent[2:], *sent[:2]]
