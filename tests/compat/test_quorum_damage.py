"""Damage to quorum queues: what it costs, and that it is told. RabbitMQ 3.10.8's own behaviour
stands beside each, as it was tried on real nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ra_files import flip

from qindex.brokers.rabbitmq.directory import open_at

from .quorum_nodes import RealNode, quorum_queues, real_node, rows

Key = tuple[str, str]
Rows = dict[Key, list[list[Any]]]
ORDERS, BIG = ("/", "orders"), ("/", "big")


class Read:
    """What is read of a directory, and what is said about it."""

    def __init__(self, real: RealNode) -> None:
        with open_at(real.path) as node:
            queues = quorum_queues(node)
            self.rows: Rows = {key: rows(queue, real.at_ms) for key, queue in queues.items()}
            self.exact = {key: queue.outcome.exact for key, queue in queues.items()}
            self.maybe = {key: queue.outcome.maybe for key, queue in queues.items()}
            self.accounts = {key: queue.account for key, queue in queues.items()}
            self.findings = list(node.findings)
            self.unreadable = {key: queue.unreadable for key, queue in queues.items()}
        assert all(account.adds_up for account in self.accounts.values())

    @property
    def bodies(self) -> dict[Key, set[str]]:
        return {key: {row[0] for row in found} for key, found in self.rows.items()}

    @property
    def damage(self) -> list[str]:
        return [str(finding) for finding in self.findings if finding.severity != "note"]


def truth(real: RealNode) -> Rows:
    return {key: told for key, told in real.queues.items() if not key[1].startswith("rescued")}


def wal_of(real: RealNode) -> Path:
    (wal,) = real.path.glob("quorum/*/*.wal")
    return wal


def others_are_whole(read: Read, real: RealNode, *but: Key) -> None:
    for key, told in truth(real).items():
        if key not in but:
            assert read.rows[key] == told, key


# --- the shared log -------------------------------------------------------------------------------


def test_a_cut_inside_the_last_record_costs_that_one(q1: RealNode) -> None:
    """RabbitMQ: starts, one message is silently gone."""
    wal = wal_of(q1)
    wal.write_bytes(wal.read_bytes()[:-37])
    read = Read(q1)
    lost = {k: len(told) - len(read.rows[k]) for k, told in truth(q1).items()}
    assert sum(lost.values()) <= 1
    assert any("cut inside entry" in text for text in read.damage)


def test_a_flipped_bit_in_the_last_record_costs_nothing_but_certainty(q1: RealNode) -> None:
    """RabbitMQ: starts, the last record is silently dropped."""
    wal = wal_of(q1)
    wal.write_bytes(flip(wal.read_bytes(), -9))
    read = Read(q1)
    assert sum(map(len, read.rows.values())) >= sum(map(len, truth(q1).values())) - 1
    assert read.damage


@pytest.mark.parametrize("part", [0.1, 0.27, 0.5, 0.73, 0.9])
def test_a_flipped_bit_in_the_middle_costs_at_most_one_entry(q1: RealNode, part: float) -> None:
    """RabbitMQ: the node does not start, and all its quorum queues are gone with it."""
    wal = wal_of(q1)
    data = wal.read_bytes()
    wal.write_bytes(flip(data, int(len(data) * part)))
    read = Read(q1)
    assert read.damage
    changed = [key for key, told in truth(q1).items() if read.rows[key] != told]
    assert len(changed) <= 1
    for key in changed:
        missing = {row[0] for row in truth(q1)[key]} - read.bodies[key]
        assert len(missing) <= 1
        assert not read.exact[key]


def test_an_empty_shared_log_leaves_the_queues_without_entries(q1: RealNode) -> None:
    """RabbitMQ: the node does not start (case_clause eof)."""
    wal_of(q1).write_bytes(b"")
    read = Read(q1)
    assert set(read.rows) == set(truth(q1))
    assert read.damage


def test_without_the_shared_log_segments_and_snapshots_are_read(q2: RealNode) -> None:
    """RabbitMQ: the queues get no leader, every operation times out."""
    wal_of(q2).unlink()
    read = Read(q2)
    assert any("no write-ahead log" in text for text in read.damage)
    assert len(read.rows[BIG]) >= 500
    assert read.bodies["/", "slow"] <= {row[0] for row in truth(q2)["/", "slow"]}
    assert len(read.rows["/", "slow"]) > 500


@pytest.mark.parametrize("part", [0.01, 0.05, 0.333, 0.6, 0.95])
def test_entries_behind_a_page_of_zeros_are_found(q1: RealNode, part: float) -> None:
    """RabbitMQ: starts, and silently loses the rest: 14 of 49, 17 of 54, 12 of 25 left."""
    wal = wal_of(q1)
    data = wal.read_bytes()
    start = int(len(data) * part)
    wal.write_bytes(data[:start] + bytes(4096) + data[start + 4096 :])
    read = Read(q1)
    assert read.damage
    told = truth(q1)
    missing = sum(len({r[0] for r in told[key]} - read.bodies[key]) for key in told)
    assert missing <= 8
    assert sum(map(len, read.rows.values())) >= sum(map(len, told.values())) - 8


def test_the_record_that_names_a_queue_is_destroyed(q1: RealNode) -> None:
    """RabbitMQ: crashes with badmatch at the next record of that queue."""
    wal = wal_of(q1)
    data = wal.read_bytes()
    start = data.index(b"2F_ORDAYOJ9ICGOQWK") - 5
    end = data.index(b"\x40\x00", start + 20)
    wal.write_bytes(data[:start] + b"\xff" * (end - start) + data[end:])
    read = Read(q1)
    others_are_whole(read, q1, ORDERS)
    assert len(read.rows[ORDERS]) >= 98
    assert read.bodies[ORDERS] >= {row[0] for row in truth(q1)[ORDERS]}
    assert read.damage


# --- tables and configurations --------------------------------------------------------------------


def test_without_the_tables_of_names_and_terms_nothing_is_lost(q1: RealNode) -> None:
    """RabbitMQ: every queue gets a second, empty directory and no leader."""
    for table in q1.path.glob("quorum/*/*.dets"):
        table.unlink()
    read = Read(q1)
    others_are_whole(read, q1)
    assert [finding.kind for finding in read.findings] == ["missing", "missing", "no notes"]
    assert [finding.severity for finding in read.findings] == ["note", "note", "suspected"]


def test_a_second_empty_directory_of_a_queue_is_told(q1: RealNode) -> None:
    """What RabbitMQ leaves after it was started without these tables."""
    (orders,) = q1.path.glob("quorum/*/2F_ORD*")
    second = orders.with_name("2F_ORDZZZZZZZZZZZZ")
    second.mkdir()
    config = (orders / "config").read_bytes()
    (second / "config").write_bytes(config.replace(orders.name.encode(), second.name.encode()))
    read = Read(q1)
    others_are_whole(read, q1)
    assert any(finding.kind == "second directory" for finding in read.findings)


@pytest.mark.parametrize("size", [0, 100, 3000, 5464])
def test_a_table_that_is_cut_costs_nothing(q1: RealNode, size: int) -> None:
    for table in q1.path.glob("quorum/*/*.dets"):
        table.write_bytes(table.read_bytes()[:size])
    others_are_whole(Read(q1), q1)


@pytest.mark.parametrize("size", [700, None])
def test_a_configuration_that_is_torn_or_gone_costs_nothing(q1: RealNode, size: int | None) -> None:
    for config in q1.path.glob("quorum/*/*/config"):
        config.unlink() if size is None else config.write_bytes(config.read_bytes()[:size])
    read = Read(q1)
    others_are_whole(read, q1)
    assert len([text for text in read.damage if "config" in text]) == (7 if size else 0)


def test_a_copy_at_another_place_is_read(q1: RealNode) -> None:
    """RabbitMQ: every quorum queue fails, since its configuration has the old place."""
    others_are_whole(Read(q1), q1)
    assert all(
        str(q1.path) not in p.read_text("latin-1") for p in q1.path.glob("quorum/*/*/config")
    )


# --- segments -------------------------------------------------------------------------------------


def segments_of(real: RealNode, queue: str) -> list[Path]:
    return sorted(real.path.glob(f"quorum/*/{queue}*/*.segment"))


def test_a_flipped_bit_in_a_segment_costs_at_most_one_entry(q2: RealNode) -> None:
    """RabbitMQ: the queue crashes at its recovery and stays down."""
    segment = segments_of(q2, "2F_SLO")[0]
    segment.write_bytes(flip(segment.read_bytes(), -20_000))
    read = Read(q2)
    others_are_whole(read, q2, ("/", "slow"))
    told = {row[0] for row in truth(q2)["/", "slow"]}
    assert len(told - read.bodies["/", "slow"]) <= 1
    assert len(read.rows["/", "slow"]) >= 619
    assert any("checksum" in text for text in read.damage)


def places(data: bytes, step: int) -> Iterator[int]:
    yield from range(8, 8 + 32 * 600, step)


def test_slots_that_became_zeros_cost_nothing(q2: RealNode) -> None:
    segment = segments_of(q2, "2F_SLO")[0]
    data = segment.read_bytes()
    segment.write_bytes(data[: 8 + 3200] + bytes(4096) + data[8 + 3200 + 4096 :])
    read = Read(q2)
    others_are_whole(read, q2)
    assert any("no slots" in text for text in read.damage)


@pytest.mark.slow
def test_a_segment_s_header_with_any_flipped_bit_costs_nothing(q2: RealNode) -> None:
    segment = segments_of(q2, "2F_SLO")[0]
    data = segment.read_bytes()
    for place in range(8):
        for bit in (0, 5):
            segment.write_bytes(flip(data, place, bit))
            read = Read(q2)
            assert read.rows["/", "slow"] == truth(q2)["/", "slow"], (place, bit)
            assert read.damage, (place, bit)


def test_a_segment_that_is_gone_is_told_and_its_queue_is_an_upper_bound(q2: RealNode) -> None:
    segments = segments_of(q2, "2F_BIG")
    segments[-3].unlink()
    read = Read(q2)
    others_are_whole(read, q2, BIG)
    assert not read.exact[BIG]
    assert any("entries of the log are missing" in text for text in read.damage)
    assert read.rows[BIG]


# --- snapshots ------------------------------------------------------------------------------------


def snapshot_of(real: RealNode) -> Path:
    (snapshot,) = real.path.glob("quorum/*/2F_BIG*/snapshots/*/snapshot.dat")
    return snapshot


@pytest.mark.slow
def test_a_snapshot_with_a_flipped_bit_is_still_used_and_told(q2: RealNode) -> None:
    """RabbitMQ: deletes the snapshot, then refuses the queue: corrupt_log."""
    snapshot = snapshot_of(q2)
    data = snapshot.read_bytes()
    worst = 0
    for part in range(5, 100, 5):
        snapshot.write_bytes(flip(data, len(data) * part // 100))
        read = Read(q2)
        others_are_whole(read, q2, BIG)
        assert not read.exact[BIG]
        assert any("checksum does not match" in text for text in read.damage)
        told = {row[0] for row in truth(q2)[BIG]}
        worst = max(worst, len(told - read.bodies[BIG]))
    assert worst <= 1


@pytest.mark.parametrize("how", ["gone", "empty", "cut"])
def test_without_a_snapshot_all_that_the_log_has_is_an_upper_bound(q2: RealNode, how: str) -> None:
    snapshot = snapshot_of(q2)
    data = snapshot.read_bytes()
    if how == "gone":
        shutil.rmtree(snapshot.parent.parent)
    else:
        snapshot.write_bytes(b"" if how == "empty" else data[: len(data) // 2])
    read = Read(q2)
    others_are_whole(read, q2, BIG)
    assert not read.exact[BIG]
    assert read.bodies[BIG] >= {row[0] for row in truth(q2)[BIG]}
    assert any("neither a snapshot nor the beginning" in text for text in read.damage)


# --- 4.2 and 4.3 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n42", "n43"])
def test_a_lost_checkpoint_or_snapshot_of_the_newer_formats(tmp_path: Path, name: str) -> None:
    """A checkpoint is no loss, since the log below it is still there; a snapshot is."""
    real = real_node(name, tmp_path)
    for folder in ("checkpoints", "snapshots"):
        for each in real.path.glob(f"quorum/*/*/{folder}"):
            shutil.rmtree(each)
    read = Read(real)
    for key, told in truth(real).items():
        assert read.bodies[key] >= {row[0] for row in told}
    if name == "n42":
        others_are_whole(read, real)
        assert read.damage == []
    else:
        assert read.damage


@pytest.mark.slow
def test_every_thousandth_byte_of_the_shared_log_with_a_flipped_bit(q1: RealNode) -> None:
    """Never more than one message, and others only as far as is told; never without a word."""
    wal = wal_of(q1)
    data = wal.read_bytes()
    told = truth(q1)
    for place in range(997, len(data), len(data) // 60):
        wal.write_bytes(flip(data, place, place % 8))
        read = Read(q1)
        assert read.damage, place
        missing = {key: {r[0] for r in told[key]} - read.bodies[key] for key in told}
        changed = [key for key in told if read.rows[key] != told[key]]
        assert len(changed) <= 1, place
        for key in changed:
            assert not read.exact[key]
            assert len(missing[key]) <= 1 + read.maybe[key], (place, missing)
            assert len(read.rows[key]) >= len(told[key]) - 1


# --- found by damaging copies of each fixture in every way ----------------------------------------


def test_a_log_that_ends_before_what_the_node_had_applied_is_damaged(q1: RealNode) -> None:
    """A cut between two records looks like an earlier kill, but for what meta.dets notes."""
    wal = wal_of(q1)
    wal.write_bytes(wal.read_bytes()[:31437])
    read = Read(q1)
    assert not read.exact[ORDERS]
    assert any("the node had applied entry" in text for text in read.damage)


def test_a_config_of_another_server_is_not_used(q1: RealNode) -> None:
    one, other = (next(q1.path.glob(f"quorum/*/{uid}*/config")) for uid in ("2F_ORD", "VHN_T"))
    swapped = one.read_bytes(), other.read_bytes()
    other.write_bytes(swapped[0])
    one.write_bytes(swapped[1])
    read = Read(q1)
    others_are_whole(read, q1)
    assert len([text for text in read.damage if "that of another server" in text]) == 2


def test_the_entry_before_the_first_one_is_no_message(q1: RealNode) -> None:
    wal = wal_of(q1)
    wal.write_bytes(flip(wal.read_bytes(), 28))  # its checksum
    read = Read(q1)
    others_are_whole(read, q1)
    assert read.damage


@pytest.mark.parametrize("name", ["n42", "n43"])
def test_a_destroyed_name_of_a_server_with_a_checkpoint_behind_its_segments(
    tmp_path: Path, name: str
) -> None:
    real = real_node(name, tmp_path)
    wal = wal_of(real)
    wal.write_bytes(flip(wal.read_bytes(), 8))  # how long the name is
    read = Read(real)
    for key, told in truth(real).items():
        assert len({row[0] for row in told} - read.bodies[key]) <= 1
    assert read.damage


@pytest.mark.parametrize("name", ["n42", "n43"])
def test_a_damaged_entry_below_the_snapshot_is_found_without_reading_messages(
    tmp_path: Path, name: str
) -> None:
    """Its message is live all the same: from 4.0 on a snapshot leaves it in its segment."""
    real = real_node(name, tmp_path)
    (segment,) = real.path.glob("quorum/*/2F_AA*/*05.segment")
    data = segment.read_bytes()
    segment.write_bytes(data[:40000] + bytes(512) + data[40512:])
    with open_at(real.path) as node:
        account = quorum_queues(node)["/", "aa"].account
        assert any(finding.severity == "damage" for finding in node.findings)
        assert account.adds_up
        lost = account.lost.get("damaged", 0)
    read = Read(real)
    assert not read.unreadable["/", "aa"]
    assert len(read.rows["/", "aa"]) == len(real.queues["/", "aa"]) - lost
    assert 0 < lost + account.marks.get("doubtful", 0) < 9
