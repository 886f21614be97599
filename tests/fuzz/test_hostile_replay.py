"""Journals and segments with any bytes: a replay ends in a state, in findings, or CannotReplay."""

import random
import struct

import pytest
from helpers import SMALL, files_of, put_files, queue_directory

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.native.frames import CannotReplay, crc, journal_header, segment_header
from qindex.native.log import NativeLog
from qindex.native.replay import Replay, publishes

INPUTS = 150
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 62) - 1, (1 << 64) - 1)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A queue with segments, history and both kinds of end."""
    path = tmp_path_factory.mktemp("sound") / "s"
    with qindex.open(path, **SMALL, keep_history=1 << 20) as store:
        queue = store.queue("q")
        for number in range(6):
            queue.publish_many([b"body"] * 20, persistent=number % 2 == 0)
            queue.ack_many(queue.get_many(15))
        queue.purge()
        queue.publish_many([b"x"] * 5)
    return files_of(path)


def repair(data):
    """Checksums of the frames in a row, as far as their lengths lead; the fuzzers' stores do so."""
    journal = journal_header(bytes(data))
    header = journal or segment_header(bytes(data[:64]))
    if header is None:
        return
    seed = crc(0, header.identity + struct.pack(">QQ", header.number, header.epoch))
    at = 8192 if journal else 64
    while at + 8 <= len(data):
        word = bytes(data[at : at + 4])
        end = at + 8 + int.from_bytes(word, "big") % (1 << 28)
        if word == bytes(4) or end > len(data):
            return
        value = crc(seed, struct.pack(">Q", at) + word + bytes(data[at + 8 : end]))
        data[at + 4 : at + 8] = value.to_bytes(4, "big")
        at = end


def mutate(data, dice):
    for _ in range(dice.choice((1, 2, 5))):
        used = len(bytes(data).rstrip(b"\0"))
        at = dice.randrange(min(8192, used // 2) if dice.random() < 0.9 else 0, used)
        way = dice.randrange(4)
        if way == 0:
            data[at] ^= 1 << dice.randrange(8)
        elif way == 1:
            raw = struct.pack(">Q", dice.choice(EDGES))[-dice.choice((1, 2, 4, 8)) :]
            data[at : at + len(raw)] = raw
        elif way == 2:
            del data[at : at + dice.choice((1, 8, 100))]
        else:
            data[at:at] = data[at : at + dice.choice((1, 8, 100))]
    if dice.random() < 0.7:
        repair(data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(3)
def test_whatever_stands_in_the_files_the_replay_comes_to_an_end(sound, tmp_path, seed):
    dice = random.Random(seed)
    folder = f"queues/{queue_directory('', 'q').name}"
    names = [n for n in sound if n.startswith(folder) and n.endswith((".jif", ".idx", ".alt"))]
    names = [name for name in names if any(sound[name][:64])]
    put_files(tmp_path, sound)
    replayed = refused = found = 0
    for _ in range(INPUTS):
        name = dice.choice(names)
        data = bytearray(sound[name])
        mutate(data, dice)
        (tmp_path / name).write_bytes(data)
        tree = Tree(tmp_path, Findings())
        try:
            replay = Replay(NativeLog(tree, folder, 16), interval=16)
            replay.go_to_end()
            number, last = replay.number, [message for message, _ in publishes(replay)]
            assert len(last) == replay.state.live
            replay.go_to(number // 2)
            replay.go_to(number)
            assert [message for message, _ in publishes(replay)] == last
            replayed += 1
        except CannotReplay:
            refused += 1
        found += bool(tree.findings.kept)
        tree.close()
        (tmp_path / name).write_bytes(sound[name])
    assert replayed > INPUTS / 2
    assert refused + found > INPUTS / 4
