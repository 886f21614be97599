"""A queue's journals replayed in Python: each step against what the engine recovers from so many
bytes, and back again."""

import random
import struct
import tracemalloc
from contextlib import contextmanager

import pytest
from helpers import SMALL, crash, files_of, put_files, queue_directory

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.native.frames import CannotReplay, crc, journal_header
from qindex.native.log import NativeLog
from qindex.native.replay import Replay

NAME = "q"
VERBS = ("publish", "publish", "lane", "batch", "get", "get", "ack", "nack", "purge")


@contextmanager
def log_of(path, entries=SMALL["segment_entries"]):
    tree = Tree(path, Findings())
    try:
        yield NativeLog(tree, f"queues/{queue_directory(path, NAME).name}", entries)
    finally:
        tree.close()


def live(state):
    return [(m.req_id, m.deliveries, m.transient) for m in state.messages()]


def served(path):
    """What the engine reads from those files; it changes nothing."""
    with qindex.open(path, read_only=True) as store:
        return [(m.req_id, m.delivery_count, not m.persistent) for m in store.queue(NAME).browse()]


def busy(queue, steps, seed):
    """Everything that leaves records, at random; few enough for one journal."""
    choose = random.Random(seed)
    out = list(queue.get_many(3))
    for _ in range(steps):
        verb = choose.choice(VERBS)
        if verb == "publish":
            queue.publish(b"x" * choose.randrange(90), persistent=choose.random() < 0.7)
        elif verb == "lane":
            queue.publish(
                b"lane", priority=choose.randrange(3), delay=choose.choice((None, 0.001, 99))
            )
        elif verb == "batch":
            queue.publish_many([b"batch"] * choose.randrange(1, 5))
        elif verb == "get":
            out += queue.get_many(choose.randrange(1, 4))
        elif verb == "ack" and out:
            queue.ack(out.pop(choose.randrange(len(out))))
        elif verb == "nack" and out:
            queue.nack(out.pop(), delay=choose.choice((0, 99)))
        elif verb == "purge" and choose.random() < 0.2:
            queue.purge()


@pytest.mark.parametrize("seed", range(3))
def test_each_step_is_what_the_engine_recovers_from_so_many_bytes(tmp_path, seed):
    knobs = {**SMALL, "max_journal_entries": 1 << 20}
    with qindex.open(tmp_path / "s", **knobs) as store:
        queue = store.queue(NAME)
        queue.publish_many([b"old"] * 40)
        queue.ack_many(queue.get_many(9))
        queue.flush()
        busy(queue, 60, seed)
    files = files_of(tmp_path / "s")
    journal = f"queues/{queue_directory('', NAME).name}/journal.alt"
    compared = 0
    with log_of(tmp_path / "s") as log:
        replay = Replay(log)
        records = list(log.records((0, 0, 0)))
        flushed = max(n for n, r in enumerate(records) if r.verb == "manifest")
        for number in range(flushed + 1, len(records)):
            frame = records[number].place[1]
            if frame == records[number - 1].place[1]:
                continue  # inside a frame: the engine takes all of it or nothing
            cut = {**files, journal: files[journal][:frame].ljust(len(files[journal]), b"\0")}
            put_files(tmp_path / "cut", cut)
            assert replay.go_to(number)
            assert live(replay.state) == served(tmp_path / "cut"), records[number - 1]
            assert replay.state.live == len(live(replay.state))
            compared += 1
        replay.go_to_end()
        assert live(replay.state) == served(tmp_path / "s")
    assert compared > 30


class Counted:
    """A log that counts the records that were read."""

    def __init__(self, log):
        self._log = log
        self.count = 0

    def __getattr__(self, name):
        return getattr(self._log, name)

    def records(self, place):
        for record in self._log.records(place):
            self.count += 1
            yield record


