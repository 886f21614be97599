"""No damage of a RabbitMQ directory is passed over that anybody could see."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from .rabbitmq_files import write_node
from .rabbitmq_sweep import files_of, sweep


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return write_node(tmp_path / "node")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_damage_is_passed_over(node: Path, seed: int) -> None:
    check_sweep(node, Random(seed), 2)


@pytest.mark.long
def test_no_damage_of_very_many_is_passed_over(node: Path) -> None:
    check_sweep(node, Random(), 200)


def check_sweep(node: Path, dice: Random, few: int) -> None:
    told = list(sweep(node, files_of(node), dice, few))
    assert [each for _, each in told if each.file and not each.why] == []
    assert told[-1][0] > 100
