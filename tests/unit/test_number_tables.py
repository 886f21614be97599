"""The tables in docs/internals/tests.rst, number by number: each is there, and so are its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("title", "behind", "last"),
    [
        ("What strangers found, number by number\n", "Format 2, number by number\n", 24),
        ("Format 2, number by number\n", "A broker's author, number by number\n", 11),
        ("A broker's author, number by number\n", "The broker, number by number\n", 18),
        ("The broker, number by number\n", "gmq, row by row\n", 12),
    ],
)
def test_each_number_has_tests_that_are_there(title: str, behind: str, last: int) -> None:
    text = (ROOT / "docs/internals/tests.rst").read_text()
    table = text.split(title)[1].split(behind)[0]
    rows = re.findall(r"\* - (\d+) [^\n]+\n     - ``([\w./]+\.(?:py|c))``: (.+)\n", table)
    assert {int(number) for number, *_ in rows} == set(range(1, last + 1))
    assert len(rows) == table.count("   * - ") - 1
    for _, file, told in rows:
        code = (ROOT / "tests" / file).read_text()
        there = re.findall(r"^(?:async def|def|static void) (\w+)", code, re.M)
        names = re.findall(r"``(\w+)``", told)
        assert names
        assert set(names) <= set(there), file
