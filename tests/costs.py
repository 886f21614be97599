"""Bounds of costs that other work on the machine cannot break.

Other work on the machine adds to what is measured, to CPU time, too, since caches and memory are
shared. It takes nothing away. So the least of several rounds counts, and the rounds end as soon as
the bound holds: a cost that is really above its bound is so in every round.
"""

from __future__ import annotations

from collections.abc import Callable

ROUNDS_MAX = 8

Costs = dict[str, float]


def lesser(one: Costs, other: Costs) -> Costs:
    """The lesser of each cost."""
    return {what: min(cost, other.get(what, cost)) for what, cost in one.items()}


def hold_in_time(measure: Callable[[], Costs], excess: Callable[[Costs], object]) -> Costs:
    """Measure until there is no excess in the least of each cost, and return these.

    Where a bound compares two of the costs, noise in the lower one would hide growth: measure that
    one several times in a round.
    """
    least: Costs = {}
    for _ in range(ROUNDS_MAX):
        least = lesser(measure(), least)
        if not excess(least):
            return least
    raise AssertionError(excess(least))
