"""How many messages are lost with a file: what can be known is counted, the rest is called so."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.streams.stream import Stream
from qindex.cli.main import main

from .quorum_nodes import DATA, RealNode, quorum_queues, real_node
from .test_quorum_damage import segments_of

Capture = pytest.CaptureFixture[str]


class Told:
    """Of one queue: what is really missing, and what is said about it."""

    def __init__(self, path: Path, name: str, before: list[bytes] | None = None) -> None:
        with open_at(path) as node:
            (queue,) = [each for each in quorum_queues(node).values() if each.name == name]
            self.bodies = [message.body for message in queue.messages()]
            self.account, self.facts = queue.account, queue.facts()
            self.texts = [each.text for each in node.findings if each.severity == "damage"]
        assert self.account.adds_up
        self.lost = self.account.lost.get("entry missing", 0)
        self.really_lost = (Counter(before or ()) - Counter(self.bodies)).total()


# --- quorum queues --------------------------------------------------------------------------------


def test_the_first_segment_of_a_log_without_a_snapshot(q2: RealNode, capsys: Capture) -> None:
    """590 messages were in it. Which of its entries were messages nobody knows."""
    before = Told(q2.path, "slow")
    (segment,) = segments_of(q2, "2F_SLO")
    segment.unlink()
    told = Told(q2.path, "slow", before.bodies)
    assert (told.really_lost, told.lost, told.facts["entries_missing"]) == (590, 594, 594)
    assert not told.account.lost_is_known
    assert any("594 entries of the log are missing: 1 to 594" in text for text in told.texts)
    assert main(["recover", str(q2.path), "--report", str(q2.path.parent / "page.html")]) == 1
    sentence = "How many messages are lost is not known exactly"
    assert sentence in capsys.readouterr().out
    assert sentence in (q2.path.parent / "page.html").read_text()
    assert main(["check", str(q2.path)]) == 1
    assert "594 entry missing; how many are lost is an estimate" in capsys.readouterr().out
    main(["recover", str(q2.path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["account"]["lost"], found["account"]["lost_is_known"]) == (594, False)
    assert [q["lost_is_known"] for q in found["queues"]] == [
        q["queue"] != "slow" for q in found["queues"]
    ]


def test_a_segment_right_behind_the_snapshot_is_filled_by_the_publishers_numbers(
    q2: RealNode,
) -> None:
    """The snapshot knows the next number of each publisher, so that nothing here is a guess."""
    before = Told(q2.path, "big")
    segments_of(q2, "2F_BIG")[0].unlink()
    told = Told(q2.path, "big", before.bodies)
    assert told.facts["entries_missing"] == 99
    assert told.really_lost <= told.lost + told.facts["settled_behind_what_is_missing"]
    assert told.account.found == before.account.found
    assert len(told.bodies) == len(before.bodies)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.sample(5)
def test_a_segment_further_up_counts_at_least_what_is_lost(q2: RealNode, number: int) -> None:
    """What the snapshot's messages became is known: below a snapshot nothing is live any more."""
    before = Told(q2.path, "big")
    segments_of(q2, "2F_BIG")[number].unlink()
    told = Told(q2.path, "big", before.bodies)
    assert told.lost >= 170
    assert told.really_lost <= told.lost
    assert "without a body" not in told.account.lost
    assert not told.account.lost_is_known


