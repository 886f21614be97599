"""tools/strangers.py: what the guide says against what the store does, with and without kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import stranger_clocks
import stranger_consumers
import stranger_kills
import strangers
from stranger_crowd import DEAD, OPTIONS, Crowd
from stranger_model import Difference, Kept, Model


def test_random_calls_do_what_the_guide_says(tmp_path: Path) -> None:
    assert "600 calls" in strangers.run_model(tmp_path, 600, seed=7)


def test_what_is_there_after_a_kill_is_what_was_done(tmp_path: Path) -> None:
    assert "4 kills" in strangers.run_kills(tmp_path, 4, seed=9)


@pytest.mark.slow
@pytest.mark.long
def test_many_random_calls_do_what_the_guide_says(tmp_path: Path) -> None:
    assert strangers.run_model(tmp_path, 50_000, seed=1000)


@pytest.mark.slow
@pytest.mark.long
def test_many_kills_lose_nothing(tmp_path: Path) -> None:
    assert strangers.run_kills(tmp_path, 300, seed=1000)


def test_a_model_that_is_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that does not count, as if a kill had taken it."""
    deliver = Model.deliver

    def forgets(model: Model, message: Kept) -> None:
        deliver(model, message)
        message.count -= message.priority == 2

    monkeypatch.setattr(Model, "deliver", forgets)
    with pytest.raises(SystemExit, match="the guide"):
        strangers.run_model(tmp_path, 600, seed=7)


def test_many_queues_transactions_and_moves_survive_kills(tmp_path: Path) -> None:
    assert "4 kills" in stranger_kills.run_crowd(tmp_path, 4, seed=3)


def test_times_follow_a_clock_that_is_set_forward_and_back(tmp_path: Path) -> None:
    assert "1,500 steps" in stranger_clocks.run_clocks(tmp_path, 1500, seed=5)


def test_a_consumer_events_and_counters_do_what_the_guide_says(tmp_path: Path) -> None:
    assert "800 calls" in stranger_consumers.run_consumers(tmp_path, 800, seed=11)


@pytest.mark.slow
def test_consumers_and_counters_survive_kills(tmp_path: Path) -> None:
    assert "3 kills" in stranger_consumers.run_kills(tmp_path, 3, seed=5)


@pytest.mark.slow
@pytest.mark.long
def test_many_calls_and_kills_with_a_consumer(tmp_path: Path) -> None:
    assert stranger_consumers.run_consumers(tmp_path, 40_000, seed=2000)
    assert stranger_consumers.run_kills(tmp_path, 200, seed=2000)


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("_unacked", lambda shop: [("plain", 1 << 40)]),
        ("_back", lambda shop, model, m: setattr(m, "state", "ready")),
        ("_time_passed", lambda shop, model, m: None),
        ("_compare_missed", lambda shop: stranger_consumers.same(shop.slow.get(), 1)),
    ],
)
def test_a_consumer_that_is_wrong_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, wrong: Any
) -> None:
    """The model has another limit, forgets what was tried too often, or that time has passed."""
    monkeypatch.setattr(stranger_consumers.Shop, what, wrong)
    with pytest.raises(SystemExit, match="the guide"):
        stranger_consumers.run_consumers(tmp_path, 800, seed=11)


@pytest.mark.slow
@pytest.mark.long
def test_many_kills_of_many_queues(tmp_path: Path) -> None:
    assert stranger_kills.run_crowd(tmp_path, 300, seed=1000)
    assert stranger_clocks.run_clocks(tmp_path, 50_000, seed=1000)


def test_a_message_that_a_transaction_lost_is_noticed(tmp_path: Path) -> None:
    """The model is told of a transaction that the store has never got."""
    crowd = Crowd(tmp_path / "crowd", 1, OPTIONS[0])
    crowd.open()
    for _ in range(30):
        crowd.call()
    crowd.compare()
    crowd.follow(("transaction", [("publish", DEAD, b"lost")]), [1 << 40])
    with pytest.raises(Difference, match=r"missing .*b'lost'"):
        crowd.compare()
    crowd.store.close()


def test_a_clock_that_the_store_did_not_hear_of_is_noticed() -> None:
    world = stranger_clocks.World(1)
    world.open()
    world.queue.publish(b"x", ttl=60)
    world.kept[0] = stranger_clocks.Timed(b"x", expires=stranger_clocks.NOW + 60)
    world.compare()
    world.wall += 3600
    world.expire()
    with pytest.raises(Difference):
        world.compare()
    world.store.close()
