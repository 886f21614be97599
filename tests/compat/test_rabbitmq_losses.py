"""Losses that leave no broken record behind are told; of a sound directory nothing is."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random

import pytest

import qindex
from qindex.brokers.rabbitmq.definitions import queue_folder
from qindex.brokers.rabbitmq.directory import open_node
from qindex.cli.main import main

from .rabbitmq_files import SLOTS, VHOST, Node, content, write_node, write_v1, write_v2
from .rabbitmq_sweep import read

Said = tuple[set[tuple[str, str]], list[str]]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return write_node(tmp_path / "node")


def folder_of(node: Path, queue: str) -> Path:
    return next(node.glob(f"**/{queue_folder(VHOST, queue.encode())}"))


def said(path: Path) -> Said:
    """((kind, severity) of all that makes the exit code 1, and the texts), with all bodies read."""
    with open_node(path) as node:
        for queue in node.queues:
            for _ in queue.messages():
                pass
        found = [finding for finding in node.findings if finding.severity != "note"]
    return {(finding.kind, finding.severity) for finding in found}, [f.text for f in found]


def test_a_sound_node_has_nothing_to_say(node: Path) -> None:
    assert said(node) == (set(), [])
    assert main(["recover", str(node)]) == 0


# --- whole records are missing ------------------------------------------------------------------


def test_a_segment_of_zeros_is_damage(node: Path) -> None:
    file = folder_of(node, "old") / "1.idx"
    file.write_bytes(bytes(file.stat().st_size))
    kinds, texts = said(node)
    assert ("zero tail", "damage") in kinds
    assert any(f"{file.stat().st_size:,} zero bytes at the end" in text for text in texts)
    assert main(["recover", str(node)]) == 1


@pytest.mark.parametrize("how", ["cut", "removed"])
def test_a_segment_that_is_cut_between_others_is_suspected(tmp_path: Path, how: str) -> None:
    node = Node(tmp_path / "node")
    write_v1(node, "q", 4 * SLOTS + 5, 0, 3)
    path = node.close()
    assert said(path) == (set(), [])
    file = folder_of(path, "q") / "1.idx"
    if how == "cut":
        file.write_bytes(b"")
    else:
        file.unlink()
    kinds, texts = said(path)
    empty = {("empty", "suspected")} if how == "cut" else set()
    assert kinds == {("gap", "suspected"), *empty}
    told = f"{SLOTS} messages from seq {SLOTS} on have no record, behind 64"
    assert any(text.startswith(told) for text in texts)
    assert main(["recover", str(path)]) == 1


@pytest.mark.parametrize("in_journal", [True, False])
def test_a_segment_without_a_byte_is_suspected_unless_the_journal_has_its_messages(
    tmp_path: Path, in_journal: bool
) -> None:
    """A node that is killed while it makes a segment still has the journal."""
    node = Node(tmp_path / "node")
    write_v1(node, "q", 5, 0, 5 if in_journal else 0)
    path = node.close()
    assert said(path) == (set(), [])
    file = folder_of(path, "q") / "0.idx"
    file.write_bytes(b"")
    kinds, texts = said(path)
    if in_journal:
        assert kinds == set()
        return
    assert kinds == {("empty", "suspected")}
    assert texts == [
        "0.idx is empty: a node writes messages when it makes it, and the journal has none of them"
    ]
    assert main(["recover", str(path)]) == 1


def test_acks_at_random_leave_no_suspicion(tmp_path: Path) -> None:
    """Nine of ten messages acked before they were written: gaps of up to a hundred by chance."""
    node = Node(tmp_path / "node")
    write_v1(node, "q", 3000, 0, 0)
    path = node.close()
    dice = Random(1)
    for file in folder_of(path, "q").glob("*.idx"):
        records = split(file.read_bytes())
        file.write_bytes(b"".join(record for record in records if dice.random() < 0.1))
    kinds, _ = said(path)
    assert kinds == set()


def test_a_consumer_that_holds_messages_while_others_go_on_is_a_note(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    write_v2(node, "q", 3 * SLOTS, 0)
    path = node.close()
    for number in (0, 1):
        file = folder_of(path, "q") / f"{number}.qi"
        data = bytearray(file.read_bytes())
        data[64 + 32 * 5 * (1 - number) : 64 + 32 * (64 - 14 * number)] = bytes(
            32 * (59 - 9 * number)
        )
        file.write_bytes(data)
    assert said(path) == (set(), [])
    with open_node(path) as opened:
        assert {f.kind for f in opened.findings} == {"gap", "bodies without entries"}


def split(data: bytes) -> list[bytes]:
    """The publishes of a segment, each with its delivery."""
    records, pos = [], 0
    while pos < len(data):
        end = pos + 36 + struct.unpack_from(">I", data, pos + 30)[0]
        records.append(data[pos:end])
        pos = end
    return records


def test_the_rest_of_a_segment_behind_a_restart_is_no_gap(tmp_path: Path) -> None:
    """A node that was killed begins the next segment when it starts again."""
    node = Node(tmp_path / "node")
    write_v1(node, "q", 4 * SLOTS, 0, 0)
    path = node.close()
    file = folder_of(path, "q") / "1.idx"
    slot = lambda record: struct.unpack_from(">H", record)[0] & 0x3FFF  # noqa: E731
    file.write_bytes(b"".join(r for r in split(file.read_bytes()) if slot(r) < 10))
    assert said(path)[0] == set()


def test_an_index_that_is_missing_beside_its_bodies_is_damage(node: Path) -> None:
    with open_node(node) as opened:
        (queue,) = (queue for queue in opened.queues if queue.name == "new")
        wanted = [m for m in queue.messages() if m.file.endswith("1.qs")]
    (folder_of(node, "new") / "1.qi").unlink()
    kinds, texts = said(node)
    assert ("missing", "damage") in kinds
    (text,) = (text for text in texts if "1.qi is not there" in text)
    stored = sum(len(content("new", seq).body) < 3000 for seq in range(SLOTS, 2 * SLOTS))
    assert f"{stored} bodies" in text
    assert "bytes) that no entry names" in text
    assert wanted
    assert main(["recover", str(node)]) == 1


@pytest.mark.parametrize("entries", [0, 20, 40])
def test_an_index_that_is_cut_at_an_entry_leaves_bodies_without_entries(
    node: Path, entries: int
) -> None:
    file = folder_of(node, "new") / "1.qi"
    file.write_bytes(file.read_bytes()[: 64 + 32 * entries])
    kinds, texts = said(node)
    assert ("bodies without entries", "suspected") in kinds
    bodies = sum(len(content("new", seq).body) < 3000 for seq in range(SLOTS + entries, 2 * SLOTS))
    acked = sum(len(content("new", seq).body) < 3000 for seq in range(SLOTS, 75))
    told = {0: bodies, 20: bodies, 40: bodies}[entries]
    assert acked <= told
    assert any(f"{told} bodies (" in text for text in texts)
    assert main(["recover", str(node)]) == 1


def test_a_page_of_zeros_in_an_index_is_suspected(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    write_v2(node, "q", 3 * SLOTS, 5)
    path = node.close()
    assert said(path)[0] == set()
    file = folder_of(path, "q") / "1.qi"
    data = file.read_bytes()
    file.write_bytes(data[:512] + bytes(1280) + data[1792:])  # 40 entries
    kinds, texts = said(path)
    assert ("gap", "suspected") in kinds
    assert texts[0].startswith("40 messages from seq 78 on have no record")


@pytest.mark.parametrize("bounds", [(2, 2.5), (3, 3.5), (2, 2 + 2**20), (130, 131)])
def test_a_header_whose_seqs_cannot_be_is_damage(node: Path, bounds: tuple[float, float]) -> None:
    file = folder_of(node, "new") / "2.qi"
    data = bytearray(file.read_bytes())
    struct.pack_into(">QQ", data, 5, *(int(bound * SLOTS) for bound in bounds))
    file.write_bytes(data)
    assert ("header", "damage") in said(node)[0]


def test_a_message_that_one_bit_calls_acked_is_suspected(node: Path) -> None:
    """The status of its entry; a real ack leaves zeros."""
    file = folder_of(node, "new") / "2.qi"
    data = bytearray(file.read_bytes())
    data[64 + 32 * 5] = 0
    file.write_bytes(data)
    assert said(node)[0] == {("half acked", "suspected")}


def test_a_journal_that_is_not_there_is_suspected(node: Path) -> None:
    (folder_of(node, "jif") / "journal.jif").unlink()
    assert ("missing", "suspected") in said(node)[0]


def test_acks_of_a_segment_that_is_not_there_are_suspected(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    write_v1(node, "q", 4 * SLOTS, SLOTS - 4, 10)
    path = node.close()
    (folder_of(path, "q") / "0.idx").unlink()
    kinds, texts = said(path)
    assert ("ack without publish", "suspected") in kinds
    assert "0.idx is not there" in texts[0]


@pytest.mark.parametrize("file", ["old/2.idx", "old/1.idx", "jif/journal.jif", "new/2.qi"])
def test_a_last_record_that_is_cut_is_suspected(node: Path, file: str) -> None:
    queue, _, name = file.partition("/")
    path = folder_of(node, queue) / name
    path.write_bytes(path.read_bytes()[:-7])
    kinds, _ = said(node)
    assert kinds
    assert main(["recover", str(node)]) == 1


# --- what contradicts itself --------------------------------------------------------------------


def test_a_publish_whose_seq_goes_back_is_damage(node: Path) -> None:
    file = folder_of(node, "jif") / "journal.jif"
    data = bytearray(file.read_bytes())
    pos, seq = 0, 0
    while seq < 33:  # 33 becomes 1, which another message has
        pos += 8 if data[pos] >> 7 else 40 + struct.unpack_from(">I", data, pos + 36)[0]
        if not data[pos] >> 7:
            seq = struct.unpack_from(">Q", data, pos)[0]
    data[pos + 7] ^= 32
    file.write_bytes(data)
    kinds, _ = said(node)
    assert {("disorder", "damage"), ("clash", "damage")} <= kinds
    assert main(["recover", str(node)]) == 1


def test_a_delivery_that_became_an_ack_is_told(node: Path) -> None:
    """One bit, and the message would be gone; a segment has no bit for it, the slot is another."""
    file = folder_of(node, "jif") / "journal.jif"
    data = bytearray(file.read_bytes())
    pos = 40 + struct.unpack_from(">I", data, 36)[0]
    data[pos] ^= 0x40
    file.write_bytes(data)
    assert said(node)[0] == {("ack without delivery", "suspected")}


def test_a_message_that_its_index_calls_transient_is_kept(node: Path) -> None:
    """Embedded in the index, in the message store, and in both versions."""
    whole = read(node).recovered
    for name, spots in {"old/2.idx": (0, 2), "new/2.qi": (64 + 1, 64 + 32 + 1)}.items():
        queue, _, file = name.partition("/")
        path = folder_of(node, queue) / file
        data = bytearray(path.read_bytes())
        if file.endswith("idx"):
            records = split(bytes(data))[: spots[1]]
            for start in (0, len(records[0])):
                data[start] ^= 0x40
        else:
            for spot in spots:
                data[spot] ^= 1
        path.write_bytes(data)
    told = read(node)
    assert told.recovered == whole
    assert sum("2 persistent messages that the index calls transient" in t for t in told.text) == 2


@pytest.mark.parametrize("bit", [20, 45, 50])
def test_an_expiry_before_there_was_a_rabbitmq_drops_nothing(node: Path, bit: int) -> None:
    whole = read(node).recovered
    for name, place in {"jif/journal.jif": 24, "old/3.idx": 18, "new/2.qi": 64 + 24}.items():
        queue, _, file = name.partition("/")
        path = folder_of(node, queue) / file
        data = bytearray(path.read_bytes())
        struct.pack_into(">Q", data, place, 1 << bit)
        path.write_bytes(data)
    told = read(node)
    assert told.recovered == whole
    assert sum("expiry times before there was a RabbitMQ" in text for text in told.text) == 3
    assert main(["recover", str(node)]) == 1


def test_an_expiry_that_nobody_set_drops_nothing(node: Path) -> None:
    """In a time that could be: but the message has no expiration, and its queue no TTL."""
    file = folder_of(node, "jif") / "journal.jif"
    data = bytearray(file.read_bytes())
    struct.pack_into(">Q", data, 24, 1_600_000_000_000_000)
    file.write_bytes(data)
    kinds, texts = said(node)
    assert kinds == {("expiry", "suspected")}
    assert "message_id jif-0" in texts[0]
    with open_node(node) as opened:
        (queue,) = (queue for queue in opened.queues if queue.name == "jif")
        assert next(queue.messages()).expiry_us is None


def test_zeros_from_sector_to_sector_in_a_body_are_suspected(node: Path) -> None:
    file = next(node.glob("**/1.rdq"))
    data = file.read_bytes()
    at = len(data) // 512 * 512 - 1024
    start = next(at for at in range(at, 0, -512) if b"\xff" not in data[at : at + 512])
    file.write_bytes(data[:start] + bytes(512) + data[start + 512 :])
    assert said(node)[0] == {("lost sector", "suspected")}


# --- orphans ------------------------------------------------------------------------------------


def test_bodies_that_no_index_names_can_be_taken_out(node: Path, tmp_path: Path) -> None:
    folder = folder_of(node, "new")
    (folder / "1.qi").unlink()
    folder_of(node, "old").joinpath("1.idx").unlink()
    target = tmp_path / "store"
    assert main(["recover", str(node), "--orphans", "--out", str(target)]) == 1
    with qindex.open(target, read_only=True) as store:
        found = {name: list(store.queue(name, create=False).browse()) for name in store.queues()}
    stored = [seq for seq in range(SLOTS, 2 * SLOTS) if len(content("new", seq).body) < 3000]
    assert [m.body for m in found["new.orphans"]] == [content("new", seq).body for seq in stored]
    shared = found["msg_store_persistent.orphans"]
    lost = [seq for seq in range(SLOTS, 2 * SLOTS) if len(content("new", seq).body) >= 3000]
    assert {content("new", seq).body for seq in lost} <= {m.body for m in shared}
    for name in ("new.orphans", "msg_store_persistent.orphans"):
        for message in found[name]:
            assert message.redelivered
            assert " at byte " in message.headers["orphan"]
    assert not any("orphan" in m.headers for m in found["new"])
    assert main(["salvage", str(node), "--orphans", "--out", str(tmp_path / "again")]) == 1
    with qindex.open(tmp_path / "again", read_only=True) as store:
        assert len(store.queue("new.orphans", create=False)) == len(stored)


def test_orphans_are_found_between_the_holes_of_later_versions(node: Path) -> None:
    """From 3.12 on a body has its place before it is written; acked ones are never written."""
    file = folder_of(node, "new") / "2.qs"
    data = bytearray(file.read_bytes())
    sizes, pos = [], 64
    while pos < len(data):
        sizes.append((pos, 8 + struct.unpack_from(">I", data, pos)[0]))
        pos += sizes[-1][1]
    for start, size in sizes[::3]:
        data[start : start + size] = bytes(size)
    file.write_bytes(data)
    (folder_of(node, "new") / "2.qi").unlink()
    _, texts = said(node)
    left = [size - 8 for n, (_, size) in enumerate(sizes) if n % 3]
    assert (
        f"2.qi is not there: {len(left)} bodies ({sum(left):,} bytes) that no entry names" in texts
    )


# --- what is told -------------------------------------------------------------------------------


def test_the_cause_comes_first_and_then_what_it_cost_by_queue(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(node.glob("**/0.rdq"))
    file.write_bytes(file.read_bytes()[:-1000])
    assert main(["recover", str(node)]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = lines[lines.index("findings") + 1 :]
    assert told[0].startswith("  damage  messages of /, 0.rdq at byte ")
    assert "bytes are cut" in told[0]
    assert "is in no message file; there is 0.rdq, 1.rdq" in told[1]
    assert told[2].startswith("  damage  queue ")
    assert ": 1 message without a body: seq " in told[2]
    assert f"To take them: qindex recover {node} --out STORE" in lines
    assert main(["recover", str(node), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert found[0]["file"].endswith("0.rdq")
    assert found[2]["about"].startswith("queue ")


def test_a_message_that_is_damaged_is_called_by_its_message_id(node: Path) -> None:
    file = folder_of(node, "old") / "2.idx"
    data = bytearray(file.read_bytes())
    struct.pack_into(">I", data, 2 + 16 + 8, 99)  # the size of a body
    file.write_bytes(data)
    _, texts = said(node)
    assert texts == [
        "seq 159 (message_id old-159): the body or its id is not the one that the index names"
    ]