def test_back_is_what_was_there_and_costs_an_interval_at_most(tmp_path):
    with qindex.open(tmp_path / "s", **{**SMALL, "max_journal_entries": 1 << 20}) as store:
        queue = store.queue(NAME)
        busy(queue, 400, 7)
    with log_of(tmp_path / "s") as log:
        counted = Counted(log)
        replay = Replay(counted, interval=32)
        states = [live(replay.state)]
        while replay.forward():
            states.append(live(replay.state))
        assert len(states) > 300
        for number in range(len(states) - 1, -1, -1):
            before = counted.count
            assert replay.go_to(number)
            assert counted.count - before <= 32
            assert (live(replay.state), replay.number) == (states[number], number)
        choose = random.Random(1)
        for number in (choose.randrange(len(states)) for _ in range(50)):
            assert replay.go_to(number)
            assert live(replay.state) == states[number]
        assert not replay.go_to(len(states))
        assert live(replay.state) == states[-1]


def test_however_long_the_log_checkpoints_have_a_bound(tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue(NAME).publish_many([b"x"] * 1000)
    with log_of(tmp_path / "s", 16384) as log:
        replay = Replay(log, interval=1)
        replay.go_to_end()
        assert len(replay._checkpoints) <= 129
        assert replay.interval > 1
        assert replay.go_to(501)
        assert replay.state.live == len(live(replay.state))


def test_transient_messages_die_at_the_session_that_raises_the_floor(tmp_path):
    store = qindex.open(tmp_path / "s", **SMALL)
    queue = store.queue(NAME)
    queue.publish_many([b"a", b"b"], persistent=False)
    queue.publish(b"c")
    store.sync()
    crash(store)
    with qindex.open(tmp_path / "s", **SMALL) as store:
        store.queue(NAME)
    with log_of(tmp_path / "s") as log:
        replay = Replay(log)
        seen = []
        while record := replay.forward():
            seen.append((record.verb, replay.state.live))
    assert ("publish", 3) in seen
    assert ("session", 1) in seen
    assert [m.redelivered for m in replay.state.messages()] == [True]


def test_the_old_journal_comes_first_if_its_flush_was_cut_off(tmp_path):
    knobs = {**SMALL, "max_journal_entries": 1 << 20}
    with qindex.open(tmp_path / "s", **knobs) as store:
        queue = store.queue(NAME)
        queue.publish_many([b"x"] * 5)
        store.sync()
        before = files_of(tmp_path / "s")
        queue.ack_many(queue.get_many(2))
        queue.flush()
        queue.publish(b"later")
    folder = f"queues/{queue_directory('', NAME).name}"
    after = files_of(tmp_path / "s")
    with log_of(tmp_path / "s") as log:
        assert [j.epoch for j in log.journals.all] == [3]
    # The header of epoch 2 as it was before its flush; the MANIFEST that ended the flush is gone.
    jif, alt = f"{folder}/journal.jif", f"{folder}/journal.alt"
    after[jif] = before[jif][:8192] + after[jif][8192:]
    first = 8192 + 8 + int.from_bytes(after[alt][8192:8196], "big") % (1 << 28)
    after[alt] = after[alt][:first].ljust(len(after[alt]), b"\0")
    put_files(tmp_path / "cut", after)
    (tmp_path / "cut" / "messages").mkdir()
    with log_of(tmp_path / "cut") as log:
        assert [j.epoch for j in log.journals.all] == [2, 3]
        replay = Replay(log)
        replay.go_to_end()
        expected = [(2, 0, False), (3, 0, False), (4, 0, False)]
        assert live(replay.state) == served(tmp_path / "cut") == expected


def damaged(tmp_path, offset, length=8):
    """A queue of a hundred publishes; bytes of its journal are gone."""
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue(NAME)
        for number in range(100):
            queue.publish(b"body %d" % number)
    file = queue_directory(tmp_path / "s", NAME) / "journal.jif"
    data = bytearray(file.read_bytes())
    data[offset : offset + length] = b"\xff" * length
    file.write_bytes(data)


def test_damage_is_told_and_the_rest_replayed(tmp_path):
    damaged(tmp_path, 9000)
    with log_of(tmp_path / "s", 16384) as log:
        replay = Replay(log)
        replay.go_to_end()
        assert 95 < replay.state.live < 100
        assert live(replay.state) == served(tmp_path / "s")
        (finding,) = [f for f in log.findings.kept if f.severity == "damage"]
        assert 8900 < finding.offset <= 9000


def test_without_headers_or_a_manifest_it_says_what_else_there_is(tmp_path):
    (tmp_path / "b").mkdir()
    damaged(tmp_path, 0, 8192)
    with pytest.raises(CannotReplay, match="salvage"), log_of(tmp_path / "s", 16384):
        pass
    damaged(tmp_path / "b", 8192)
    with pytest.raises(CannotReplay, match="salvage"), log_of(tmp_path / "b" / "s", 16384):
        pass


def test_a_segment_that_lost_messages_is_told(tmp_path):
    with qindex.open(tmp_path / "s", **SMALL) as store:
        queue = store.queue(NAME)
        queue.publish_many([b"x"] * 40)
        queue.flush()
    file = queue_directory(tmp_path / "s", NAME) / "1.idx"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with log_of(tmp_path / "s") as log:
        messages = list(Replay(log).state.messages())
        assert {m.req_id // 16 for m in messages} == {0, 2}
        kinds = {f.kind for f in log.findings.kept if f.severity == "damage"}
        assert kinds == {"frame", "count"}


def journal_with(path, payloads):
    """A queue whose journal holds these frames, (type, payload), with checksums that are right."""
    with qindex.open(path) as store:
        store.queue(NAME)
    file = queue_directory(path, NAME) / "journal.jif"
    data = bytearray(file.read_bytes())
    header = journal_header(bytes(data))
    seed = crc(0, header.identity + struct.pack(">QQ", 0, header.epoch))
    end = 8192 + 8 + int.from_bytes(data[8192:8196], "big") % (1 << 28)
    del data[end:]  # but for the first MANIFEST
    for kind, payload in payloads:
        word = struct.pack(">I", kind << 28 | len(payload))
        value = crc(seed, struct.pack(">Q", len(data)) + word + payload)
        data += word + struct.pack(">I", value) + payload
    file.write_bytes(data + bytes(8))
    return len(data)


@pytest.mark.slow
def test_h21_a_journal_that_names_any_req_id_costs_what_its_bytes_cost(tmp_path):
    choose = random.Random(1)
    ids = [choose.randrange(1023 << 52) for _ in range(8_000)]  # lane 1023 has no messages
    publishes = b"".join(struct.pack(">Q16sQII", r, b"", 0, 0, 0) for r in ids[:2_000])
    delivers = b"".join(struct.pack(">Q", 2 << 62 | r) for r in ids)
    purges = [(6, struct.pack(">Q", choose.randrange(1 << 62))) for _ in range(300)]
    size = journal_with(tmp_path / "s", [(1, publishes), (1, delivers), *purges])
    tracemalloc.start()
    with log_of(tmp_path / "s", 16384) as log:
        replay = Replay(log)
        replay.go_to_end()
        assert replay.number == 10_301
        assert replay.state.live == len(live(replay.state)) < 100
    assert tracemalloc.get_traced_memory()[1] < 128 * size
    tracemalloc.stop()


def test_a_delivery_count_stays_at_65535(tmp_path):
    publish = struct.pack(">Q16sQII", 3, b"", 0, 0, 0)
    again = struct.pack(">Q", 2 << 62 | 3) * 66_000
    journal_with(tmp_path / "s", [(1, publish), (1, again)])
    with log_of(tmp_path / "s", 16384) as log:
        replay = Replay(log)
        replay.go_to_end()
        assert live(replay.state) == [(3, 65535, False)] == served(tmp_path / "s")
