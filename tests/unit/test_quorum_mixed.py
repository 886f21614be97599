"""Messages that came back in an order that only Erlang knows: what is assumed, and what is sure."""

from __future__ import annotations

import random
from typing import Any

import pytest
from quorum_player import ONE, Player
from ra_files import pid

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.quorum import deliveries
from qindex.brokers.rabbitmq.quorum.erlang_order import map_order
from qindex.brokers.rabbitmq.quorum.mixed import Unsure

# What Erlang 25.2 gives for maps:keys() of a map with the keys 0 to 39, on x86-64.
ERLANG = [
    *(16, 18, 5, 19, 27, 35, 10, 24, 36, 4, 21, 22, 17, 3, 8, 1, 7, 2, 14, 15),
    *(20, 13, 38, 0, 6, 28, 25, 34, 32, 9, 37, 11, 31, 26, 39, 30, 29, 23, 12, 33),
]
# And of one with the squares of 0 to 33, each times 1000003.
ROOTS = [
    *(3, 4, 21, 19, 33, 9, 17, 16, 27, 24, 1, 10, 12, 8, 28, 22, 29),
    *(31, 26, 30, 0, 18, 14, 25, 5, 15, 32, 6, 11, 13, 20, 23, 2, 7),
]


def test_a_large_map_is_walked_as_erlang_walks_it() -> None:
    assert map_order(range(40)) == ERLANG
    assert map_order(n * n * 1000003 for n in range(34)) == [n * n * 1000003 for n in ROOTS]
    assert map_order([7, 3, 7, 5]) == [3, 5, 7]
    assert map_order(range(31, -1, -1)) == list(range(32))


@pytest.mark.parametrize("version", range(4))
def test_many_returned_at_once_wait_in_the_order_of_erlang(version: int) -> None:
    player = Player(version)
    sent = [player.publish() for _ in range(40)]
    key = player.consume(credit=40)
    player.do("checkout", key, Atom("cancel"), {})
    player.do("return", key, list(range(40)))
    assert player.machine.mixed.count == 40
    assert player.order() == [sent[number] for number in ERLANG]


def test_up_to_32_returned_at_once_have_an_order() -> None:
    player = Player(2)
    for _ in range(40):
        player.publish()
    key = player.consume(credit=40)
    player.do("return", key, list(range(32)))
    player.do("return", key, list(range(40, 73)))  # it has not got number 72
    assert player.machine.mixed.count == 0


@pytest.mark.parametrize(("version", "count"), [(2, 40), (5, 40), (6, 0)])
def test_nor_is_the_order_of_many_consumers_that_go_at_once_known(version: int, count: int) -> None:
    player = Player(version)
    for _ in range(40):
        player.publish()
    for number in range(40):
        player.consume((b"tag%d" % number, ONE[1]), credit=1)
    player.do("down", ONE[1], Atom("noproc"))
    assert player.machine.mixed.count == count


# --- what is said to be sure is so in every order -------------------------------------------------


class Twins:
    """The same commands for two machines, of which the second's Erlang has another order."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.order = random.Random(seed + 1)
        self.both = [Player(2, **settings), Player(2, **settings)]
        self.keys = [(b"tag%d" % n, pid(20 + n)) for n in range(4)]

    def do(self, call: str, *given: Any, **named: Any) -> None:
        for each in self.both:
            getattr(each, call)(*given, **named)

    def run(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        for _ in range(steps):
            what = self.random.choice(["publish", "publish", "consume", "settle", "return", "all"])
            key = self.random.choice(self.keys)
            if what == "publish":
                for _ in range(self.random.choice([1, 60])):
                    self.do("publish")
            elif what == "consume":
                self.do("consume", key, credit=self.random.choice([3, 50, 80]))
            else:
                consumer = self.both[0].machine.consumers.get(key)
                numbers = sorted(consumer.checked) if consumer else []
                if what != "all" and numbers:
                    numbers = self.random.sample(numbers, self.random.randint(1, len(numbers)))
                verb = "return" if what == "all" else what
                self.both[0].do(verb, key, numbers)
                with monkeypatch.context() as patch:
                    patch.setattr(deliveries, "map_order", self.shuffled)
                    self.both[1].do(verb, key, numbers)

    def shuffled(self, numbers: Any) -> list[int]:
        found = sorted(numbers)
        if len(found) > 32:
            self.order.shuffle(found)
        return found

    def results(self) -> tuple[Unsure, dict[int, int], dict[int, int]]:
        """What is not sure of the first; the live messages of both, with their counts."""
        first, second = ({n: count for n, count, _ in each.after_restart()} for each in self.both)
        return self.both[0].machine.mixed.end(first, 0, by_bytes=False), first, second


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 100, 4])
@pytest.mark.sample(3)
def test_what_is_called_sure_is_so_in_every_order(
    monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    differed = swapped = sure = 0
    for seed in range(60):
        twins = Twins(seed, **({} if limit is None else {"delivery_limit": limit}))
        twins.run(monkeypatch, 40)
        unsure, assumed, real = twins.results()
        if unsure.loose:
            assert limit == 4
            continue
        sure += 1
        assert len(assumed) == len(real)
        assert len(set(assumed) - set(real)) <= unsure.others
        for index in set(assumed) & set(real):
            least, most = unsure.counts.get(index, (assumed[index], assumed[index]))
            assert least <= real[index] <= most
        differed += set(assumed) != set(real)
        swapped += any(assumed[n] != real[n] for n in set(assumed) & set(real))
    assert sure > 10
    assert differed > 5
    assert swapped > 5


def test_expired_ones_and_those_too_large_may_have_been_others() -> None:
    player = Player(2)
    for number in range(40):
        player.publish(ttl=5000 if number == 7 else None)
    key = player.consume(credit=40)
    player.do("return", key, list(range(40)))
    mixed = player.machine.mixed
    assert not mixed.end({}, 5999, by_bytes=True).loose
    assert mixed.end({}, 6000, by_bytes=True).loose