@pytest.mark.slow
def test_missing_publishes_that_get_no_place_are_lost_messages(
    q2: RealNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fewer are counted than are lost, however many are missing."""
    before = Told(q2.path, "big")
    segments_of(q2, "2F_BIG")[3].unlink()
    told = Told(q2.path, "big")
    monkeypatch.setattr("qindex.brokers.rabbitmq.quorum.lenient.PLACES_MAX", 50)
    few = Told(q2.path, "big", before.bodies)
    assert few.account.found == told.account.found
    assert few.lost >= told.lost > 100
    assert few.really_lost <= few.lost
    (text,) = [text for text in few.texts if "missing publishes above the first 250,000" in text]
    assert "at most so many messages are lost with them" in text
    assert not [text for text in told.texts if "missing publishes above" in text]


def test_the_end_of_a_log_that_the_node_had_applied(q2: RealNode) -> None:
    (wal,) = q2.path.glob("quorum/*/*.wal")
    before = Told(q2.path, "slow")
    wal.unlink()
    told = Told(q2.path, "slow", before.bodies)
    assert told.really_lost == told.lost == told.facts["entries_missing"] == 30
    assert not told.account.lost_is_known


@pytest.mark.parametrize("number", range(1, 7))
def test_entries_below_a_checkpoint_cost_bodies_only(tmp_path: Path, number: int) -> None:
    path = real_node("n42", tmp_path).path
    before = Told(path, "aa")
    (segment,) = path.glob(f"quorum/*/2F_AA*/*{number}.segment")
    segment.unlink()
    told = Told(path, "aa", before.bodies)
    assert told.really_lost == told.account.lost["without a body"] > 0
    assert told.account.lost_is_known
    assert told.facts["entries_missing"] in (127, 128)
    assert any("below the state at entry 1031 missing" in text for text in told.texts)
    assert any("the bodies are lost" in text for text in told.texts)


def test_gaps_below_a_snapshot_of_4_3_are_no_damage_but_lost_bodies_are(tmp_path: Path) -> None:
    path = real_node("n43", tmp_path).path
    before = Told(path, "aa")
    assert before.texts == []
    (segment,) = path.glob("quorum/*/2F_AA*/*3.segment")
    segment.unlink()
    told = Told(path, "aa", before.bodies)
    assert told.really_lost == told.account.lost["without a body"] == 42
    assert any("42 live messages have no entry in any file" in text for text in told.texts)


OVERWRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "ones": lambda slots: b"\xff" * len(slots),
    "dice": lambda slots: random.Random(1).randbytes(len(slots)),
    "shifted": lambda slots: slots[16:] + slots[:16],
}


@pytest.mark.parametrize("first", [0, 20])
@pytest.mark.parametrize("what", OVERWRITTEN)
@pytest.mark.sample(3)
def test_slots_that_were_overwritten_cost_nothing(q2: RealNode, what: str, first: int) -> None:
    """The data is there, one term behind the other."""
    before = Told(q2.path, "slow")
    (segment,) = segments_of(q2, "2F_SLO")
    data, start = segment.read_bytes(), 8 + 32 * first
    slots = OVERWRITTEN[what](data[start : start + 320])
    segment.write_bytes(data[:start] + slots + data[start + 320 :])
    told = Told(q2.path, "slow", before.bodies)
    assert told.really_lost <= told.lost
    assert told.really_lost <= (1 if what == "shifted" else 0)
    assert told.texts


@pytest.mark.parametrize("first", [0, 20])
def test_slots_that_are_copies_of_others_are_counted(q2: RealNode, first: int) -> None:
    before = Told(q2.path, "slow")
    (segment,) = segments_of(q2, "2F_SLO")
    data, start = segment.read_bytes(), 8 + 32 * first
    slots = data[8 + 32 * 50 : 8 + 32 * 60]
    segment.write_bytes(data[:start] + slots + data[start + 320 :])
    told = Told(q2.path, "slow", before.bodies)
    assert told.really_lost <= told.lost
    assert told.texts


# --- streams --------------------------------------------------------------------------------------


def stream_of(path: Path, start: str) -> Any:
    with open_at(path) as node:
        (queue,) = [q for q in node.queues if isinstance(q, Stream) and q.where.startswith(start)]
        said = [str(each) for each in node.findings if each.severity != "note"]
        return queue.account, said


@pytest.fixture
def s1(tmp_path: Path) -> Path:
    return unpack(DATA / "quorum_s1.tar.xz", tmp_path) / "quo@localhost"


def files_of(path: Path, name: str, ending: str) -> list[Path]:
    (folder,) = path.glob(f"stream/{name}_1*")
    return sorted(folder.glob(f"*.{ending}"))


@pytest.mark.parametrize("at", range(7))
def test_any_segment_of_a_stream_that_is_gone_is_counted(s1: Path, at: int) -> None:
    """A segment's index tells how far it went; the last chunk of the last one, only its offset."""
    sound, _ = stream_of(s1, "stream/__st_")
    files_of(s1, "__st", "segment")[at].unlink()
    account, said = stream_of(s1, "stream/__st_")
    really = sound.live - account.live
    lost = account.lost["in missing chunks"]
    assert lost >= really - (0 if at < 6 else 10)
    assert lost <= really + 12  # the stream's own records have offsets, too
    assert not account.lost_is_known
    assert said


def test_the_only_segment_of_a_stream(s1: Path) -> None:
    (file,) = files_of(s1, "sv_st", "segment")
    file.unlink()
    account, _ = stream_of(s1, "stream/sv_st_")
    assert (account.live, account.lost) == (0, {"in missing chunks": 35})


def test_a_segment_that_ends_between_two_chunks_is_counted_by_its_index(s1: Path) -> None:
    sound, _ = stream_of(s1, "stream/sv_st_")
    (file,) = files_of(s1, "sv_st", "segment")
    data = file.read_bytes()
    at = data.index(b"\x50\0\0\x01", len(data) // 2)
    file.write_bytes(data[:at])
    account, said = stream_of(s1, "stream/sv_st_")
    really = sound.live - account.live
    assert really - 1 <= account.lost["in missing chunks"] <= really
    assert said


def test_a_first_segment_that_nothing_may_have_removed_is_suspected(s1: Path) -> None:
    """With its index: as retention leaves it, but there is none."""
    for ending in ("segment", "index"):
        files_of(s1, "__st", ending)[0].unlink()
    _, said = stream_of(s1, "stream/__st_")
    assert any("nothing that is defined" in text for text in said)
    assert main(["check", str(s1)]) == 1
