"""Files of quorum queues that no broker writes: reading them ends in time and in findings."""

from __future__ import annotations

import random
import resource
import struct
import time
import zlib
from pathlib import Path

import pytest
from fuzz_formats import KINDS, Target, mutate
from ra_files import Wal, put, segment, snapshot_folder, term

from qindex.brokers.rabbitmq.directory import Node, open_at
from qindex.brokers.rabbitmq.erlang import Atom, ErlangError
from qindex.brokers.rabbitmq.quorum.state import StateError, read_state

CORPUS = Path(__file__).parent / "corpus" / "formats"
Q = "2F_QUEUE0000"
SYSTEM = "quorum/a@b"
MUTATED = [kind for kind in KINDS if kind.startswith(("ra_", "khepri_", "coordinator_", "stream"))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MUTATED)
@pytest.mark.sample(6)
def test_mutated_files_end_in_findings(tmp_path: Path, kind: str) -> None:
    """No exception, no wrong account, no more than a second each."""
    target = Target(CORPUS, tmp_path)
    seeds = [file.read_bytes() for kind in MUTATED for file in sorted(CORPUS.glob(f"{kind}-*"))]
    own = [seed for seed in seeds if KINDS[seed[0]] == kind]
    dice = random.Random(kind)
    for _ in range(60):
        data = mutate(dice.choice(own), dice.choice(seeds), dice)
        target.one(bytes([own[0][0]]) + data[1:])


def read(path: Path, files: dict[str, bytes]) -> tuple[Node, float, int]:
    """The node, the seconds and the KiB that it took."""
    put(path, {"quorum/a@b/names.dets": b"", "quorum/a@b/meta.dets": b"", **files})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    with open_at(path) as node:
        for queue in node.queues:
            assert sum(1 for _ in queue.messages()) + queue.unreadable == queue.account.live
            assert queue.account.adds_up
    took = time.process_time() - begin
    return node, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def sealed(state: bytes) -> bytes:
    meta = term({Atom("index"): 9, Atom("term"): 1, Atom("cluster"): [],
                 Atom("machine_version"): 7})  # fmt: skip
    rest = struct.pack(">I", len(meta)) + meta + state
    return b"RASN\x01" + struct.pack(">I", zlib.crc32(rest)) + rest


@pytest.mark.parametrize(
    "state",
    [
        b"\x83i\xff\xff\xff\xff",  # a tuple of four thousand million
        b"\x83l\xff\xff\xff\xff" + b"a\1" * 1000,
        b"\x83" + b"h\1" * 300_000 + b"a\1",  # deep
        b"\x83" + b"l\0\0\0\1" * 100_000 + b"j" * 100_001,
        b"\x83P" + struct.pack(">I", 1 << 31) + zlib.compress(bytes(1 << 20)),
        term((Atom("rabbit_fifo"),) + (1,) * 17),
        term((Atom("rabbit_fifo"),) + ({},) * 17),
        b"",
    ],
)
def test_a_state_that_is_none_is_an_error_and_a_finding(tmp_path: Path, state: bytes) -> None:
    with pytest.raises((StateError, ErlangError)):
        read_state(state, 7)
    folder = f"{SYSTEM}/{Q}/snapshots/{snapshot_folder(9, 1)}/snapshot.dat"
    node, seconds, kib = read(tmp_path, {folder: sealed(state), f"{SYSTEM}/1.wal": b""})
    assert any(finding.kind == "snapshot" for finding in node.findings)
    assert seconds < 2
    assert kib < 64 * 1024


def test_indexes_that_are_far_apart_cost_no_more_than_near_ones(tmp_path: Path) -> None:
    wal = Wal()
    for number in range(200):
        wal.add(Q, number << 39, term((Atom("noop"), {Atom("ts"): 1}, 2)))
    (tmp_path / SYSTEM / Q).mkdir(parents=True)
    node, seconds, kib = read(tmp_path, {f"{SYSTEM}/00000001.wal": wal.data})
    assert any(finding.severity == "damage" for finding in node.findings)
    assert seconds < 5
    assert kib < 128 * 1024


def test_a_settlement_of_very_many_deliveries_ends(tmp_path: Path) -> None:
    from ra_files import pid

    wal = Wal()
    key = (b"tag", pid(1))
    for index, command in enumerate(
        [
            (Atom("checkout"), key, (Atom("auto"), 1 << 40, Atom("simple_prefetch")), {}),
            (Atom("settle"), key, [1 << 60] * 50_000),
            (Atom("return"), key, [1 << 60, 5]),
            (Atom("credit"), key, 1 << 70, 1 << 80, Atom("true")),
        ]
    ):
        entry = (Atom("$usr"), {Atom("ts"): 1}, command, Atom("noreply"))
        wal.add(Q, 10 * (index + 1), term(entry))  # with holes: what follows is allowed for
    (tmp_path / SYSTEM / Q).mkdir(parents=True)
    _, seconds, kib = read(tmp_path, {f"{SYSTEM}/00000001.wal": wal.data})
    assert seconds < 2
    assert kib < 64 * 1024


def test_a_segment_whose_slots_claim_all_of_the_file_each_is_read_in_time(tmp_path: Path) -> None:
    data = segment([(n, 1, term(Atom("undefined"))) for n in range(4000)], slots=4096)
    start = 8 + 4096 * 32
    slots = b"".join(struct.pack(">QQQII", n, 1, start, len(data) - start, 0) for n in range(4000))
    hostile = data[:8] + slots + data[8 + len(slots) :]
    _, seconds, kib = read(
        tmp_path,
        {f"{SYSTEM}/{Q}/00000001.segment": hostile, f"{SYSTEM}/00000001.wal": b"RAWA\x01"},
    )
    assert seconds < 5
    assert kib < 64 * 1024
