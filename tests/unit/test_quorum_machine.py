"""The state machine of quorum queues: what becomes of messages, and where versions differ."""

from __future__ import annotations

import pytest
from quorum_player import ONE, P2, P, Player

from qindex.brokers.rabbitmq.erlang import Atom

EVERY = range(9)
version = pytest.mark.parametrize("version", EVERY)


@version
def test_what_was_delivered_comes_before_what_was_not(version: int) -> None:
    player = Player(version)
    sent = [player.publish() for _ in range(6)]
    player.consume(credit=3)
    assert player.order() == sent


@version
def test_settled_messages_are_gone_and_credit_comes_back(version: int) -> None:
    player = Player(version)
    sent = [player.publish() for _ in range(6)]
    key = player.consume(credit=2)
    player.do("settle", key, [0, 1])
    assert player.has(key) == sent[2:4]
    player.do("settle", key, [7])  # it has no such delivery
    assert player.order() == sent[2:]
    assert player.machine.gone == {"acked": 2}


@version
def test_counts_of_returned_and_of_lost_deliveries(version: int) -> None:
    """Up to version 3 every return counts; from 4 on only a consumer that goes down does."""
    player = Player(version, delivery_limit=20)
    first, second = player.publish(), player.publish()
    key = player.consume(credit=1)
    player.do("return", key, [0])
    assert player.has(key) == [first]
    counts = {index: told for index, *told in player.after_restart()}
    assert counts[first] == ([2, 0] if version < 4 else [1, 2])
    assert counts[second] == [0, 0]


@pytest.mark.parametrize(("version", "returns"), [(0, 2), (2, 2), (3, 2), (4, 2), (7, 2), (8, 5)])
def test_the_delivery_limit_counts_what_its_version_counts(version: int, returns: int) -> None:
    """In version 8 a plain return is no failed delivery."""
    player = Player(version, delivery_limit=2)
    player.publish()
    key = player.consume(credit=1)
    for number in range(returns):
        player.do("return", key, [number])
        assert player.machine.live == 1
    player.do("return", key, [returns])
    assert player.machine.live == (1 if version == 8 else 0)
    assert player.machine.gone["over the delivery limit"] == (0 if version == 8 else 1)


def test_version_8_counts_failed_deliveries_against_the_limit() -> None:
    player = Player(8, delivery_limit=1)
    player.publish()
    key = player.consume(credit=1)
    for number in range(2):
        player.do("modify", key, [number], Atom("true"), Atom("false"), {})
    assert player.machine.gone["over the delivery limit"] == 1


@version
def test_a_requeue_moves_the_message_to_its_own_entry_at_the_end(version: int) -> None:
    player = Player(version)
    first, second = player.publish(), player.publish()
    key = player.consume(credit=1)
    moved = player.do("requeue", key, 0, first, 10, b"message")
    assert player.has(key) == [second]
    found = player.after_restart()
    assert [index for index, _, _ in found] == [second, moved]
    assert found[1] == (moved, 1, 0) if version < 4 else (moved, 0, 1)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_return_by_number_new_ones_as_told(version: int) -> None:
    player = Player(version)
    sent = [player.publish() for _ in range(4)]
    key = player.consume(credit=4)
    player.do("checkout", key, Atom("cancel"), {})
    player.do("return", key, [3, 0, 2])
    assert player.order() == [sent[0], sent[2], sent[3], sent[1]]


@pytest.mark.parametrize("version", [4, 5, 6, 7, 8])
def test_new_versions_return_in_the_order_of_the_command(version: int) -> None:
    player = Player(version)
    sent = [player.publish() for _ in range(4)]
    key = player.consume(credit=4)
    player.do("checkout", ONE, Atom("cancel"), {})
    player.do("return", key, [3, 0, 2])
    assert player.order() == [sent[3], sent[0], sent[2], sent[1]]


