"""Files of one queue in the folder of another one, as by a restore that went wrong: all is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import unpack
from quorum_player import P, Player
from ra_files import flip

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.tree import Finding
from qindex.cli.main import main

from .quorum_mix import over, swap
from .quorum_nodes import DATA, quorum_queues, real_node
from .test_quorum_damage import segments_of

KIND = "another queue's"


def told(path: Path) -> list[Finding]:
    with open_at(path) as node:
        return [each for each in node.findings if each.kind == KIND]


def segment(path: Path, uid: str, number: int) -> Path:
    (found,) = path.glob(f"quorum/*/{uid}*/*{number}.segment")
    return found


@pytest.mark.parametrize("name", ["n42", "n43"])
@pytest.mark.parametrize("way", [over, swap])
@pytest.mark.parametrize(("one", "other"), [("2F_AA", "2F_BB"), ("2F_BB", "2F_AA")])
@pytest.mark.sample(3)
def test_segments_with_the_same_indexes_are_told_by_the_sizes_that_the_state_has(
    tmp_path: Path, name: str, way: Any, one: str, other: str
) -> None:
    """Their messages came through an exchange, so that no key names the queue."""
    path = real_node(name, tmp_path).path
    way(segment(path, one, 1), segment(path, other, 1), Random(1))
    findings = told(path)
    assert findings
    assert {each.severity for each in findings} == {"suspected"}
    assert any("are not what the log has in their places" in each.text for each in findings)
    assert main(["check", str(path)]) == main(["recover", str(path)]) == 1


def test_messages_of_the_default_exchange_name_their_queue(tmp_path: Path) -> None:
    real = real_node("q2", tmp_path)
    (slow,), big = segments_of(real, "2F_SLO"), segments_of(real, "2F_BIG")
    slow.write_bytes(big[0].read_bytes())  # which has no settings
    with open_at(real.path) as node:
        queue = quorum_queues(node)["/", "slow"]
        assert not queue.outcome.exact
        findings = [each for each in node.findings if each.kind == KIND]
    assert any("was sent to the queue big" in each.text for each in findings)
    assert {each.about for each in findings} == {"quorum queue slow"}


def test_the_settings_in_a_log_name_its_queue(tmp_path: Path) -> None:
    real = real_node("q2", tmp_path)
    (slow,) = segments_of(real, "2F_SLO")
    for folder in real.path.glob("quorum/*/2F_BIG*"):
        shutil.rmtree(folder / "snapshots")
        for each in folder.glob("*.segment"):
            each.unlink()
        shutil.copy(slow, folder / "00000001.segment")
    assert any("has the settings of the queue slow" in each.text for each in told(real.path))


def test_a_snapshot_names_its_queue(tmp_path: Path) -> None:
    real = real_node("q2", tmp_path)
    (big,) = real.path.glob("quorum/*/2F_BIG*/snapshots/*/snapshot.dat")
    (done,) = real.path.glob("quorum/*/2F_DON*/snapshots/*/snapshot.dat")
    done.write_bytes(big.read_bytes())
    assert any("the state is that of the queue big" in each.text for each in told(real.path))


def test_a_flipped_bit_does_not_make_another_queue_s(tmp_path: Path) -> None:
    """It is damage of its own."""
    path = real_node("n43", tmp_path).path
    file = segment(path, "2F_AA", 1)
    file.write_bytes(flip(file.read_bytes(), -100))
    assert told(path) == []


# --- publishers' numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 9))
def test_a_publish_whose_earlier_ones_never_came_is_refused_and_remembered(version: int) -> None:
    player = Player(version)
    player.publish()
    player.sent[P] += 3
    player.publish()
    player.publish()
    assert player.machine.early == {P: (6, 2)}
    assert player.order() == [1]
    assert player.machine.early == {P: (6, 2)}


def test_one_that_sends_all_of_them_again_is_none_of_those() -> None:
    player = Player(2)
    player.publish()
    player.sent[P] = 2
    player.publish()
    player.sent[P] = 1
    player.publish()
    player.publish()
    assert player.order() == [1, 3, 4]
    assert player.machine.early == {}


# --- streams --------------------------------------------------------------------------------------


def s1(folder: Path) -> tuple[Path, Path, Path]:
    """The node, and its streams `st` and `поток`."""
    path = unpack(DATA / "quorum_s1.tar.xz", folder) / "quo@localhost"
    return path, *(next(path.glob(f"stream/{name}_1*")) for name in ("__st", "_" * 12))


def test_two_streams_in_each_other_s_directories(tmp_path: Path) -> None:
    path, one, other = s1(tmp_path)
    one.rename(tmp_path / "one")
    other.rename(one)
    (tmp_path / "one").rename(other)
    findings = told(path)
    assert {each.about for each in findings} == {"stream st", "stream поток"}
    assert {each.severity for each in findings} == {"suspected"}
    assert main(["check", str(path)]) == main(["recover", str(path)]) == 1


def test_a_segment_that_is_not_the_one_of_its_index(tmp_path: Path) -> None:
    """Nothing is taken from the messages here: they might name no queue."""
    path, one, _ = s1(tmp_path)
    segments = sorted(one.glob("*.segment"))
    data = segments[-1].read_bytes()
    at = data.rindex(b"\x50\0\0\x01", 0, len(data) - 100)
    segments[-1].write_bytes(data[:8] + data[at:])
    assert any("where another stands, or none" in each.text for each in told(path))


def test_messages_that_are_older_than_the_stream_s_directory(tmp_path: Path) -> None:
    path, one, _ = s1(tmp_path)
    later = int(one.name[-19:]) + 3_600_000_000_000
    one.rename(one.with_name(f"{one.name[:-19]}{later}"))
    assert any("is older than the stream" in each.text for each in told(path))


@pytest.mark.parametrize("name", ["q1", "q2", "q3", "s1", "n42", "n43", "k17"])
def test_a_sound_node_has_nobody_else_s_messages(tmp_path: Path, name: str) -> None:
    path = unpack(DATA / f"quorum_{name}.tar.xz", tmp_path)
    with open_at(next(path.glob("quo@localhost"), path)) as node:
        for queue in node.queues:
            assert sum(1 for _ in queue.messages()) == queue.account.live
        assert not [each for each in node.findings if each.kind == KIND]
