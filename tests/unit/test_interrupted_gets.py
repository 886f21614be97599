"""A signal handler raises while a message is on its way: it was given, or it is ready again.

The handler of a timer raises at random places, thousands of times. What the program got and acked,
and what is ready, are all the messages then, and nothing is unacked: neither where the call into C
gave the message, nor in the Python behind it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from alarms import ROUNDS, Alarm, interrupted

import qindex
import qindex.aio
from qindex.compat.diskqueue import DiskQueue
from qindex.compat.queuelib import FifoDiskQueue
from qindex.compat.standard import AsyncQueue, LifoQueue, PriorityQueue, Queue

LONG = b"x" * 300_000  # the event loop lets a thread take what is as long as this

VERBS: dict[str, Callable[[qindex.Store, qindex.Queue], Any]] = {
    "get": lambda store, queue: queue.get(),
    "get with a lease": lambda store, queue: queue.get(lease=100),
    "get in Python": lambda store, queue: queue._get(),
    "get with a timeout": lambda store, queue: queue._get(timeout=5),
    "newest": lambda store, queue: queue.get_newest(),
    "many": lambda store, queue: queue.get_many(3),
    "many with a timeout": lambda store, queue: queue.get_many(3, timeout=5),
    "of two queues": lambda store, queue: store.get(["empty", "q"], create=True),
    "of two, waiting": lambda store, queue: store.get(["empty", "q"], timeout=5, create=True),
}


@pytest.mark.parametrize("details", [False, True], ids=["plain", "with headers"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.sample(3)
def test_a_get_gives_or_the_message_is_ready(tmp_path: Path, verb: str, details: bool) -> None:
    count = 3 * ROUNDS + 200
    with qindex.open(tmp_path / "s", sync="never") as store:
        store.queue("empty")
        queue = store.queue("q")
        headers = {"a": 1} if details else None
        queue.publish_many([b"%d" % number for number in range(count)], headers=headers)
        acked: set[int] = set()

        def seen(given: Any) -> None:
            for message in given if isinstance(given, list) else [given]:
                if message.req_id not in acked:
                    acked.add(message.req_id)
                    queue.ack(message.req_id)

        raised = interrupted(lambda: VERBS[verb](store, queue), seen, 1)
        assert raised > ROUNDS / 20, "the alarms come while it works"
        for req_id in list(acked):  # an ack that an alarm kept from being made
            with suppress(qindex.AlreadyAcked, qindex.UnknownMessage):
                queue.ack(req_id)
        assert queue.unacked == 0
        assert len(acked) + queue.ready == count


def test_a_message_that_was_dropped_without_an_error_stays_unacked(tmp_path: Path) -> None:
    """As ever: who has its ReqId from elsewhere may ack it."""
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q")
        queue.publish(b"a")
        queue.get()
        assert queue.unacked == 1
        with pytest.raises(TypeError):
            len(queue.get_many(1), 1)  # type: ignore[call-arg]
        assert queue.unacked == 1
        queue.ack(0)


@pytest.mark.parametrize("form", [1, 2])
def test_what_is_dropped_by_an_error_goes_back(tmp_path: Path, form: int) -> None:
    """In format 1 as a delivery that counts."""
    with qindex.open(tmp_path / "s", format=form) as store:
        queue = store.queue("q")
        queue.publish(b"a")
        with pytest.raises(TypeError):
            len(queue.get())  # type: ignore[arg-type]
        assert (queue.unacked, queue.ready) == (0, 1)
        message = queue.get()
        assert message is not None
        assert message.delivery_count == (2 if form == 1 else 1)


def test_a_settled_message_takes_nothing_back(tmp_path: Path) -> None:
    """The message is delivered to somebody else by the time its first holder goes away."""
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q")
        queue.publish(b"a")
        holder = [queue.get()]
        queue.nack(holder[0])  # type: ignore[arg-type]
        again = queue.get()
        with pytest.raises(TypeError):
            len(holder.pop())  # type: ignore[arg-type]
        assert queue.unacked == 1
        queue.ack(again)  # type: ignore[arg-type]


STAND_INS: dict[str, Callable[[Path], Any]] = {
    "Queue": lambda path: Queue(path, sync="never"),
    "LifoQueue": lambda path: LifoQueue(path, sync="never"),
    "PriorityQueue": lambda path: PriorityQueue(path, sync="never"),
}


@pytest.mark.parametrize("kind", STAND_INS)
def test_a_stand_in_gives_or_keeps(tmp_path: Path, kind: str) -> None:
    """The original's own code is interrupted behind the taking. (A timer would also hit the locks
    of threading.Condition, which then stay locked, here as in the original.)"""
    queue = STAND_INS[kind](tmp_path / "s")
    for number in range(3):
        queue.put(number)

    def ring() -> None:
        raise Alarm

    notify, queue.not_full.notify = queue.not_full.notify, ring
    for _ in range(3):
        with pytest.raises(Alarm):
            queue.get_nowait()
    queue.not_full.notify = notify
    assert queue.qsize() == 3
    assert sorted(queue.get_nowait() for _ in range(3)) == [0, 1, 2]
    queue.close()
    with qindex.open(tmp_path / "s") as store:
        assert len(store.queue("queue")) == 0


def test_an_asyncio_stand_in_gives_or_keeps(tmp_path: Path) -> None:
    async def main() -> None:
        queue = AsyncQueue(tmp_path / "s", sync="never")
        queue.put_nowait(b"a")

        def ring(_: object) -> None:
            raise Alarm

        wakeup, queue._wakeup_next = queue._wakeup_next, ring  # type: ignore[attr-defined]
        with pytest.raises(Alarm):
            await queue.get()
        queue._wakeup_next = wakeup  # type: ignore[attr-defined]
        assert queue.qsize() == 1
        assert await queue.get() == b"a"
        queue.close()

    asyncio.run(main())


def test_queuelib_s_queue_gives_or_keeps(tmp_path: Path) -> None:
    count = ROUNDS + 200
    queue = FifoDiskQueue(str(tmp_path / "q"))
    for number in range(count):
        queue.push(b"%d" % number)
    given: set[bytes] = set()
    assert interrupted(queue.pop, given.add, 3) > ROUNDS / 20
    while (item := queue.pop()) is not None:
        given.add(item)
    assert given == {b"%d" % number for number in range(count)}
    queue.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file's open()
@pytest.mark.parametrize("timeout", [0, 5], ids=["", "with a timeout"])
@pytest.mark.parametrize("kind", ["qindex", "nsq", "nsq, small files"])
@pytest.mark.sample(3)
def test_a_disk_queue_gives_or_keeps(tmp_path: Path, kind: str, timeout: float) -> None:
    """A small file is finished, with a sync, at every second message."""
    rounds = ROUNDS // 10 if "small" in kind else ROUNDS
    count = 2 * rounds + 100
    (tmp_path / "d").mkdir()
    options: dict[str, Any] = {"format": kind.partition(",")[0]}
    if "small" in kind:
        options |= {"max_bytes_per_file": 20, "sync_every": 5}
    queue = DiskQueue("q", tmp_path / "d", **options)
    bodies = [b"%d" % number for number in range(10_000, 10_000 + count)]
    for body in bodies:
        queue.put(body)
    given: list[bytes] = []

    def seen(body: bytes) -> None:
        if given[-1:] != [body]:  # an alarm, behind the append
            given.append(body)

    assert interrupted(lambda: queue.get(timeout=timeout), seen, 4, rounds) > rounds / 20
    assert given == bodies[: len(given)]
    assert queue.depth == count - len(given)
    queue.close()
    with DiskQueue("q", tmp_path / "d", **options) as queue:
        assert [*given, *queue] == bodies


def test_a_disk_queue_closes_behind_an_ack_that_was_interrupted(tmp_path: Path) -> None:
    """The handler raised in a get, behind the ack of the message before and before it was noted."""
    with DiskQueue("q", tmp_path) as queue:
        queue.put(b"x")
        assert queue.get() == b"x"
        (taken,) = queue._files._taken.values()  # type: ignore[attr-defined]
        queue._files._queue.ack(taken)  # type: ignore[attr-defined]
    with DiskQueue("q", tmp_path) as queue:
        assert queue.depth == 0


@pytest.mark.parametrize("position", [1, 2, 3], ids=["first", "in a file", "last of a file"])
def test_what_was_given_back_comes_first_also_behind_a_close(tmp_path: Path, position: int) -> None:
    """The handler raises in the sync that a get makes, when its file may be gone already."""
    options: dict[str, Any] = {"format": "nsq", "max_bytes_per_file": 15, "sync_every": 1}
    bodies = [b"%d" % number for number in range(9)]
    with DiskQueue("q", tmp_path, **options) as queue:
        for body in bodies:
            queue.put(body)
        assert [queue.get() for _ in range(position - 1)] == bodies[: position - 1]
        files = queue._files
        count = files._count  # type: ignore[attr-defined]

        def ring() -> None:
            raise Alarm

        for _ in range(2):
            files._count = ring  # type: ignore[attr-defined]
            with pytest.raises(Alarm):
                queue.get()
            files._count = count  # type: ignore[attr-defined]
            assert queue.peek() == bodies[position - 1]
            assert queue.depth == len(bodies) - position + 1
    with DiskQueue("q", tmp_path, **options) as queue:
        assert queue.depth == len(bodies) - position + 1
        assert list(queue) == bodies[position - 1 :]
    assert sum(file.suffix == ".dat" for file in tmp_path.iterdir()) <= 2  # the last, and metadata


def test_a_roll_that_is_interrupted_writes_over_nothing(tmp_path: Path) -> None:
    """The next put would have begun the old file anew."""
    options: dict[str, Any] = {"format": "nsq", "max_bytes_per_file": 15}
    queue = DiskQueue("q", tmp_path, **options)
    for body in (b"0", b"1", b"2"):
        queue.put(body)
    files, (sync, raised) = queue._files, (queue._files.sync, [])

    def ring() -> None:
        raised.append(1)
        raise Alarm

    files.sync = ring  # type: ignore[method-assign]
    with pytest.raises(Alarm):
        queue.put(b"lost")
    files.sync = sync  # type: ignore[method-assign]
    queue.put(b"3")
    assert (raised, list(queue)) == ([1], [b"0", b"1", b"2", b"3"])
    queue.close()


def test_a_coroutine_that_is_ended_gives_back(tmp_path: Path) -> None:
    """Interrupted behind the taking, in a wait that has its message."""

    async def main() -> None:
        async with await qindex.aio.open(tmp_path / "s", sync="never") as store:
            queue = await store.queue("q")
            await queue.publish_many([LONG, LONG])

            def ring() -> None:
                queue._pass_on = pass_on  # type: ignore[method-assign]
                raise Alarm

            for take in (lambda: queue.get(timeout=5), lambda: queue.get_many(2, timeout=5)):
                pass_on, queue._pass_on = queue._pass_on, ring  # type: ignore[method-assign]
                with pytest.raises(Alarm):
                    await take()  # type: ignore[no-untyped-call]
                assert (queue._queue.unacked, queue._queue.ready) == (0, 2)

    asyncio.run(main())


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_an_iteration_that_is_interrupted_gives_back(tmp_path: Path, calls: int) -> None:
    """`async for`: the handler raises in the wait, behind the taking, or in the loop's body."""

    async def main() -> None:
        async with await qindex.aio.open(tmp_path / "s", sync="never") as store:
            queue = await store.queue("q")
            bodies = [b"a" + LONG, b"b" + LONG, b"c" + LONG]
            await queue.publish_many(bodies)
            pass_on, left, given = queue._pass_on, calls, []

            def ring() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise Alarm
                pass_on()

            queue._pass_on = ring  # type: ignore[method-assign]
            with suppress(Alarm):
                async for message in queue:
                    given.append(message.body)
                    await queue.ack(message)
                    if len(given) == 3:
                        break
            queue._pass_on = pass_on  # type: ignore[method-assign]
            assert left <= 0, "it was interrupted"
            assert queue._queue.unacked == 0
            rest = [m.body for m in queue._queue.browse()]
            assert given + rest == bodies

    asyncio.run(main())


