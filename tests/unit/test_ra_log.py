"""One server's log from segments and from the shared log: what counts, what is missing."""

from __future__ import annotations

import random
import zlib
from array import array
from pathlib import Path

from ra_files import Wal, dets, flip, put, segment, snapshot, snapshot_folder, term

from qindex.brokers.rabbitmq.erlang import Atom, decode
from qindex.brokers.rabbitmq.ra.log import Entry, _bad
from qindex.brokers.rabbitmq.ra.runs import Columns
from qindex.brokers.rabbitmq.ra.system import Server, System, open_system
from qindex.brokers.tree import Findings, Tree

Q = "2F_QAAAAAAAAAAAA"


def body(index: int, number: int = 1) -> bytes:
    return term((Atom("entry"), index, number))


def rows(indexes: range, number: int = 1) -> list[tuple[int, int, bytes]]:
    return [(index, number, body(index, number)) for index in indexes]


def wal(*entries: tuple[int, int, bytes]) -> bytes:
    file = Wal()
    for index, number, data in entries:
        file.add(Q, index, data, number)
    return file.data


def opened(path: Path, files: dict[str, bytes]) -> tuple[System, Server]:
    findings = Findings()
    (path / Q).mkdir(exist_ok=True)
    system = open_system(Tree(put(path, files), findings), "", findings)
    return system, system.servers[Q]


def told(entries: list[Entry]) -> list[tuple[int, int]]:
    """(index, term) of each, from the data itself."""
    found = []
    for entry in entries:
        match decode(entry.data):
            case (_, int(index), int(number)):
                assert (entry.index, entry.term) == (index, number)
                found.append((index, number))
    return found


def pairs(indexes: range, number: int = 1) -> list[tuple[int, int]]:
    return [(index, number) for index in indexes]


def test_segments_and_the_shared_log_are_one_log(tmp_path: Path) -> None:
    files = {
        f"{Q}/00000001.segment": segment(rows(range(16))),
        f"{Q}/00000002.segment": segment(rows(range(16, 20)), version=1),
        "00000003.wal": wal(*rows(range(18, 25))),
    }
    system, server = opened(tmp_path, files)
    assert told(list(server.log.entries())) == pairs(range(25))
    assert told(list(server.log.entries(17))) == pairs(range(17, 25))
    assert server.log.holes(0) == []
    assert [finding.kind for finding in system.findings.kept] == ["missing", "missing"]  # *.dets


def test_another_leader_voids_what_stands_above(tmp_path: Path) -> None:
    files = {
        f"{Q}/00000001.segment": segment(rows(range(10))),
        "00000001.wal": wal(*rows(range(10, 20)), *rows(range(15, 17), 2)),
        "00000002.wal": wal(*rows(range(8, 12), 3)),
    }
    _, server = opened(tmp_path, files)
    assert told(list(server.log.entries())) == [*pairs(range(8)), *pairs(range(8, 12), 3)]
    assert server.log.last_term == 3
    assert server.log.voided == 5 + 9


def test_the_same_entry_again_voids_nothing(tmp_path: Path) -> None:
    """The shared log lost its end, which a segment has."""
    files = {
        f"{Q}/00000001.segment": segment(rows(range(16))),
        "00000001.wal": wal(*rows(range(5, 9))),
    }
    _, server = opened(tmp_path, files)
    assert told(list(server.log.entries())) == pairs(range(16))
    assert server.log.voided == 0


def test_what_no_file_has_is_a_hole(tmp_path: Path) -> None:
    files = {
        f"{Q}/00000001.segment": segment(rows(range(2, 5))),
        "00000001.wal": wal(*rows(range(8, 10)), *rows(range(11, 12))),
    }
    _, server = opened(tmp_path, files)
    assert server.log.holes(0) == [(0, 1), (5, 7), (10, 10)]
    assert server.log.holes(3, 9) == [(5, 7)]
    assert server.log.holes(9, 14) == [(10, 10), (12, 14)]
    assert told(list(server.log.entries(4))) == [*pairs(range(4, 5)), (8, 1), (9, 1), (11, 1)]


def test_a_hole_of_the_shared_log_is_filled_from_a_segment(tmp_path: Path) -> None:
    files = {
        f"{Q}/00000001.segment": segment(rows(range(4, 6))),
        "00000001.wal": wal(*rows(range(2)), *rows(range(8, 10))),
        "00000002.wal": wal(*rows(range(2, 4)), *rows(range(6, 8))),
    }
    _, server = opened(tmp_path, files)
    assert told(list(server.log.entries())) == pairs(range(10))


def test_a_damaged_entry_of_a_segment_is_taken_from_the_shared_log(tmp_path: Path) -> None:
    data = segment(rows(range(10)))
    place = data.index(body(4)) + 3
    files = {f"{Q}/00000001.segment": flip(data, place), "00000001.wal": wal(*rows(range(3, 6)))}
    system, server = opened(tmp_path, files)
    assert told(list(server.log.entries())) == pairs(range(10))
    assert [f.severity for f in system.findings.kept if f.kind == "entry"] == ["damage"]


def test_a_damaged_entry_that_is_nowhere_else_is_marked(tmp_path: Path) -> None:
    data = segment(rows(range(10)))
    files = {f"{Q}/00000001.segment": flip(data, data.index(body(4)) + 3)}
    _, server = opened(tmp_path, files)
    assert [entry.index for entry in server.log.entries() if not entry.sound] == [4]


