"""Directories that somebody made to deceive the reader, or that damage made so by chance.

What can be known is given; the rest is said. Nothing here may be silent, and nothing may cost more
than its bytes.
"""

from __future__ import annotations

import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from ra_files import (
    ImproperList,
    Wal,
    dets,
    flip,
    pid,
    put,
    segment,
    snapshot,
    snapshot_folder,
    term,
)
from stream_files import HEADER, batch, chunk, entry, file_name, message

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.erlang import Atom

UID, OTHER = "2F_QUEUE0000", "2F_QUEUE1111"
SYSTEM = "quorum/a@b"
STREAM = "stream/__orders_1700000000000000000"
NOTHING = Atom("undefined")
Rows = list[tuple[int, int, bytes]]


def config(uid: str = UID) -> bytes:
    machine = b'#{queue_resource => {resource,<<"/">>,queue,<<"q">>}}'
    told = b"#{id => {'%2F_q','a@b'},uid => <<\"" + uid.encode() + b'">>,machine => '
    return told + b"{module,rabbit_fifo," + machine + b"}}.\n"


def user(*command: Any) -> bytes:
    return term((Atom("$usr"), {Atom("ts"): 1_790_000_000_000}, command, Atom("noreply")))


def noop(version: int) -> bytes:
    return term((Atom("noop"), {Atom("ts"): 1_790_000_000_000}, version))


def publish(number: int, body: bytes) -> bytes:
    protocol = Atom("rabbit_framing_amqp_0_9_1")
    content = (Atom("content"), 60, Atom("none"), b"\x10\0\2", protocol, [body])
    exchange = (Atom("resource"), b"/", Atom("exchange"), b"")
    told = (Atom("basic_message"), exchange, [b"q"], content, b"", Atom("true"))
    return user(Atom("enqueue"), pid(10), number, told)


def entries(count: int, version: int = 2, mark: bytes = b"m") -> list[bytes]:
    """A term's first entry, the queue's settings, and publishes of m1, m2 ...: entry 3 and on."""
    name = (Atom("resource"), b"/", Atom("queue"), b"q")
    told = {Atom("dead_letter_handler"): NOTHING, Atom("queue_resource"): name}
    publishes = [publish(n, mark + b"%d" % n) for n in range(1, count + 1)]
    return [noop(version), user(Atom("update_config"), told), *publishes]


def rows(data: list[bytes], number: int = 1, first: int = 1) -> Rows:
    return [(index, number, each) for index, each in enumerate(data, first)]


def wal(some: Rows, uid: str = UID, into: Wal | None = None) -> Wal:
    into = into or Wal()
    for index, number, data in some:
        into.add(uid, index, data, number)
    return into


def state(messages: list[Any]) -> Any:
    """Of version 2, with messages that wait."""
    empty = (0, [], [])
    cfg = (
        *(Atom("cfg"), Atom("q"), (Atom("resource"), b"/", Atom("queue"), b"q"), 0, NOTHING),
        *(NOTHING, Atom("drop_head"), NOTHING, NOTHING, Atom("competing"), *[NOTHING] * 3, [], []),
    )
    line = (len(messages), [], messages)
    letters = (Atom("rabbit_fifo_dlx"), NOTHING, empty, empty, 0, 0)
    queue = (Atom("queue"), [], [], 0)
    return (
        *(Atom("rabbit_fifo"), cfg, line, 0, empty, 0, {}, empty, empty, {}, queue, letters),
        *(0, 0, [], NOTHING, {}, []),
    )


def tables_of(*uids: str, system: str = SYSTEM) -> dict[str, bytes]:
    """What Ra notes beside its logs: names are left to `config`."""
    notes = dets([(uid.encode(), 1, NOTHING, 1) for uid in uids])
    return {f"{system}/names.dets": dets([]), f"{system}/meta.dets": notes}


class Read:
    """All that is read of a directory with one queue, and said about it."""

    def __init__(
        self, path: Path, files: dict[str, bytes], member: dict[str, bytes] | None = None
    ) -> None:
        tables = tables_of(UID, OTHER)
        tables = tables if any(name.startswith(SYSTEM) for name in files) else {}
        put(path / "node", {**tables, **files})
        others = [put(path / "other", {**tables, **member})] if member else []
        begin = time.process_time()
        with open_at(path / "node", others) as node:
            self.bodies = {queue.name: [m.body for m in queue.messages()] for queue in node.queues}
            self.lost = sum(sum(queue.account.lost.values()) for queue in node.queues)
            self.unreadable = sum(queue.unreadable for queue in node.queues)
            self.live = sum(queue.account.live for queue in node.queues)
            assert all(queue.account.adds_up for queue in node.queues)
            self.said = [str(each) for each in node.findings if each.severity != "note"]
        assert time.process_time() - begin < 3

    def says(self, text: str) -> bool:
        return any(text in each for each in self.said)


