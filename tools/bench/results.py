"""The figures of all rounds, and what is derived from them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from plan import ROWS


@dataclass(frozen=True, order=True)
class Key:
    figure: str
    body_bytes: int
    system: str


@dataclass
class Results:
    """Samples by figure, body size and system; within one, by round, so that ratios can pair up."""

    samples: dict[Key, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    failures: list[str] = field(default_factory=list)

    def add(
        self, round_number: int, body_bytes: int, system: str, figures: Mapping[str, float]
    ) -> None:
        for figure, value in figures.items():
            self.samples[Key(figure, body_bytes, system)][round_number] = value

    def median(self, figure: str, body_bytes: int, system: str) -> float | None:
        by_round = self.samples.get(Key(figure, body_bytes, system))
        return median(by_round.values()) if by_round else None

    def spread(self, figure: str, body_bytes: int, system: str) -> float | None:
        """Half the distance of the extremes, as a share of the median."""
        values = list(self.samples.get(Key(figure, body_bytes, system), {}).values())
        if len(values) < 2 or median(values) == 0:
            return None
        return (max(values) - min(values)) / 2 / median(values)

    def derive_sync_share(self) -> None:
        """A sync rate means little alone: compare it with the raw rate of the same round."""
        for key in [key for key in self.samples if key.figure == "sync_each"]:
            floor = self.samples.get(Key("sync_each", key.body_bytes, "floor"), {})
            pairs = {i: (rate, floor[i]) for i, rate in self.samples[key].items() if i in floor}
            shares = {i: rate / raw for i, (rate, raw) in pairs.items()}
            if shares and key.system != "floor":
                self.samples[Key("sync_share", key.body_bytes, key.system)] = shares

    def best_of(
        self, figure: str, body_bytes: int, others: Iterable[str]
    ) -> tuple[str, float] | None:
        found = [(name, self.median(figure, body_bytes, name)) for name in others]
        present = [(name, value) for name, value in found if value is not None]
        if not present:
            return None
        more_is_better = next(row for row in ROWS if row.figure == figure).more_is_better
        best = max if more_is_better else min
        return best(present, key=lambda pair: pair[1])

    def after_kill9(self, body_bytes: int, system: str) -> str | None:
        """What came back after kill -9, in words."""
        figures = ("published", "acked", "back", "altered", "first", "in_order")
        values = [self.median(f"kill9_{figure}", body_bytes, system) for figure in figures]
        if any(value is None for value in values):
            return None
        published, acked, back, altered, first, in_order = (int(value or 0) for value in values)
        expected = published - acked
        returned = max(acked - first, 0) if back > 0 else 0
        text = f"{back - returned:,} of {expected:,} waiting came back"
        text += f", {returned:,} of {acked:,} acked too" if returned else ""
        text += f", {altered:,} altered" if altered else ""
        text += "" if in_order else ", out of order"
        return text

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "figure": key.figure,
                "body_bytes": key.body_bytes,
                "system": key.system,
                "median": median(by_round.values()),
                "samples": [by_round[i] for i in sorted(by_round)],
            }
            for key, by_round in sorted(self.samples.items())
        ]
