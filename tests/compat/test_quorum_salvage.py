"""What deleted quorum queues left, a full disk, a segment without its last slots; audit rows."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack
from ra_files import Wal, dets, flip, term

import qindex
from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.erlang_files import dets_objects
from qindex.brokers.rabbitmq.orphan_queues import add_orphans
from qindex.brokers.rabbitmq.ra.wal import Record, WalFile
from qindex.brokers.tree import Findings, Tree
from qindex.cli.main import main
from qindex.spark.examine import Examination, Limits
from qindex.spark.examine_foreign import examine_node
from qindex.spark.plan import Unit

from .quorum_nodes import DATA, RealNode
from .test_quorum_damage import Read, segments_of, truth, wal_of

# --- deleted queues -------------------------------------------------------------------------------


def delete(real: RealNode, queue: str) -> None:
    """As RabbitMQ does it: the directory and the name go, the shared log keeps what it has."""
    for folder in real.path.glob(f"quorum/*/{queue}*"):
        shutil.rmtree(folder)
    for table in real.path.glob("quorum/*/names.dets"):
        with Tree(table.parent, Findings()).open(table.name) as source:
            names = list(dets_objects(source, Findings()))
        kept = [(name, uid) for name, uid in names if not uid.startswith(queue.encode())]
        assert len(kept) == len(names) - 1
        table.write_bytes(dets(kept))
    forget_definitions(real.path)


def forget_definitions(path: Path) -> None:
    for table in (*path.glob("rabbit_durable_queue.*"), path / "LATEST.LOG"):
        table.unlink()


def test_what_a_deleted_queue_had_is_offered_with_the_orphans(
    q1: RealNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delete(q1, "2F_ORD")
    assert main(["recover", str(q1.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "orders.deleted" not in {queue["queue"] for queue in found["queues"]}
    assert any("--orphans takes them" in each["text"] for each in found["findings"])
    into = tmp_path / "store"
    main(["recover", str(q1.path), "--orphans", "--out", str(into), "--keep-expired"])
    capsys.readouterr()
    with qindex.open(into, read_only=True, expire=False) as store:
        rows = list(store.queue("orders.deleted").browse())
    assert len(rows) == len(truth(q1)["/", "orders"])
    assert {row.headers["orphan"] for row in rows} == {"its queue was deleted"}


def test_a_queue_whose_log_ends_with_its_deletion_is_given_as_it_was(q1: RealNode) -> None:
    wal = wal_of(q1)
    records, data = read_wal(q1)
    uid = next(record.uid for record in records if record.uid.startswith(b"2F_ORD"))
    last = max(record.index for record in records if record.uid == uid)
    deletion = term((Atom("$ra_cluster"), {}, Atom("delete"), Atom("noreply")))
    wal.write_bytes(rewritten(records, data, [(uid, last + 1, records[-1].term, deletion)]))
    wanted = [row[0] for row in truth(q1)["/", "orders"]]
    with open_at(q1.path) as node:
        assert "orders" not in {queue.name for queue in node.queues}
    delete(q1, "2F_ORD")
    with open_at(q1.path) as node:
        add_orphans(node)
        (queue,) = (queue for queue in node.queues if queue.name == "orders.deleted")
        given = [hashlib.sha256(message.body).hexdigest()[:16] for message in queue.messages()]
        assert queue.account.adds_up
        assert queue.account.marks["orphans"] == len(given)
    assert given == wanted


# --- a full disk, a segment without its last slots ------------------------------------------------


def read_wal(real: RealNode) -> tuple[list[Record], bytes]:
    wal, findings = wal_of(real), Findings()
    with Tree(wal.parent, findings).open(wal.name) as source:
        return list(WalFile(source, findings).records()), wal.read_bytes()


def rewritten(
    records: list[Record], data: bytes, more: list[tuple[bytes, int, int, bytes]] | None = None
) -> bytes:
    wal = Wal()
    for uid, index, number, offset, size, *_ in records:
        wal.add(uid.decode(), index, data[offset : offset + size], number)
    for uid, index, number, entry in more or ():
        wal.add(uid.decode(), index, entry, number)
    return wal.data


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_full_disk_cuts_a_record_and_the_next_file_has_it_again(
    q1: RealNode, part: float
) -> None:
    """The writer died of a full disk, and what it had not confirmed was written anew later."""
    wal = wal_of(q1)
    records, data = read_wal(q1)
    at = int(len(records) * part)
    cut = records[at].offset + records[at].size // 2
    second = rewritten(records[at:], data)
    wal.write_bytes(data[:cut])
    wal.with_name(f"{int(wal.stem) + 1:08}.wal").write_bytes(second)
    read = Read(q1)
    assert read.rows == truth(q1)
    assert any("cut inside entry" in text for text in read.damage)


def test_a_full_disk_that_left_zeros_behind_the_last_record_costs_that_one(q1: RealNode) -> None:
    """The file had grown already, its last block was never written."""
    wal = wal_of(q1)
    records, data = read_wal(q1)
    last = records[-1]
    wal.write_bytes(data[: last.offset + 3].ljust(len(data) + 4096, b"\0"))
    read = Read(q1)
    lost = sum(len(told) - len(read.rows[key]) for key, told in truth(q1).items())
    assert abs(lost) <= 1
    assert read.damage


@pytest.mark.parametrize("slots", [1, 7])
def test_data_behind_the_last_slot_of_a_segment_is_read(q2: RealNode, slots: int) -> None:
    """Ra writes data first: a node that dies then leaves a segment longer than its slots say."""
    segment = segments_of(q2, "2F_SLO")[-1]
    data = segment.read_bytes()
    room = int.from_bytes(data[6:8], "big")
    used = next(n for n in range(room, 0, -1) if any(data[8 + 32 * (n - 1) : 8 + 32 * n]))
    assert used > slots
    first = 8 + 32 * (used - slots)
    segment.write_bytes(data[:first] + bytes(32 * slots) + data[8 + 32 * used :])
    read = Read(q2)
    assert read.rows == truth(q2)
    assert any("no slots" in text for text in read.damage)


def test_data_behind_the_last_slot_that_is_no_term_is_told(q2: RealNode) -> None:
    segment = segments_of(q2, "2F_SLO")[-1]
    segment.write_bytes(segment.read_bytes() + b"\x83h\x04w\x04$usr" + bytes(40))
    read = Read(q2)
    assert read.rows == truth(q2)
    assert any("data without a slot" in text for text in read.damage)


# --- audit ----------------------------------------------------------------------------------------


def examined(folder: Path) -> Examination:
    unit = Unit(str(folder), "broker", "rabbitmq", 0)
    examination = Examination(unit)
    examine_node(examination, Limits())
    return examination


def test_an_audit_names_the_stream_that_is_damaged_and_what_it_costs(tmp_path: Path) -> None:
    folder = unpack(DATA / "stream_osiris_1_10.tar.xz", tmp_path)
    whole = examined(folder)
    segment = sorted(folder.glob("**/*.segment"))[1]
    segment.write_bytes(flip(segment.read_bytes(), 5_000))
    found = examined(folder)
    (stream,) = found.queues
    assert stream["segments"] == 2
    assert stream["found"] == whole.queues[0]["found"]
    rows = [row for row in found.findings if row.get("queue") == stream["queue"]]
    bodies = [row for row in rows if row["kind"] == "damaged body"]
    assert bodies
    assert bodies[0]["file"].endswith(segment.name)
    uncertain = [row for row in rows if row["kind"] == "suspected"]
    lost = [row for row in rows if row["kind"] == "lost"]
    assert sum(row["count"] for row in [*uncertain, *lost]) > 0
    assert not [row for row in whole.findings if row["kind"] in ("damaged body", "suspected")]
    kinds = {row["file"].rpartition("/")[2]: row["kind"] for row in found.files}
    assert kinds[segment.name] == "segment"


def test_an_audit_has_a_row_for_a_quorum_queue_s_doubtful_messages(q1: RealNode) -> None:
    wal = wal_of(q1)
    wal.write_bytes(flip(wal.read_bytes(), -9))
    found = examined(q1.path)
    doubtful: list[dict[str, Any]] = [
        row for row in found.findings if row["kind"] == "suspected" and row.get("queue")
    ]
    assert {row["file"].rpartition("/")[2] for row in found.files if row["kind"] == "journal"} == {
        wal.name
    }
    assert sum(row["count"] for row in doubtful) >= 1
    assert all(row["segments"] is not None for row in found.queues if "(" not in row["queue"])


def test_a_doubtful_message_is_told_with_its_message_id(q1: RealNode) -> None:
    wal = wal_of(q1)
    wal.write_bytes(flip(wal.read_bytes(), 10554))
    texts = Read(q1).damage
    assert any("the checksum of entry 5 (message_id q1-7) does not match" in t for t in texts)