def in_log(*numbers: int) -> list[bytes]:
    return [b"m%d" % number for number in numbers]


M20 = in_log(*range(1, 21))
CONFIG = {f"{SYSTEM}/{UID}/config": config()}
LOG = f"{SYSTEM}/00000001.wal"


def test_the_newer_term_of_a_shorter_log_wins_over_a_longer_one(tmp_path: Path) -> None:
    newer = rows(entries(13)) + rows([noop(2), publish(14, b"new")], 2, 16)
    other = {LOG: wal(newer, OTHER).data, f"{SYSTEM}/{OTHER}/config": config(OTHER)}
    read = Read(tmp_path, {**CONFIG, LOG: wal(rows(entries(20))).data}, other)
    assert read.bodies == {"q": [*in_log(*range(1, 14)), b"new"]}


@pytest.mark.parametrize("knows", [False, True])
def test_a_queue_of_another_cluster_with_the_same_name_is_not_taken_for_a_member(
    tmp_path: Path, knows: bool
) -> None:
    def of(node: str, *nodes: str) -> bytes:
        known = ",".join(f"{{'%2F_q','{each}'}}" for each in nodes).encode()
        told = config().replace(b"'a@b'", f"'{node}'".encode())
        return told.replace(b",uid =>", b",initial_members => [" + known + b"],uid =>")

    system = "quorum/c@d"
    other = {
        f"{system}/{UID}/config": of("c@d", "c@d", *(["a@b"] if knows else [])),
        f"{system}/00000001.wal": wal(rows(entries(3, mark=b"other"))).data,
        **tables_of(UID, system=system),
    }
    mine = {f"{SYSTEM}/{UID}/config": of("a@b", "a@b"), LOG: wal(rows(entries(20))).data}
    read = Read(tmp_path, mine, other)
    assert read.bodies == {"q": M20}
    told = "its 3 messages that would be live are left out"
    assert read.says(told) == (not knows)


def test_a_segment_that_is_cut_costs_what_no_other_file_has(tmp_path: Path) -> None:
    every = rows(entries(20))
    cut = {f"{SYSTEM}/{UID}/00000001.segment": segment(every[:16])[:-60], **CONFIG}
    copied = Read(tmp_path / "1", {**cut, LOG: wal(every[15:]).data})
    assert (copied.bodies["q"], copied.lost) == (M20, 0)
    assert copied.says("its data is not in the file")
    alone = Read(tmp_path / "2", {**cut, LOG: wal(every[16:]).data})
    assert (alone.bodies["q"], alone.lost) == ([*in_log(*range(1, 14)), *in_log(*range(15, 21))], 1)


@pytest.mark.parametrize("has_log", [True, False])
def test_a_snapshot_that_is_newer_than_the_log_has_messages_without_bodies(
    tmp_path: Path, has_log: bool
) -> None:
    waits = [ImproperList([30], 5), ImproperList([31], 5)]
    place = f"{SYSTEM}/{UID}/snapshots/{snapshot_folder(50, 3)}/snapshot.dat"
    log = wal(rows(entries(20))).data if has_log else b"RAWA\x01"
    read = Read(tmp_path, {**CONFIG, place: snapshot(50, 3, state(waits)), LOG: log})
    assert (read.bodies["q"], read.live, read.lost) == ([], 0, 2)


def test_a_damaged_checkpoint_gives_way_to_the_snapshot_below(tmp_path: Path) -> None:
    waits = [ImproperList([index], 5) for index in (3, 4, 5)]
    places = [
        f"{SYSTEM}/{UID}/{kind}/{snapshot_folder(index, 1)}/snapshot.dat"
        for kind, index in (("snapshots", 5), ("checkpoints", 10))
    ]
    files = {places[0]: snapshot(5, 1, state(waits)), places[1]: flip(snapshot(10, 1, ()), -3)}
    read = Read(tmp_path, {**CONFIG, **files, LOG: wal(rows(entries(20))).data})
    assert read.bodies["q"][:3] == in_log(1, 2, 3)
    assert read.says("the checksum does not match")