def test_a_batch_that_is_interrupted_gives_back_by_no_freed_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that raises while the arrays of a batch are made larger, behind each call."""
    from qindex import buffers

    class Interrupted:
        def __init__(self, calls: int) -> None:
            self.calls = calls

        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> Any:
                self.calls -= 1
                result = getattr(ffi, name)(*arguments)
                if self.calls == 0:
                    raise Alarm
                return result

            return call

    ffi, raised = buffers.ffi, 0
    for calls in range(1, 20):
        reader = buffers.BatchReader()
        monkeypatch.setattr(buffers, "ffi", Interrupted(calls))
        try:
            reader._make_room(100, 1000)
        except Alarm:
            raised += 1
        monkeypatch.undo()
        assert reader.address == int(ffi.cast("uintptr_t", reader.messages))
        assert len(reader.messages) == reader.count
    assert 5 <= raised < 19


@pytest.mark.parametrize(
    "take",
    [
        lambda queue: [queue.get_newest()],
        lambda queue: [queue._get(timeout=5)],
        lambda queue: queue._get_many(1),
        lambda queue: queue._get_more([], 1, 1 << 20, 0),
    ],
)
def test_an_interrupt_gives_back_no_message_of_another_thread(
    tmp_path: Path, take: Callable[[qindex.Queue], list[qindex.Message]]
) -> None:
    """The handler of a signal raises behind each call in turn, and another thread took meanwhile.

    A call that had put its buffers back for others, and was interrupted then, gave back what the
    other thread had taken with them.
    """
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("a")
        queue.publish_many([b"x"] * 1000)
        queue.get_many(1)  # there are buffers from now on
        queue.ack(queue.get_newest())  # type: ignore[arg-type]
        calls = 0
        while interrupt_call(calls + 1, lambda: take(queue), queue):
            calls += 1
        assert calls > 1


def interrupt_call(at: int, take: Callable[[], list[qindex.Message]], queue: qindex.Queue) -> bool:
    """Raise behind the call number `at` that `take` makes. False: it makes fewer."""
    calls = 0
    others: list[qindex.Message] = []

    def behind_each_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "c_return"
        if event == "c_return" and calls == at:
            sys.setprofile(None)
            thread = threading.Thread(target=lambda: others.extend(take()))
            thread.start()
            thread.join()
            raise Alarm

    sys.setprofile(behind_each_call)
    with suppress(Alarm):
        take()
    sys.setprofile(None)
    for message in others:
        queue.ack(message)  # it is still with who took it
    return bool(others)
