"""No damage of quorum queues and streams costs more than what it touches, and none is silent."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from helpers import unpack

from .quorum_mix import mixtures
from .quorum_nodes import DATA, NAMES
from .quorum_sweep import FOLDERS, files_of, sweep

CLUSTER = "c3"  # three members of one queue, given together
SWEPT = [*NAMES, CLUSTER, "q3", "s1", "k17"]  # q3 was stopped in order; streams; Khepri


def node_of(name: str, folder: Path) -> Path:
    path = unpack(DATA / f"quorum_{name}.tar.xz", folder)
    if name == CLUSTER:
        return path
    return min((above.parent for each in FOLDERS for above in path.glob(f"**/{each}")), key=_depth)


def _depth(path: Path) -> int:
    return len(path.parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["q1", "n43", CLUSTER])
def test_no_damage_is_passed_over(tmp_path: Path, name: str) -> None:
    path = node_of(name, tmp_path)
    files = Random(name).sample(files_of(path), 4)
    assert list(sweep(path, files, Random(name), 1)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", SWEPT)
def test_no_damage_of_very_many_is_passed_over(tmp_path: Path, name: str) -> None:
    path = node_of(name, tmp_path)
    assert list(sweep(path, files_of(path), Random(), 12)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["q1", "n43", CLUSTER, "s1"])
def test_no_files_in_each_other_s_place_are_passed_over(tmp_path: Path, name: str) -> None:
    path = node_of(name, tmp_path / "sound")
    assert list(mixtures(path, tmp_path / "mixed", Random(name), 15)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", SWEPT)
def test_no_files_of_very_many_in_each_other_s_place_are_passed_over(
    tmp_path: Path, name: str
) -> None:
    path = node_of(name, tmp_path / "sound")
    assert list(mixtures(path, tmp_path / "mixed", Random(), 150)) == []
