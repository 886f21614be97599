"""Which messages of many kill a consumer: binary search, and what to do if no single one does.

`kills(positions)` says whether the consumer dies of these messages, in their order. It is asked as
seldom as can be; an answer is not asked for twice. Knows nothing of stores and processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TooManyRuns(Exception):
    """The limit of runs is reached. `best` is the smallest set so far that kills it."""

    def __init__(self, best: Sequence[int]) -> None:
        super().__init__()
        self.best = list(best)


class Trials:
    """Counts what is asked. Equal questions are asked once."""

    def __init__(self, kills: Callable[[Sequence[int]], bool], runs_max: int) -> None:
        self._kills = kills
        self._runs_max = runs_max
        self._known: dict[tuple[int, ...], bool] = {}
        self.runs = 0
        self.best: Sequence[int] = ()  # the smallest set so far that kills it

    def __call__(self, positions: Sequence[int]) -> bool:
        key = _key(positions)
        if key not in self._known:
            if self.runs >= self._runs_max:
                raise TooManyRuns(self.best)
            self._known[key] = self.again(positions)
        if self._known[key] and (not self.best or len(positions) < len(self.best)):
            self.best = positions
        return self._known[key]

    def again(self, positions: Sequence[int]) -> bool:
        """Asks in any case."""
        self.runs += 1
        return self._kills(positions)


def _key(positions: Sequence[int]) -> tuple[int, ...]:
    """A range by its ends: a tuple of a million numbers would be kept per run."""
    if isinstance(positions, range):
        return (-1, positions.start, positions.stop)
    return tuple(positions)


def find_killers(kills: Trials, count: int) -> list[int]:
    """The smallest set that is found, sorted: one message, or some that do it together.

    All `count` messages must be known to kill it, none of them not to. About log2(count) runs if
    it is a single message.
    """
    end = _bisect(lambda length: kills(range(length)), 0, count)
    if kills([end - 1]):
        return [end - 1]
    # It dies at this one, but only after others: as few of those as can be.
    keeps = _bisect(lambda length: kills(range(end - length, end)), 1, end)
    return _reduce(kills, list(range(end - keeps, end)))


def _bisect(is_enough: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number that is enough; `low` is not, `high` is."""
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


def _reduce(kills: Trials, positions: list[int]) -> list[int]:
    """Leaves out ever smaller stretches as long as the rest still does it (Zeller's ddmin)."""
    size = max(1, len(positions) // 2)
    while True:
        start, shorter = 0, False
        while start < len(positions):
            rest = positions[:start] + positions[start + size :]
            if rest and kills(rest):
                positions, shorter = rest, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not shorter:
            return positions
