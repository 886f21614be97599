"""No damage of quorum queues and streams costs more than what it touches, and none is silent."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from .quorum_nodes import NAMES, real_node
from .quorum_sweep import files_of, sweep


@pytest.mark.parametrize("name", ["q1", "n43"])
def test_no_damage_is_passed_over(tmp_path: Path, name: str) -> None:
    path = real_node(name, tmp_path).path
    files = Random(name).sample(files_of(path), 4)
    assert list(sweep(path, files, Random(name), 1)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_no_damage_of_very_many_is_passed_over(tmp_path: Path, name: str) -> None:
    path = real_node(name, tmp_path).path
    assert list(sweep(path, files_of(path), Random(), 12)) == []
