"""The MANIFEST of the current journal is damaged: the queue is served all the same, and says so."""

import struct

import pytest
from helpers import crash, damage, ids, queue_directory

import qindex
from qindex._core import lib
from qindex.testing import SimulatedDisk, abandon

BODIES = [b"%d" % i * (1 if i % 2 else 50) for i in range(40)]


def journals(root):
    return sorted(queue_directory(root, "a").glob("journal.*"))


def damage_manifests(root, newest_only=False):
    """Flip a bit in every MANIFEST of both journals (or of the newest); return how many."""
    count = 0
    paths = journals(root)
    if newest_only:
        paths = [max(paths, key=lambda path: path.read_bytes()[32:40])]
    for path in paths:
        raw = bytearray(path.read_bytes())
        offset = 8192 if any(raw[:64]) else len(raw)
        while raw[offset : offset + 8].strip(b"\0"):
            (word,) = struct.unpack_from(">I", raw, offset)
            if word >> 28 == 3:
                raw[offset + 20] ^= 1
                count += 1
            offset += 8 + (word & 0xFFFFFFF)
        path.write_bytes(raw)
    return count


def crc(data):
    return struct.pack(">I", lib.qi_crc32c(0, bytes(data), len(data)))


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("ending", ["close", "crash"])
def test_nothing_is_lost_with_the_only_manifest(open_store, ending, read_only):
    store = open_store(max_journal_entries=1000)
    store.queue("a").publish_many(BODIES)
    store.queue("a").ack_many(store.queue("a").get_many(3))
    store.close() if ending == "close" else crash(store)
    assert damage_manifests(store.path) == 1
    store = open_store(read_only=read_only)
    queue = store.queue("a")
    assert [(m.req_id, m.body) for m in queue.browse()] == list(enumerate(BODIES))[3:]
    assert any("MANIFEST" in text for text in damage(store))
    crash(store)


def test_segments_count_for_all_that_they_hold(open_store):
    store = open_store(max_journal_entries=1000)
    queue = store.queue("a")
    queue.publish_many(BODIES)
    queue.flush()
    queue.ack_many(queue.get_many(20))
    later = queue.publish_many([b"later"] * 5)
    crash(store)
    assert damage_manifests(store.path) == 2
    for _ in range(2):  # the second time nothing was mended in between
        store = open_store(max_journal_entries=1000)
        assert ids(store.queue("a").browse()) == [*range(20, 40), *later]
        assert damage(store)
        crash(store)
    store = open_store(max_journal_entries=1000)
    store.queue("a").flush()  # begins a journal with a MANIFEST
    assert store.accept_losses()  # what is found behind it would be new
    crash(store)
    store = open_store(max_journal_entries=1000)
    assert ids(store.queue("a").browse()) == [*range(20, 40), *later]
    assert not damage(store)


@pytest.mark.parametrize("ending", ["close", "crash"])
def test_what_a_salvage_found_is_in_the_next_manifest(open_store, ending):
    """It stood there as a segment with no messages, which is a dead one: gone at the open after."""
    store = open_store(max_journal_entries=1000)
    store.queue("a").publish_many(BODIES)
    store.queue("a").flush()
    store.close()
    assert damage_manifests(store.path)
    store = open_store(max_journal_entries=1000)
    store.queue("a").publish(b"new")  # the flush has something to write, but not to these segments
    assert damage(store)
    store.queue("a").flush()
    before = ids(store.queue("a").browse())
    assert store.accept_losses()  # what is found behind it would be new
    store.close() if ending == "close" else crash(store)
    store = open_store(max_journal_entries=1000)
    assert ids(store.queue("a").browse()) == before
    assert len(before) == len(store.queue("a")) == 41
    assert not damage(store)


def test_h10_req_ids_are_new_when_nothing_tells_the_old_ones(open_store):
    store = open_store(max_journal_entries=24)
    queue = store.queue("a")
    for _ in range(40):
        queue.publish_many(BODIES)
        queue.ack_many(queue.get_many(40))
        queue.flush()
    last = queue.publish(b"last")
    queue.ack(queue.get())
    queue.flush()
    crash(store)
    assert not list(queue_directory(store.path, "a").glob("*.idx"))
    assert damage_manifests(store.path)
    store = open_store()
    assert store.queue("a").publish(b"new") > last
    crash(store)


def test_a_journal_that_never_reached_the_medium_is_no_damage(open_store):
    """A power cut took all of the next journal but its header: the one before is the truth."""
    store = open_store(max_journal_entries=1000)
    store.queue("a").publish_many(BODIES)
    store.sync()
    crash(store)
    raw = (queue_directory(store.path, "a") / "journal.jif").read_bytes()
    header = raw[:32] + struct.pack(">Q", 3) + raw[40:60]
    header += crc(header)
    image = header.ljust(4096, b"\0") + header.ljust(8192, b"\0")
    (queue_directory(store.path, "a") / "journal.alt").write_bytes(image)
    store = open_store()
    assert len(store.queue("a")) == 40
    assert not damage(store)


def test_a_new_journal_that_is_torn_at_its_start_is_told(tmp_path):
    """Found by flipping bits: a synced publish was the first record behind a rotation, and no MARK
    followed it. With the MANIFEST in front of it damaged the epoch before was taken for the last
    one, and nobody said a word."""
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, segment_entries=16, max_journal_entries=24)
    queue = store.queue("a")
    for number in range(25):
        queue.publish(b"%d" % number)  # the last one begins a flush, which waits for its turn
    queue.publish(b"behind")
    queue.sync()
    for name, content in disk.files().items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    abandon(store)
    (tmp_path / "data" / "messages").mkdir()
    assert damage_manifests(tmp_path / "data", newest_only=True) == 1
    with qindex.open(tmp_path / "data", segment_entries=16) as store:
        assert [m.body for m in store.queue("a").browse()] == [b"%d" % n for n in range(25)]
        assert any("torn at its start" in finding.text for finding in store.findings)
