"""Fuzzy routing: does a pattern match a key, in time proportional to both lengths.

gmq takes the pattern from whoever publishes, and Go's engine is linear. Python's is not: a pattern
like (a+)+b could stop the server. So this follows all ways through the pattern at once (Thompson's
construction). The syntax: text . * + ? | ( ) [a-z] [^a-z] ^ $ and \\d \\w \\s \\D \\W \\S; a
backslash before anything else means just that. Counts like {2,3} and other things are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

PATTERN_CHARACTERS_MAX: Final = 255
_DEPTH_MAX: Final = 50
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CLASSES: Final = {
    "d": frozenset("0123456789"),
    "w": _WORD,
    "s": frozenset("\t\n\f\r "),
}
Test = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern cannot be read, or uses what is not there."""


class Pattern:
    """A pattern that was read. A state is (test, next) or ("split", a, b), "start", "end"."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PatternError(f"a pattern may have {PATTERN_CHARACTERS_MAX} characters")
        self._states: list[tuple[Any, int, int]] = []
        self._text = text
        self._at = 0
        self._final = self._state(None)
        self._first = self._join(self._alternatives(0), self._final)
        if self._at < len(text):
            raise PatternError(f"unexpected ')' in {text!r}")

    # A piece is (first state, last state); the last one's `next` is still open.

    def _state(self, what: Any, one: int = -1, two: int = -1) -> int:
        self._states.append((what, one, two))
        return len(self._states) - 1

    def _join(self, piece: tuple[int, int], follows: int) -> int:
        what, _, two = self._states[piece[1]]
        self._states[piece[1]] = (what, follows, two)
        return piece[0]

    def _alternatives(self, depth: int) -> tuple[int, int]:
        if depth > _DEPTH_MAX:
            raise PatternError("too many parentheses in each other")
        piece = self._sequence(depth)
        while self._peek() == "|":
            self._at += 1
            other = self._sequence(depth)
            last = self._state("go")
            split = self._state("go", self._join(piece, last), self._join(other, last))
            piece = split, last
        return piece

    def _sequence(self, depth: int) -> tuple[int, int]:
        start = self._state("go")
        piece = start, start
        while self._peek() not in ("", "|", ")"):
            part = self._repeated(depth)
            self._join(piece, part[0])
            piece = piece[0], part[1]
        return piece

    def _repeated(self, depth: int) -> tuple[int, int]:
        piece = self._atom(depth)
        if self._peek() in ("*", "+", "?") and self._peek():
            sign = self._next()
            last = self._state("go")
            split = self._state("go", last, piece[0])  # past it, or through it
            if sign == "?":
                self._join(piece, last)
            else:
                self._join(piece, split)
            piece = (piece[0] if sign == "+" else split), last
            if self._peek() == "?":  # as few as possible: where it matches is not asked here
                self._at += 1
            if self._peek() in ("*", "+", "?") and self._peek():
                raise PatternError(f"nothing to repeat before {self._peek()!r} in {self._text!r}")
        if self._peek() == "{":
            raise PatternError(f"counts like {{2,3}} are not there, in {self._text!r}")
        return piece

    def _atom(self, depth: int) -> tuple[int, int]:
        sign = self._next()
        what: Any
        if sign == "(":
            if self._peek() == "?":
                raise PatternError(f"(?...) is not there, in {self._text!r}")
            piece = self._alternatives(depth + 1)
            if self._next() != ")":
                raise PatternError(f"missing ')' in {self._text!r}")
            return piece
        if sign in ("*", "+", "?"):
            raise PatternError(f"nothing to repeat before {sign!r} in {self._text!r}")
        if sign == "^":
            what = "start"
        elif sign == "$":
            what = "end"
        elif sign == ".":
            what = _not("\n".__eq__)
        elif sign == "[":
            what = self._set()
        elif sign == "\\":
            what = self._escaped()
        else:
            what = sign.__eq__
        state = self._state(what)
        return state, state

    def _escaped(self) -> Test:
        sign = self._next()
        if sign.lower() in _CLASSES:
            test = _CLASSES[sign.lower()].__contains__
            return _not(test) if sign.isupper() else test
        if not sign or sign.isalnum():
            raise PatternError(f"\\{sign} is not there, in {self._text!r}")
        return sign.__eq__

    def _set(self) -> Test:
        negative = self._peek() == "^"
        self._at += negative
        tests: list[Test] = []
        while not tests or self._peek() != "]":
            first = self._next()
            if not first:
                raise PatternError(f"missing ']' in {self._text!r}")
            if first == "\\" and self._peek().isalnum():
                tests.append(self._escaped())
                continue
            if first == "\\":
                first = self._next()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                tests.append(_between(first, self._next()))
            else:
                tests.append(first.__eq__)
        self._at += 1
        return _not(_any_of(tests)) if negative else _any_of(tests)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        sign = self._peek()
        self._at += 1
        return sign

    # --- matching ------------------------------------------------------------------------------

    def is_in(self, key: str) -> bool:
        """True if the pattern matches somewhere in the key."""
        current: set[int] = set()
        for at in range(len(key) + 1):
            self._follow(self._first, at, len(key), current)
            if self._final in current:
                return True
            if at < len(key):
                reached: set[int] = set()
                for state in current:
                    what, follows, _ = self._states[state]
                    if callable(what) and what(key[at]):
                        self._follow(follows, at + 1, len(key), reached)
                if self._final in reached:
                    return True
                current = reached
        return False

    def _follow(self, state: int, at: int, size: int, reached: set[int]) -> None:
        """Add all states that are reached from this one without a character."""
        waiting = [state]
        while waiting:
            state = waiting.pop()
            if state < 0 or state in reached:
                continue
            reached.add(state)
            what, one, two = self._states[state]
            if what == "go":
                waiting += (one, two)
            elif (what == "start" and at == 0) or (what == "end" and at == size):
                waiting.append(one)


def _not(test: Test) -> Test:
    return lambda sign: not test(sign)


def _any_of(tests: list[Test]) -> Test:
    return lambda sign: any(test(sign) for test in tests)


def _between(first: str, last: str) -> Test:
    if last < first:
        raise PatternError(f"bad range {first}-{last}")
    return lambda sign: first <= sign <= last


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """The pattern, read once for all who use it. Raises PatternError."""
    return Pattern(text)