@pytest.mark.parametrize(
    ("version", "order"),
    [
        (3, [0, 1, 2, 3, 4, 5, 6, 7]),  # priorities do not matter
        (7, [1, 3, 0, 4, 5, 2, 7, 6]),  # two high ones, then a normal one
        (8, [7, 4, 1, 3, 5, 0, 2, 6]),  # by priority, 4 is the usual one
    ],
)
def test_priorities(version: int, order: list[int]) -> None:
    player = Player(version)
    given = [None, 5, None, 5, 9, 5, 3, 31]
    sent = [player.publish(priority=priority) for priority in given]
    assert [sent.index(index) for index in player.order()] == order


@pytest.mark.parametrize("version", [2, 7])
def test_what_has_expired_behind_a_live_message_waits_for_its_turn(version: int) -> None:
    player = Player(max(version, 3))
    kept, dead = player.publish(ttl=1_000_000), player.publish(ttl=5)
    player.now += 100
    player.do("timeout", Atom("expire_msgs"))
    assert player.machine.live == 2
    key = player.consume(credit=1)
    assert player.has(key) == [kept]
    assert player.machine.gone["expired"] == 1
    assert dead not in player.order()


def test_version_8_expires_at_the_head_of_every_priority() -> None:
    player = Player(8)
    kept = player.publish(ttl=1_000_000, priority=9)
    player.publish(ttl=5, priority=1)
    player.now += 100
    player.do("timeout", (Atom("expire_msgs"), Atom("shallow")))
    assert player.order() == [kept]


def test_a_queue_s_time_to_live_and_a_message_s_the_shorter_one_counts() -> None:
    player = Player(3, msg_ttl=50)
    first, second, third = player.publish(), player.publish(ttl=10), player.publish(ttl=0)
    expiries = [player.machine.take_next() for _ in range(3)]
    assert [each and (each.index, each.expiry_ms) for each in expiries] == [
        (first, 1050),
        (second, 1010),
        (third, 1001),
    ]


@version
def test_the_head_is_dropped_when_a_queue_is_too_long(version: int) -> None:
    player = Player(version, max_length=3)
    sent = [player.publish() for _ in range(5)]
    assert player.machine.gone == {"over the length limit": 2}
    assert player.order() == sent[2:]


@version
def test_a_queue_that_refuses_publishers_drops_nothing(version: int) -> None:
    player = Player(version, max_length=3, overflow_strategy=Atom("reject_publish"))
    sent = [player.publish() for _ in range(5)]
    assert player.order() == sent


@version
def test_a_publish_that_is_sent_again_is_not_taken_again(version: int) -> None:
    player = Player(version)
    player.publish()
    player.sent[P] = 0
    player.publish()
    player.publish()
    assert player.machine.live == 2
    player.do("down", P, Atom("normal"))
    player.sent[P] = 0
    player.publish()
    assert player.machine.live == 3


@pytest.mark.parametrize("version", [1, 2])
def test_a_publish_before_its_turn_waits_in_version_1_and_is_lost_in_2(version: int) -> None:
    player = Player(version)
    player.publish()
    player.sent[P] = 2
    third = player.publish()
    player.sent[P] = 1
    second = player.publish()
    assert player.order() == ([1, second, third] if version == 1 else [1, second])


@version
def test_a_purge_takes_what_waits_and_leaves_what_is_delivered(version: int) -> None:
    player = Player(version)
    first, _, _ = (player.publish() for _ in range(3))
    player.consume(credit=1)
    player.do("purge")
    assert player.machine.gone == {"purged": 2}
    assert player.order() == [first]


@version
def test_dead_letters_at_least_once_stay_until_they_are_published(version: int) -> None:
    if version < 2:
        return
    player = Player(
        version,
        dead_letter_handler=Atom("at_least_once"),
        overflow_strategy=Atom("reject_publish"),
    )
    sent = [player.publish() for _ in range(3)]
    key = player.consume(credit=3)
    player.do("dlx", (Atom("checkout"), P2, 1))
    player.do("discard", key, [2, 0])
    assert [message.index for _, message in player.machine.dead] == [sent[2], sent[0]]
    player.do("dlx", (Atom("settle"), [0]))
    player.do("dlx", (Atom("checkout"), P, 5))
    assert [message.index for _, message in player.machine.dead] == [sent[0]]
    assert player.order() == [sent[1]]
    assert player.machine.gone == {"dead-lettered": 1}
