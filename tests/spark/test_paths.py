"""Paths that users write: a name that is there is no pattern."""

from __future__ import annotations

from pathlib import Path

import pytest

from qindex.spark.paths import expand, is_named


@pytest.mark.parametrize("name", ["[x]", "a*", "?"])
def test_a_name_that_is_there_is_no_pattern(tmp_path: Path, name: str) -> None:
    for each in (name, "x", "ab"):
        (tmp_path / each / "store").mkdir(parents=True)
    assert expand(str(tmp_path / name)) == [str(tmp_path / name)]
    assert expand(str(tmp_path / name / "*")) == [str(tmp_path / name / "store")]
    assert is_named(str(tmp_path / name))


def test_one_that_is_not_there_is_a_pattern(tmp_path: Path) -> None:
    for each in ("x", "y", "z"):
        (tmp_path / each).mkdir()
    assert expand(str(tmp_path / "[xy]")) == [str(tmp_path / "x"), str(tmp_path / "y")]
    assert not is_named(str(tmp_path / "[xy]"))
    assert expand(str(tmp_path / "[ab]")) == []
