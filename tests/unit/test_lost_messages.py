"""What a damaged journal frame cost is said: which messages, or at most how many."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import struct
from pathlib import Path

import pytest
from helpers import crash, queue_directory

import qindex
from qindex.cli.main import main

RECORDS, MARK = 1, 2


def frames(journal: Path) -> list[tuple[int, int, int]]:
    """(type, offset, payload bytes) of each frame."""
    raw, offset, found = journal.read_bytes(), 8192, []
    while offset + 8 <= len(raw) and raw[offset : offset + 8].strip(b"\0"):
        (word,) = struct.unpack_from(">I", raw, offset)
        found.append((word >> 28, offset, word & 0xFFFFFFF))
        offset += 8 + (word & 0xFFFFFFF)
    return found


def damage_frame(root: Path, which: int, name: str = "orders", count: int = 1) -> int:
    """Zero a byte of some RECORDS frames of the newest journal; the bytes that they take."""
    journals = queue_directory(root, name).glob("journal.*")
    journal = max(journals, key=lambda path: path.read_bytes()[32:40])
    raw = bytearray(journal.read_bytes())
    records = [frame for frame in frames(journal) if frame[0] == RECORDS]
    for _, offset, length in records[which : which + count]:
        raw[offset + 8 + length // 2] ^= 0xFF
    journal.write_bytes(raw)
    return sum(8 + length for _, _, length in records[which : which + count])


def found(root: Path) -> list[qindex.Finding]:
    with qindex.open(root, read_only=True) as store:
        store.check()
        return [each for each in store.findings if each.severity == "damage"]


def run(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """17 messages, then three in one batch, then 20; each part is durable."""
    path = tmp_path / "data"
    store = qindex.open(path, idle=3600)
    queue = store.queue("orders")
    for part in (17, 3, 1, 19):
        queue.publish_many([b"x" * 50] * part)
        store.sync()
    crash(store)
    return path


def test_a_damaged_batch_is_told_with_its_messages_and_its_queue(root: Path) -> None:
    size = damage_frame(root, 1)
    [finding] = found(root)
    assert f"({size} bytes)" in finding.text
    assert "messages 17 to 19 (3) are lost" in finding.text
    assert (finding.queue, finding.lost) == ("orders", 3)
    assert "queue orders, journal.jif at byte" in str(finding)


def test_a_single_message_is_named(root: Path) -> None:
    damage_frame(root, 2)
    [finding] = found(root)
    assert ": message 20 is lost;" in finding.text
    assert finding.lost == 1


def test_check_salvage_and_their_json_count_them(root: Path, tmp_path: Path) -> None:
    damage_frame(root, 1)
    code, out, _ = run("check", root)
    assert code == 1
    assert "queue orders, journal.jif at byte" in out
    assert "messages 17 to 19 (3) are lost" in out
    code, out, _ = run("check", root, "--json")
    [told] = [each for each in json.loads(out)["findings"] if each["severity"] == "damage"]
    assert (told["queue"], told["lost"]) == ("orders", 3)
    code, out, err = run("salvage", root, "--out", tmp_path / "new", "--json")
    assert code == 1
    assert "queue orders, journal.jif at byte" in err
    assert "messages 17 to 19 (3) are lost" in err
    [queue] = json.loads(out)["queues"]
    assert (queue["messages"], queue["damaged"]) == (37, 3)


def test_the_count_is_an_upper_bound_where_nothing_tells_of_what_came_behind(
    tmp_path: Path,
) -> None:
    store = qindex.open(tmp_path / "data", idle=3600)
    for count in (5, 4):
        store.queue("orders").publish_many([b"x" * 50] * count)
        store.sync()
    store.queue("orders").get()
    store.sync()
    crash(store)
    size = damage_frame(tmp_path / "data", 1)
    [finding] = found(tmp_path / "data")
    assert f"at most {(size - 8) // 40} messages are lost" in finding.text
    assert finding.lost == 0


def test_a_torn_tail_says_how_many_it_can_have_held(tmp_path: Path) -> None:
    store = qindex.open(tmp_path / "data", idle=3600, sync="never")
    for part in (5, 4):
        store.queue("orders").publish_many([b"x" * 50] * part)
    crash(store)
    size = damage_frame(tmp_path / "data", 1)
    with qindex.open(tmp_path / "data", read_only=True) as store:
        store.check()
        [note] = store.findings
    assert note.severity == "note"
    assert f"(at most {(size - 8) // 40} messages)" in note.text


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_damaged_what_is_told_is_true(tmp_path: Path, seed: int) -> None:
    """As many as are told are lost at least, and at most so many more as are told."""
    dice = random.Random(seed)
    store = qindex.open(tmp_path / "data", idle=3600, sync="never")
    queue = store.queue("orders")
    for _ in range(dice.randrange(10, 60)):
        match dice.randrange(8):
            case 0 | 1:
                queue.publish_many([b"x" * dice.randrange(90)] * dice.randrange(1, 9))
            case 2:
                queue.publish(b"x" * dice.randrange(90), priority=dice.randrange(3))
            case 3:
                queue.ack_many(queue.get_many(dice.randrange(1, 5)))
            case 4:
                queue.get()
            case 5 if dice.random() < 0.2:
                queue.flush()
            case 6 if dice.random() < 0.2:
                crash(store) if dice.random() < 0.5 else store.close()
                store = qindex.open(tmp_path / "data", idle=3600, sync="never")
                queue = store.queue("orders")
            case 7 if dice.random() < 0.1:
                queue.purge()
            case _:
                store.sync()
    store.sync()
    queue.get()
    store.sync()
    crash(store)
    with qindex.open(tmp_path / "data", read_only=True) as store:
        wanted = {message.req_id for message in store.queue("orders").browse()}
    for _ in range(dice.randrange(1, 4)):
        damage_frame(tmp_path / "data", dice.randrange(20), count=dice.randrange(1, 4))
    findings = found(tmp_path / "data")
    with qindex.open(tmp_path / "data", read_only=True) as store:
        left = {message.req_id for message in store.queue("orders").browse()}
    told = sum(finding.lost for finding in findings)
    more = sum(int(n) for each in findings for n in re.findall(r"at most (\d+)", each.text))
    lost = len(wanted - left)
    unsure = any("or acked there" in finding.text for finding in findings)
    assert told <= lost or unsure, findings
    assert lost <= told + more, findings


def test_a_close_tells_what_was_published_in_front_of_it(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "data", idle=3600) as store:
        store.queue("orders").publish_many([b"x" * 50] * 5)
        store.sync()
        store.queue("orders").publish_many([b"x" * 50] * 2, priority=3)
        store.queue("orders").publish_many([b"x" * 50] * 2)
    damage_frame(tmp_path / "data", 1, count=2)
    [finding] = found(tmp_path / "data")
    lane = 3 << 52
    assert f"5 to 6 (2), {lane} to {lane + 1} (2)" in finding.text.replace("messages ", "") or (
        f"{lane} to {lane + 1} (2), 5 to 6 (2) are lost" in finding.text
    )
    assert finding.lost == 4


def test_what_was_acked_later_is_not_lost(root: Path) -> None:
    with qindex.open(root, idle=3600) as store:
        store.queue("orders").ack_many(store.queue("orders").get_many(19))
        store.sync()
        store.queue("orders").publish(b"behind")
    damage_frame(root, 1)
    [finding] = [each for each in found(root) if "among durable" in each.text]
    assert "2 were acked later, 1 is lost" in finding.text
    assert finding.lost == 1


def test_what_a_purge_took_is_not_lost(root: Path) -> None:
    with qindex.open(root, idle=3600) as store:
        store.queue("orders").purge()
        store.sync()
    damage_frame(root, 1)
    [finding] = found(root)
    assert "3 were acked later, 0 are lost" in finding.text
    assert finding.lost == 0


def test_an_unclean_end_is_not_counted_as_lost_messages(root: Path) -> None:
    """ReqIds are skipped when a session begins behind one."""
    with qindex.open(root, idle=3600) as store:
        store.queue("orders").publish(b"far above")
        store.sync()
        store.queue("orders").publish(b"and one")
        store.sync()
        store.queue("orders").publish(b"and one")
    size = damage_frame(root, 3)
    [finding] = found(root)
    assert f"at most {(size - 8) // 40} messages are lost" in finding.text
    damage_frame(root, 3)  # whole again
    damage_frame(root, 5)
    [finding] = found(root)
    assert ": message " in finding.text
    assert finding.lost == 1


def test_behind_a_flush_the_segments_give_the_bound(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "data", idle=3600) as store:
        queue = store.queue("orders")
        queue.publish_many([b"x" * 50] * 5)
        queue.flush()
        queue.publish_many([b"x" * 500] * 3)
        store.sync()
        queue.publish(b"behind")
    damage_frame(tmp_path / "data", 0)
    [finding] = found(tmp_path / "data")
    assert "at most 3 messages are lost" in finding.text


def test_acks_that_are_lost_are_no_lost_messages(root: Path) -> None:
    with qindex.open(root, idle=3600) as store:
        queue = store.queue("orders")
        queue.ack_many(queue.get_many(2))
        store.sync()
        queue.publish(b"behind")
    for which in (4, 5):
        damage_frame(root, which)
    assert all(finding.lost == 0 for finding in found(root))


def test_a_queue_name_in_findings_is_one_that_is_open_or_not(root: Path) -> None:
    with qindex.open(root) as store:
        store.queue("17 fine ones").publish(b"1")
    damage_frame(root, 1)
    with qindex.open(root, read_only=True) as store:
        store.check()
        assert {finding.queue for finding in store.findings} == {"orders"}


def test_a_store_that_the_engine_refuses_is_counted_too(root: Path, tmp_path: Path) -> None:
    damage_frame(root, 1)
    (root / "store.meta").unlink()
    code, out, err = run("salvage", root, "--out", tmp_path / "new", "--json")
    assert code == 1
    assert "3 messages of 17 to 19 are lost" in err
    [queue] = json.loads(out)["queues"]
    assert (queue["messages"], queue["damaged"]) == (37, 4)
