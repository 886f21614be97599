"""Another process writes into a store's open files: errors, never a neighbour's bytes or a crash.

The journal and the newest message file are mapped, and the lengths in them lead to the bodies. So
nothing that is read again after it was checked may be believed. The process that has the store open
runs as a child here: a crash is its exit code.
"""

from __future__ import annotations

import json
import random
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import qindex

MANY = 240

# What the child does with the store. `scribble()` returns when the parent has written.
CHILD = """
import json, sys, qindex
path, story = sys.argv[1:]

def body(number, size):
    return (b"<%06d>" % number).ljust(size, b"%c" % (97 + number % 26))

def scribble(**facts):
    print(json.dumps(facts), flush=True)
    sys.stdin.readline()

def take(queue, published):
    '''All that get gives; who was set aside; who was given something wrong.'''
    aside, wrong, right = [], [], 0
    while True:
        try:
            message = queue.get()
        except qindex.StoreCorrupt as error:
            aside.append(error.req_id)
            continue
        if message is None:
            return aside, wrong, right
        if message.body != published[message.req_id]:
            wrong.append([message.req_id, len(message.body)])
        right += 1

io = "pwrite" if story == "truncate" else "mmap"
store = qindex.open(path, segment_entries=64, io=io, sync="never")
queue = store.queue("q")
published = {}
for number in range(MANY):
    text = body(number, 5000 if number % 10 == 9 else 20 + number % 90)
    published[queue.publish(text, priority=number % 3)] = text
batch = [body(number, 30 + number % 7) for number in range(MANY, 2 * MANY)]
published.update(zip(queue.publish_many(batch), batch))
""".replace("MANY", str(MANY))

STORIES = {
    "journal": """
scribble()
aside, wrong, right = take(queue, published)
""",
    "flush": """
scribble()
queue.flush()
aside, wrong, right = take(queue, published)
""",
    "segment": """
queue.flush()
ids = sorted(published)
for start in range(0, len(ids), 8):  # every segment's maps are in memory, one of the files is
    assert queue.peek(ids[start]).body == published[ids[start]]
scribble()
aside, wrong, right = take(queue, published)
""",
    "truncate": """
scribble()
aside, wrong, right = take(queue, published)
""",
    "random": """
scribble()
aside, wrong, right = take(queue, published)
""",
}

TELL = """
findings = [finding.text for finding in store.findings]
try:
    store.close()
except qindex.Error:
    pass
told = {"aside": aside, "wrong": wrong, "right": right, "findings": findings}
print(json.dumps(told), flush=True)
"""


class Child:
    def __init__(self, path: Path, story: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD + STORIES[story] + TELL, str(path), story],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]

    def go_on(self) -> dict[str, Any]:
        out, err = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0, (self.process.returncode, err)
        told: dict[str, Any] = json.loads(out)
        return told


def mark(number: int) -> bytes:
    return b"<%06d>" % number


def files(path: Path, pattern: str) -> list[Path]:
    return sorted((path / "queues").glob(f"*/{pattern}"))


class Record:
    """A publish record with an embedded body, found by the body's mark."""

    def __init__(self, path: Path, pattern: str, number: int, head: int) -> None:
        for self.file in files(path, pattern):
            at = self.file.read_bytes().find(mark(number))
            if at >= 0:
                break
        else:
            raise AssertionError(f"no record of message {number}")
        self.fields = at - 32
        self.start = self.fields - head
        with self.file.open("rb") as file:
            file.seek(at - 8)
            self.size, self.embedded = struct.unpack(">II", file.read(8))

    def write(self, offset: int, data: bytes) -> None:
        with self.file.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def read(self, offset: int, length: int) -> bytes:
        with self.file.open("rb") as file:
            file.seek(offset)
            return file.read(length)


def longer(record: Record) -> None:
    """Both lengths say that the record behind this one belongs to the body."""
    record.write(record.fields + 24, struct.pack(">II", record.size + 60, record.embedded + 60))


def endless(record: Record) -> None:
    record.write(record.fields + 24, struct.pack(">II", 0xFFFFFFF0, 0xFFFFFFF0))


def shorter(record: Record) -> None:
    record.write(record.fields + 24, struct.pack(">II", 3, 3))


def elsewhere(record: Record) -> None:
    """A MsgId: as if the body were in the message store."""
    record.write(record.fields, struct.pack(">IIII", 0, 64, 5000, 0x00020304))


def over(record: Record) -> None:
    """It never expired."""
    record.write(record.fields + 16, struct.pack(">Q", 1))


def zeros(record: Record) -> None:
    record.write(record.start, bytes(record.fields + 32 - record.start))


SCRIBBLES = [longer, endless, shorter, elsewhere, over, zeros]


def scribble_each(path: Path, pattern: str, head: int) -> list[int]:
    """Each of them on several records, published alone and in the batch; their numbers."""
    numbers = [2, 31, 62, 93, 124, 155, 251, 282, 313, 344, 375, 406]
    for place, number in enumerate(numbers):
        SCRIBBLES[place % len(SCRIBBLES)](Record(path, pattern, number, head))
    return numbers