def test_slots_that_became_zeros_are_found_again_in_the_data(tmp_path: Path) -> None:
    data = segment(rows(range(16)))
    for first, last in ((0, 15), (0, 3), (4, 9), (12, 15), (15, 15)):
        start, end = 8 + 32 * first, 8 + 32 * (last + 1)
        damaged = data[:start] + bytes(end - start) + data[end:]
        following = segment(rows(range(16, 20)))
        files = {f"{Q}/00000001.segment": damaged, f"{Q}/00000002.segment": following}
        system, server = opened(tmp_path, files)
        assert [finding for finding in system.findings.kept if finding.kind == "segment"]
        if (first, last) != (0, 15):
            assert told(list(server.log.entries())) == pairs(range(20)), (first, last)
        else:
            assert server.log.holes(0) == [(0, 15)]


def test_every_flipped_bit_of_a_segment_costs_at_most_one_entry(tmp_path: Path) -> None:
    data = segment(rows(range(6)), slots=8)
    for place in range(len(data)):
        if 8 + 6 * 32 <= place < 8 + 8 * 32:
            continue  # slots that are not in use
        if 8 + 5 * 32 + 8 <= place < 8 + 5 * 32 + 16:
            continue  # the term of the last one: a new leader may have written it
        system, server = opened(tmp_path, {f"{Q}/00000001.segment": flip(data, place, 2)})
        whole = [entry for entry in server.log.entries() if entry.sound]
        assert len({entry.index for entry in whole} & set(range(6))) >= 5, place
        kinds = {finding.kind for finding in system.findings.kept} - {"missing"}
        assert kinds or server.log.holes(0, 5) or len(server.log) != 6, place
        system.tree.close()


def test_a_segment_that_is_cut_gives_what_is_whole(tmp_path: Path) -> None:
    data = segment(rows(range(10)))
    system, server = opened(tmp_path, {f"{Q}/00000001.segment": data[: -len(body(9)) - 1]})
    assert told(list(server.log.entries())) == pairs(range(8))
    assert "damage" in {finding.severity for finding in system.findings.kept}


def test_an_entry_of_the_sparse_log_of_ra_3_stands_alone(tmp_path: Path) -> None:
    sparse = [(index, 1, body(index)) for index in (3, 7, 9)]
    files = {
        f"{Q}/0000000000000001.segment": segment(sparse),
        "0000000000000001.wal": wal(*rows(range(20, 22))),
    }
    _, server = opened(tmp_path, files)
    assert told(list(server.log.entries())) == [(3, 1), (7, 1), (9, 1), (20, 1), (21, 1)]
    assert server.log.holes(20) == []
    assert server.log.entry(7) is not None
    assert server.log.entry(8) is None


def test_names_terms_and_snapshots_are_read(tmp_path: Path) -> None:
    config = b"#{id => {'%2F_b\\x{43E}',rabbit@host},uid => <<\"x\">>}."
    state = (Atom("state"), 1)
    other = (Atom("state"), 2)
    files = {
        "names.dets": dets([(Atom("%2F_b\u043e"), Q.encode())]),
        "meta.dets": dets([(Q.encode(), 5, Atom("undefined"), 77)]),
        f"{Q}/config": config,
        f"{Q}/snapshots/{snapshot_folder(10, 1)}/snapshot.dat": snapshot(10, 1, state),
        f"{Q}/checkpoints/{snapshot_folder(20, 1)}/snapshot.dat": snapshot(20, 1, other),
        f"{Q}/checkpoints/{snapshot_folder(30, 1)}/snapshot.dat": flip(snapshot(30, 1, other), -1),
        "00000001.wal": wal(*rows(range(21, 24))),
    }
    system, server = opened(tmp_path, files)
    assert (server.name, server.current_term, server.last_applied) == ("%2F_b\u043e", 5, 77)
    assert system.names == {"%2F_b\u043e": Q}
    assert [(each.index, each.sound) for each in server.snapshots] == [
        (20, True),
        (10, True),
        (30, False),
    ]
    assert decode(server.snapshots[0].state()) == other
    assert server.last_index == 30


def test_a_server_without_a_folder_is_told_by_the_log(tmp_path: Path) -> None:
    system, _ = opened(tmp_path, {"00000001.wal": wal(*rows(range(3)))})
    (tmp_path / Q).rmdir()
    findings = Findings()
    system = open_system(Tree(tmp_path, findings), "", findings)
    assert system.servers[Q].where == ""
    assert len(system.servers[Q].log) == 3


def test_a_lost_shared_log_is_damage(tmp_path: Path) -> None:
    system, _ = opened(tmp_path, {f"{Q}/00000001.segment": segment(rows(range(3)))})
    assert [f.where for f in system.findings.kept if f.severity == "damage"] == ["*.wal"]


def test_entries_are_held_to_their_checksums_at_whatever_place_they_stand() -> None:
    dice = random.Random(7)
    block = dice.randbytes(5000)
    base = 1 << 40
    places = [(start, size) for start in range(20) for size in range(70)]
    places += [(dice.randrange(5000), dice.randrange(5001)) for _ in range(300)]
    places += [(0, 5000), (5000, 0), (5001, 0), (-1, 3), (1 << 50, 1)]
    offsets = array("Q", [base + start for start, _ in places])
    sizes = array("I", [size for _, size in places])
    sums = [
        zlib.crc32(block[start : start + size]) if start >= 0 and start + size <= 5000 else 1
        for start, size in places
    ]
    broken = [n for n, told in enumerate(sums) if told == 1 or (told and n % 5 == 0)]
    for n in broken:
        sums[n] ^= 1 << n % 31 if sums[n] != 1 else 0
    columns = Columns(range(len(places)), offsets, sizes, sums)
    assert _bad(block, base, columns, sums) == broken
    assert _bad(block, base, columns, array("I", [0] * len(places))) == []
