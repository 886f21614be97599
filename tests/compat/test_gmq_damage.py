"""Each file of a gmq directory, cut, zeroed, flipped all over: it is read on and accounted for."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path

import pytest

from qindex.brokers.reader import Account, open_node, total

from .gmq_files import bodies, bolt_file, delayed, meta_page, write_files
from .test_rabbitmq_damage import damages

COUNT, READ, LATER = 300, 100, 60
SMALLEST_RECORD = 25
PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, COUNT, READ, LATER)
    return tmp_path


def account(path: Path, suffix: str) -> tuple[list[bytes], Account, bool]:
    """What the queues of one kind give, their account, and whether damage was told."""
    with open_node(path) as node:
        assert total(node.queues).adds_up
        queues = [queue for queue in node.queues if queue.name.endswith(suffix)]
        given = [message.body for queue in queues for message in queue.messages()]
        assert len(given) == total(queues).live
        return given, total(queues), any(f.severity == "damage" for f in node.findings)


def test_a_damaged_queue_costs_what_was_damaged(folder: Path) -> None:
    file = folder / "t_default.queue"
    data = file.read_bytes()
    used = len(data.rstrip(b"\0"))
    whole = Counter(bodies(COUNT)[READ:])
    for what, affected, damaged in damages(data[:used]):
        file.write_bytes(damaged + data[len(damaged) :])
        given, _, told = account(folder, "_default")
        lost = whole - Counter(given)
        assert told or len(given) >= whole.total(), what
        if what not in ("cut", "inserted", "removed"):
            assert lost.total() <= affected // SMALLEST_RECORD + 2, what
        if not affected:
            assert not lost, what


@pytest.mark.parametrize("size", [0, 1, 24, 25, 4095, 4096, 5000])
def test_a_cut_queue_gives_what_is_whole(folder: Path, size: int) -> None:
    file = folder / "t_default.queue"
    data = file.read_bytes()
    (folder / "t.meta").unlink()
    file.write_bytes(data[:size])
    given, found, _ = account(folder, "_default")
    assert found.found <= size // SMALLEST_RECORD
    assert given == bodies(COUNT)[READ:][: len(given)]


@pytest.mark.slow
def test_a_flipped_bit_in_a_head_costs_at_most_that_message(folder: Path) -> None:
    file = folder / "t_default.queue"
    data = file.read_bytes()
    places = [0]
    while data[places[-1]] == ord("v"):
        length = struct.unpack_from(">I", data, places[-1] + 3)[0]
        places.append(places[-1] + 7 + length)
    assert len(places) == COUNT + 1
    dice = random.Random(3)
    whole = Counter(bodies(COUNT)[READ:])
    swallowed = 0
    for byte, place in enumerate(dice.sample(places[READ + 1 : -2], 140)):
        damaged = bytearray(data)
        damaged[place + byte % 7] ^= 1 << dice.randrange(8)
        file.write_bytes(damaged)
        given, found, told = account(folder, "_default")
        if found.found < COUNT and not told:
            swallowed += 1  # the length covers the next one exactly, which no checksum tells
            continue
        assert told or byte % 7 in (1, 2)  # a status that became another one
        assert found.found == COUNT
        assert (whole - Counter(given)).total() <= (byte % 7 in (1, 2))
    assert swallowed <= 5


def test_damaged_offsets_cost_no_message(folder: Path) -> None:
    """t.meta says where gmq goes on; each message says itself whether it was read."""
    file = folder / "t.meta"
    whole = bodies(COUNT)[READ:]
    for what, _, damaged in damages(file.read_bytes()):
        file.write_bytes(damaged)
        given, found, _ = account(folder, "_default")
        assert given == whole, what
        assert found.found == COUNT, what
    file.unlink()
    assert account(folder, "_default")[0] == whole


def test_damaged_delayed_messages_cost_what_was_damaged(folder: Path) -> None:
    file = folder / "gmq.db"
    data = file.read_bytes()
    for what, affected, damaged in damages(data):
        file.write_bytes(damaged)
        given, _, told = account(folder, ".delayed")
        lost = (Counter([*bodies(LATER), b"inline"]) - Counter(given)).total()
        assert told or not lost or what == "flipped", what
        if not affected:
            assert lost == 0, what
    file.write_bytes(data)
    assert len(account(folder, ".delayed")[0]) == LATER + 1


def test_each_damaged_page_costs_what_is_below_it(folder: Path) -> None:
    file = folder / "gmq.db"
    data = file.read_bytes()
    for number in range(len(data) // PAGE):
        start = number * PAGE
        flags = struct.unpack_from("<H", data, start + 8)[0]
        for damaged in (bytes(PAGE), b"\xff" * PAGE):
            file.write_bytes(data[:start] + damaged + data[start + PAGE :])
            given, _, told = account(folder, ".delayed")
            lost = LATER + 1 - len(given)
            assert told or flags == 0x10  # nobody needs the freelist
            if flags in (4, 0x10):
                assert lost == 0
            elif flags == 2 and number != len(data) // PAGE - 1:
                assert lost == 5  # a leaf; the last one is the root, with the names of all buckets
            else:
                assert lost >= 5


def test_the_newest_valid_meta_page_is_taken(tmp_path: Path) -> None:
    old, new = (bolt_file({b"t": [delayed(text, 1, 9)]}) for text in (b"old", b"new"))
    pages = -(-len(old) // PAGE)
    shift = 4 * PAGE  # the new tree behind the old one
    moved = bytearray(new[3 * PAGE :])
    struct.pack_into("<Q", moved, 0, 3 + shift // PAGE)
    both = old.ljust(3 * PAGE + shift, b"\0") + bytes(moved)
    end = len(both) // PAGE
    assert pages == 4
    for newest in (0, 1):
        metas = [
            meta_page(n, PAGE, 3 if n != newest else 7, end, 8 + (n == newest)) for n in (0, 1)
        ]
        (tmp_path / "gmq.db").write_bytes(b"".join(metas) + both[2 * PAGE :])
        assert account(tmp_path, ".delayed")[0] == [b"new"]
        damaged = bytearray((tmp_path / "gmq.db").read_bytes())
        damaged[newest * PAGE + 70] ^= 1
        (tmp_path / "gmq.db").write_bytes(damaged)
        given, _, told = account(tmp_path, ".delayed")
        assert (given, told) == ([b"old"], True)


@pytest.mark.parametrize("page_size", [1024, 4096, 16384, 65536])
def test_the_page_size_is_found_without_the_first_page(tmp_path: Path, page_size: int) -> None:
    pairs = [delayed(b"%d" % n, n, n) for n in range(40)]
    data = bytearray(bolt_file({b"t": pairs}, page_size))
    data[:64] = bytes(64)
    (tmp_path / "gmq.db").write_bytes(data)
    given, _, told = account(tmp_path, ".delayed")
    assert given == [b"%d" % n for n in range(40)]
    assert told


def test_a_big_value_lies_on_pages_of_its_own(tmp_path: Path) -> None:
    pairs = [delayed(bytes([n]) * 50_000, n, n) for n in range(10)]
    (tmp_path / "gmq.db").write_bytes(bolt_file({b"t": pairs}))
    given, _, told = account(tmp_path, ".delayed")
    assert given == [bytes([n]) * 50_000 for n in range(10)]
    assert not told


def test_a_loop_and_a_page_used_twice_end(folder: Path) -> None:
    file = folder / "gmq.db"
    data = bytearray(file.read_bytes())
    branches = [n for n in range(len(data) // PAGE) if data[n * PAGE + 8] == 1]
    top = branches[-1]
    for target in (top, branches[0], 3):
        damaged = bytearray(data)
        for element in range(data[top * PAGE + 10]):
            struct.pack_into("<Q", damaged, top * PAGE + 16 + 16 * element + 8, target)
        file.write_bytes(damaged)
        given, _, told = account(folder, ".delayed")
        assert told
        assert len(given) < LATER
