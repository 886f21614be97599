"""Bounds of costs: noise passes, a cost that is too high does not, however the rounds fall."""

import itertools
import random

import pytest
from costs import ROUNDS_MAX, hold_in_time


def measured(few, many, dice, rounds):
    """A measurement whose figures are these costs, and what other work adds."""

    def noise():
        return dice.choice([0, 0.01, 1, 10])

    def measure():
        rounds.append(1)
        return {
            "few": min(few + noise() for _ in range(3)),
            "many": many + noise(),
        }

    return measure


def excess(costs):
    return costs["many"] >= costs["few"] * 5 * 1.8 and costs


def test_what_other_work_adds_breaks_no_bound():
    for seed in range(100):
        rounds = []
        hold_in_time(measured(1, 5, random.Random(seed), rounds), excess)
        assert len(rounds) <= ROUNDS_MAX


def test_a_cost_that_is_too_high_is_so_in_every_round():
    always = {"few": 1, "many": 25}
    with pytest.raises(AssertionError, match="25"):
        hold_in_time(lambda: always, excess)
    least = itertools.chain([{"few": 3, "many": 40}], itertools.repeat({"few": 2, "many": 25}))
    with pytest.raises(AssertionError, match="'few': 2, 'many': 25"):
        hold_in_time(lambda: next(least), excess)


def test_the_rounds_end_as_soon_as_the_bound_holds():
    rounds = iter([{"few": 1, "many": 9}, {"few": 1, "many": 8.9}])
    assert hold_in_time(lambda: next(rounds), excess) == {"few": 1, "many": 8.9}