def test_a_table_that_names_another_queue_does_not_rename_it(tmp_path: Path) -> None:
    table = dets([(Atom("%2F_other"), UID.encode())])
    files = {f"{SYSTEM}/names.dets": table, f"{SYSTEM}/{UID}/x": b""}
    read = Read(tmp_path, {**files, LOG: wal(rows(entries(20))).data})
    assert read.bodies == {"q": M20}


@pytest.mark.parametrize("version", [9, 1 << 70])
def test_an_unknown_machine_is_read_as_the_last_known_one_and_said(
    tmp_path: Path, version: int
) -> None:
    data = [*entries(20, version), user(Atom("frobnicate"), 1)]
    read = Read(tmp_path, {**CONFIG, LOG: wal(rows(data)).data})
    assert read.bodies["q"] == M20
    assert read.says(f"version {version} of the queue's state machine is not known")
    assert read.says("frobnicate (1)")


@pytest.mark.parametrize("told", [(1 << 32) - 1, 100 << 20])
def test_a_term_that_unpacks_into_too_much_costs_its_entry(tmp_path: Path, told: int) -> None:
    body = b"m" + struct.pack(">I", (100 << 20) - 5) + bytes((100 << 20) - 5)
    bomb = b"\x83P" + struct.pack(">I", told) + zlib.compress(body, 1)
    data = [*entries(3), bomb, publish(4, b"behind")]
    read = Read(tmp_path, {**CONFIG, LOG: wal(rows(data)).data})
    assert (read.bodies["q"], read.lost) == ([*in_log(1, 2, 3), b"behind"], 1)
    assert read.says(f"compressed term of {told} bytes")


def test_a_second_log_file_with_a_newer_term_takes_the_place_of_the_first(tmp_path: Path) -> None:
    again = rows([noop(2), publish(8, b"new8"), publish(9, b"new9")], 2, 10)
    files = {LOG: wal(rows(entries(20))).data, f"{SYSTEM}/00000002.wal": wal(again).data}
    read = Read(tmp_path, {**CONFIG, **files})
    assert read.bodies["q"] == [*in_log(*range(1, 8)), b"new8", b"new9"]


def test_of_one_index_in_two_files_the_newer_term_counts_and_what_was_behind_it_does_not(
    tmp_path: Path,
) -> None:
    """A leader's entries that got no majority: the next leader writes others in their place."""
    newer = [(index, 2, publish(index - 2, b"new%d" % index)) for index in range(11, 16)]
    files = {
        f"{SYSTEM}/{UID}/00000001.segment": segment(rows(entries(20)), slots=32),
        LOG: wal(newer).data,
    }
    read = Read(tmp_path, {**CONFIG, **files})
    assert read.bodies == {"q": [*in_log(*range(1, 9)), *(b"new%d" % n for n in range(11, 16))]}
    assert read.said == []


def test_a_shared_log_of_an_older_term_than_the_segments_counts_as_in_a_node_and_is_said(
    tmp_path: Path,
) -> None:
    """No log goes back: one of both files is of another time."""
    newer = [(index, 2, publish(index - 2, b"new%d" % index)) for index in range(11, 16)]
    files = {
        f"{SYSTEM}/{UID}/00000001.segment": segment(newer),
        LOG: wal(rows(entries(20))).data,
    }
    read = Read(tmp_path, {**CONFIG, **files})
    assert read.bodies == {"q": M20}
    assert read.says("5 entries of a newer term than 1 are not taken")


def test_a_segment_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = put(tmp_path, {"outside": segment(rows(entries(20))[:16])}) / "outside"
    link = tmp_path / "node" / SYSTEM / UID / "00000001.segment"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    read = Read(tmp_path, {**CONFIG, LOG: wal(rows(entries(20))[16:]).data})
    assert read.bodies["q"] == in_log(*range(15, 21))
    assert read.said


def test_a_second_directory_with_messages_is_not_passed_over_silently(tmp_path: Path) -> None:
    both = wal(rows(entries(3, mark=b"x")), OTHER, wal(rows(entries(20))))
    read = Read(tmp_path, {**CONFIG, f"{SYSTEM}/{OTHER}/config": config(OTHER), LOG: both.data})
    assert read.bodies == {"q": M20}
    assert read.says("3 messages that would be live in this one, not")


