"""The table in docs/internals/tests.rst, number by number: each is there, and so are its tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_number_has_tests_that_are_there() -> None:
    text = (ROOT / "docs/internals/tests.rst").read_text()
    table = text.split("What strangers found, number by number\n")[1].split("gmq, row by row\n")[0]
    rows = re.findall(r"\* - (\d+) [^\n]+\n     - ``([\w/]+\.py)``: (.+)\n", table)
    assert {int(number) for number, *_ in rows} == set(range(1, 25))
    assert len(rows) == table.count("   * - ") - 1
    for _, file, told in rows:
        there = re.findall(r"^(?:async )?def (\w+)", (ROOT / "tests" / file).read_text(), re.M)
        names = re.findall(r"``(\w+)``", told)
        assert names
        assert set(names) <= set(there), file
