"""No value that a reader takes breaks what is written of it, in any format."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from fuzz_formats import READERS, Target
from helpers import unpack

from .extremes import sweep
from .quorum_nodes import DATA
from .rabbitmq_files import write_node

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "formats"
REAL = ["quorum_n42", "quorum_q2", "quorum_s1", "rabbitmq_dead_letters"]


def node_of(name: str, folder: Path) -> Path:
    """A dead broker's directory, small enough to be read a hundred times a second or so."""
    if name == "classic":
        return write_node(folder / "node")
    if name in READERS:
        Target(CORPUS, folder)
        return folder / name
    unpacked = unpack(DATA / f"{name}.tar.xz", folder)
    found = [p.parent for each in ("quorum", "stream", "msg_stores") for p in unpacked.rglob(each)]
    return min(found, key=lambda path: len(path.parts))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classic", *READERS])
def test_a_field_of_any_value_ends_in_an_account(tmp_path: Path, name: str) -> None:
    node = node_of(name, tmp_path / "in")
    assert list(sweep(node, tmp_path / "out", Random(name), 60)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["classic", *READERS, *REAL])
def test_very_many_fields_of_any_value_end_in_an_account(tmp_path: Path, name: str) -> None:
    node = node_of(name, tmp_path / "in")
    assert list(sweep(node, tmp_path / "out", Random(), 1000)) == []
