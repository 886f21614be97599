"""Numbers for find(): the same in every process, whatever else is loaded there.

Hypothesis mixes numbers that it finds in the sources of all loaded modules into what it draws, and
which modules are local to it depends on how they were installed. So what its own generator finds is
another script after another import. Here only one seed decides.
"""

from __future__ import annotations

import random
from typing import Any, Final

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

BACKEND: Final = "qindex-dice"  # for hypothesis.settings


class Dice(PrimitiveProvider):
    """Fair numbers, for what QueueMachine draws: bounded integers and booleans."""

    lifetime = "test_function"  # one for a whole search

    def __init__(self, data: Any, /) -> None:
        super().__init__(data)
        self.random = random.Random(0)  # noqa: S311

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def draw_integer(self, min_value: Any = None, max_value: Any = None, **_wishes: Any) -> int:
        return self.random.randint(min_value, max_value)

    def draw_float(self, **_wishes: Any) -> float:
        raise NotImplementedError

    def draw_string(self, *_wishes: Any, **_more: Any) -> str:
        raise NotImplementedError

    def draw_bytes(self, *_wishes: Any, **_more: Any) -> bytes:
        raise NotImplementedError


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{Dice.__name__}"
