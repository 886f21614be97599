"""A body is any buffer: it is taken from where it lies, without a copy of its own.

What another thread or process changes meanwhile is in test_messages.c: the message is valid.
"""

import mmap
import tracemalloc
from array import array

import pytest

import qindex
from qindex import Outgoing

SIZES = [0, 1, 100, 5_000, 69_607, 69_608, 300_000, 1_000_000]  # embedded, and stored in each way


def made(body, tmp_path):
    """The same bytes in each kind of buffer."""
    file = tmp_path / "mapped"
    file.write_bytes(body + b"?")
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    backwards = memoryview(bytes(reversed(body)))[::-1]  # not in one piece as it should be
    return [
        bytearray(body),
        memoryview(body),
        memoryview(bytearray(b"--" + body + b"--"))[2:-2],
        memoryview(mapped)[:-1],
        array("B", body),
        backwards,
    ]


@pytest.mark.parametrize("size", SIZES)
def test_any_buffer_comes_back_as_its_bytes(tmp_path, size):
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        buffers = made(body, tmp_path)
        for buffer in buffers:
            queue.publish(buffer)
        queue.publish(bytearray(body), confirm=True, headers={"n": 1}, timeout=1)
        queue.publish_many([*buffers, body])
        store.publish_many([Outgoing("q", buffer) for buffer in buffers])
        bodies = [queue.get().body for _ in range(3 * len(buffers) + 2)]
        assert bodies == [body] * len(bodies)
        assert {type(each) for each in bodies} == {bytes}
        assert queue.get() is None


def test_numbers_of_numpy_are_their_bytes(tmp_path):
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(10_000, dtype="int64").reshape(100, 100)
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        queue.publish(numbers)
        queue.publish(numbers.T)
        queue.publish_many([numbers, numbers.T])
        bodies = [queue.get().body for _ in range(4)]
        assert bodies == [numbers.tobytes(), numbers.T.tobytes()] * 2


def test_a_long_buffer_is_not_copied_before_it_is_published(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        buffer = bytearray(4_000_000)
        queue.publish(buffer)
        tracemalloc.start()
        queue.publish(buffer)
        queue.publish(memoryview(buffer)[1:])
        queue.publish_many([buffer, memoryview(buffer)[1:]])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000
        lengths = [len(queue.get().body) for _ in range(5)]
        assert lengths == [4_000_000, 4_000_000, 3_999_999, 4_000_000, 3_999_999]


def test_a_buffer_is_held_no_longer_than_the_call(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        buffer = bytearray(b"x" * 5_000)
        queue.publish(buffer)
        buffer.append(1)  # BufferError while somebody holds it
        queue.publish_many([buffer, buffer])
        buffer.append(1)
        store.publish_many([Outgoing("q", buffer)])
        buffer.append(1)
        assert [len(queue.get().body) for _ in range(4)] == [5_000, 5_001, 5_001, 5_002]


def test_what_is_no_buffer_is_refused_and_nothing_is_published(tmp_path):
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("q")
        for wrong in ("text", 5, None, [1, 2]):
            for publish in (queue.publish, lambda body: queue.publish_many([b"right", body])):
                with pytest.raises(TypeError, match="bytes-like"):
                    publish(wrong)
        assert len(queue) == 0