def test_scribbled_journal_records_are_errors(tmp_path: Path) -> None:
    child = Child(tmp_path / "s", "journal")
    numbers = scribble_each(tmp_path / "s", "journal.jif", 8)
    told = child.go_on()
    assert told["wrong"] == []
    assert (len(told["aside"]), told["right"]) == (len(numbers), 2 * MANY - len(numbers))


def test_a_record_in_place_of_another_is_an_error(tmp_path: Path) -> None:
    child = Child(tmp_path / "s", "journal")
    one, other = (Record(tmp_path / "s", "journal.jif", 250 + more, 8) for more in (0, 7))
    assert one.size == other.size
    one.write(one.start, other.read(other.start, 40 + other.size))
    told = child.go_on()
    assert told["wrong"] == []
    assert len(told["aside"]) == 1


def test_the_msg_id_of_another_message_is_an_error(tmp_path: Path) -> None:
    child = Child(tmp_path / "s", "journal")
    journal = files(tmp_path / "s", "journal.jif")[0]
    data = journal.read_bytes()
    ids = [
        at
        for at in range(8192, len(data) - 40)
        if data[at + 24 : at + 32] == b"\0\0\x13\x88" + bytes(4)
    ]
    assert len(ids) == MANY // 10
    with journal.open("r+b") as file:
        file.seek(ids[3])
        file.write(data[ids[8] : ids[8] + 16])
    told = child.go_on()
    assert told["wrong"] == []
    assert len(told["aside"]) == 1


def test_a_flush_passes_nothing_on_that_was_scribbled(tmp_path: Path) -> None:
    """Else the segments would vouch for it with checksums of their own."""
    child = Child(tmp_path / "s", "flush")
    numbers = scribble_each(tmp_path / "s", "journal.jif", 8)
    told = child.go_on()
    assert told["wrong"] == []
    assert told["aside"]
    assert told["right"] == 2 * MANY - len(numbers)
    lost = [re.search(r"wrote into it: (\d+) of the", text) for text in told["findings"]]
    assert sum(int(found[1]) for found in lost if found) == len(numbers)


def test_scribbled_segments_are_errors(tmp_path: Path) -> None:
    child = Child(tmp_path / "s", "segment")
    scribble_each(tmp_path / "s", "*.idx", 2)
    told = child.go_on()
    assert told["wrong"] == []
    assert told["aside"]
    missing = [
        re.search(r"(\d+) messages? should be here, (\d+)", text) for text in told["findings"]
    ]
    lost = sum(int(found[1]) - int(found[2]) for found in missing if found)
    assert lost
    assert told["right"] + len(told["aside"]) + lost == 2 * MANY


def test_a_scribbled_message_file_is_an_error(tmp_path: Path) -> None:
    child = Child(tmp_path / "s", "journal")
    (file,) = (tmp_path / "s" / "messages").glob("*.qms")
    data = file.read_bytes()
    first, second, third = (data.find(mark(number)) for number in (9, 19, 29))
    with file.open("r+b") as messages:
        messages.seek(first - 24)
        messages.write(struct.pack(">I", 12000))  # its length: up to the third
        messages.seek(second - 24)
        messages.write(data[third - 24 : third + 5001])  # another message
    told = child.go_on()
    assert told["wrong"] == []
    assert (len(told["aside"]), told["right"]) == (2, 2 * MANY - 2)


@pytest.mark.parametrize("seed", range(4))
def test_bytes_anywhere_cost_no_neighbour_and_no_crash(tmp_path: Path, seed: int) -> None:
    """What is written into a body is its body then; but no body has another length."""
    dice = random.Random(seed)
    child = Child(tmp_path / "s", "random")
    journal = files(tmp_path / "s", "journal.jif")[0]
    end = len(journal.read_bytes().rstrip(b"\0"))
    with journal.open("r+b") as file:
        for _ in range(60):
            file.seek(dice.randrange(8192, end))
            file.write(dice.randbytes(dice.choice((1, 4, 8, 40))))
    told = child.go_on()
    assert told["aside"], "some hit a record's fields"
    sizes = {20 + number % 90 for number in range(MANY)} | {
        30 + number % 7 for number in range(MANY)
    }
    assert all(size in sizes | {5000} for _, size in told["wrong"])
    assert len(told["wrong"]) <= 60


def test_a_file_that_is_made_shorter_is_survived_without_mappings(tmp_path: Path) -> None:
    child = Child(tmp_path / "s", "truncate")
    for file in [*files(tmp_path / "s", "journal.jif"), *(tmp_path / "s").glob("messages/*.qms")]:
        with file.open("r+b") as opened:
            opened.truncate(4096)
    told = child.go_on()
    assert told["wrong"] == []
    assert told["right"] + len(told["aside"]) == 2 * MANY


def test_headers_that_somebody_wrote_into_are_told_as_damage(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s", io="mmap") as store:
        queue = store.queue("a")
        queue.publish(b"body", headers={"key": "a value to find"})
        journal = files(tmp_path / "s", "journal.jif")[0]
        with journal.open("r+b") as file:
            file.seek(journal.read_bytes().find(b"a value to find") - 5)
            file.write(b"\xee")  # what kind of value it is
        message = queue.get()
        assert message is not None
        assert message.body == b"body"
        with pytest.raises(qindex.StoreCorrupt, match="the headers of message 0 of 'a'") as error:
            message.headers  # noqa: B018
        assert error.value.req_id == 0