@pytest.mark.parametrize("number", [1, 9])
@pytest.mark.parametrize("how", ["length", "head"])
def test_records_in_a_body_are_no_records_though_its_own_is_damaged(
    tmp_path: Path, how: str, number: int
) -> None:
    """A publisher can put there what it likes, with right checksums: entries to come, and terms."""
    forged = wal(rows([publish(1, b"first")]))  # the first record names its server
    forged.data = b""
    for index, body in ((9, b"FORGED7"), (10, b"FORGED8")):
        forged.add(UID, index, publish(index - 2, body), number)
    evil = publish(5, b"E" * 50 + forged.data + b"E" * 50)
    data = [*entries(4), evil, *(publish(n, b"m%d" % n) for n in range(6, 15))]
    log = wal(rows(data))
    at = log.places[6]
    length, head = log.data[: at + 7] + b"\x7f\xff\xff\xff", log.data[:at] + bytes(60)
    damaged = length + log.data[at + 11 :] if how == "length" else head + log.data[at + 60 :]
    read = Read(tmp_path, {**CONFIG, LOG: damaged})
    assert read.bodies["q"] == [*in_log(1, 2, 3, 4), *in_log(*range(6, 15))]
    assert read.lost == 1
    assert read.says("taken for bytes of a message")


# --- streams --------------------------------------------------------------------------------------


def some(first: int, count: int, **more: Any) -> bytes:
    return chunk(first, [entry(message(b"m%d" % n)) for n in range(first, first + count)], **more)


def read_stream(path: Path, *chunks: bytes, first: int = 0) -> Read:
    return Read(path, {f"{STREAM}/{file_name(first)}": HEADER + b"".join(chunks)})


def bodies(read: Read) -> list[bytes]:
    (found,) = read.bodies.values()
    return found


def test_a_gap_in_offsets_is_counted(tmp_path: Path) -> None:
    read = read_stream(tmp_path, some(0, 3), some(10, 2))
    assert (bodies(read), read.lost) == (in_log(0, 1, 2, 10, 11), 7)
    assert read.says("offsets 3 to 9 are missing")


def test_trailers_that_lie_cost_no_message(tmp_path: Path) -> None:
    trailers = [b"\0\xffw", b"\0\1w" + bytes(7), b"\7\1w" + bytes(8), b"\0" * 40]
    read = read_stream(tmp_path, *(some(n, 1, trailer=t) for n, t in enumerate(trailers)))
    assert (bodies(read), read.lost) == (in_log(0, 1, 2, 3), 0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (1, struct.pack(">H", 60_000)),
        (1, struct.pack(">H", 1)),
        (3, struct.pack(">I", 5)),
        (3, b"\xff\xff\xff\xff"),
        (7, b"\xff\xff\xff\xff"),
        (7, struct.pack(">I", 3)),
    ],
)
def test_a_batch_with_a_wrong_number_costs_no_other_chunk(
    tmp_path: Path, place: int, value: bytes
) -> None:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(entry(message(b"x")) * 3) + packer.flush()
    lying = bytearray(batch([message(b"x")] * 3, 1, packed))
    lying[place : place + len(value)] = value
    read = read_stream(tmp_path, chunk(0, [bytes(lying)], records=3), some(3, 2))
    assert bodies(read)[-2:] == in_log(3, 4)
    assert read.lost + read.unreadable >= 1
    assert len(read.said) > 1


@pytest.mark.slow
@pytest.mark.parametrize("told", [100, (1 << 30) + 4])
def test_a_batch_that_unpacks_into_a_gigabyte_is_not_unpacked(tmp_path: Path, told: int) -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(struct.pack(">I", 1 << 30))
    packed += b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024)) + packer.flush()
    bomb = struct.pack(">BHII", 0x80 | 1 << 4, 1, told, len(packed)) + packed
    read = read_stream(tmp_path, chunk(0, [bomb], records=1), some(1, 2))
    assert (bodies(read), read.lost) == (in_log(1, 2), 1)


def test_a_name_that_says_an_impossible_offset_loses_nothing(tmp_path: Path) -> None:
    first = (1 << 63) - 2
    told = chunk(first, [entry(message(b"m%d" % n)) for n in range(3)])
    read = read_stream(tmp_path, told, first=(1 << 64) - 5)
    assert bodies(read) == in_log(0, 1, 2)
    assert read.live == 3
    assert read.said
