"""The sink without Spark: staging, and a commit that is killed at every line of it.

python tests/spark/test_sink_commit.py      all lines, and says how many there were
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import qindex

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex.spark import sink_commit  # noqa: E402 - behind the skip
from qindex.spark.folders import FOLDER  # noqa: E402
from qindex.spark.sink_commit import Write  # noqa: E402
from qindex.spark.sink_stage import check_columns, stage  # noqa: E402

WRITE = "a-query"
SHARED = Path("/dev/shm")  # noqa: S108 - a kill is not a power cut: memory serves
MEMORY = SHARED if SHARED.is_dir() else None
EACH = 3  # lines: so often with a consumer
SETTLING = 40  # lines, about, of settling what was cut off


def rows(partition: int, batch: int = 7) -> Any:
    """For two queues, in turn; bodies say where they come from. One is too big to be embedded."""
    bodies = [f"{batch}/{partition}/{i}".encode() for i in range(20)]
    bodies[5] += b"." * 5000
    queues = ["even" if i % 2 == 0 else "odd" for i in range(20)]
    return pa.record_batch([pa.array(bodies), pa.array(queues)], names=["body", "queue"])


def staged(store: str, batch: int = 7) -> list[Any]:
    folder = Path(store, FOLDER, WRITE)
    return [stage(folder, f"{batch}-{p}", None, iter([rows(p, batch)])) for p in range(2)]


def write(store: str) -> Write:
    return Write(store, WRITE)


def make_store(path: Path) -> str:
    qindex.open(path / "store").close()
    return str(path / "store")


def expected(queue: str, batch: int = 7) -> list[bytes]:
    """In the order of partitions."""
    both = [rows(partition, batch).to_pylist() for partition in range(2)]
    return [row["body"] for part in both for row in part if row["queue"] == queue]


def bodies_in(store: str) -> dict[str, list[bytes]]:
    with qindex.open(store, read_only=True) as opened:
        return {
            name: [message.body for message in opened.queue(name).browse()]
            for name in opened.queues()
        }


def both_queues(*batches: int) -> dict[str, list[bytes]]:
    return {
        queue: [body for batch in batches for body in expected(queue, batch)]
        for queue in ("even", "odd")
    }


def test_what_is_staged_is_seen_by_nobody_before_its_commit(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    files = staged(store)
    assert bodies_in(store) == {}
    write(store).commit(7, files)
    assert bodies_in(store) == both_queues(7)
    assert not list(Path(store, FOLDER).glob("*/*.arrow"))


def test_a_batch_that_is_done_is_not_published_again(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write(store).commit(7, staged(store))
    write(store).commit(7, staged(store))
    write(store).commit(6, staged(store, 6))
    write(store).commit(8, staged(store, 8))
    assert bodies_in(store) == both_queues(7, 8)
    assert not list(Path(store, FOLDER).glob("*/*.arrow"))


def test_of_two_attempts_of_a_task_the_one_that_spark_names_counts(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    staged(store)  # of tasks whose driver never heard of them
    write(store).commit(7, staged(store))
    assert bodies_in(store) == both_queues(7)
    assert not list(Path(store, FOLDER).glob("*/*.arrow"))


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    def failing() -> Iterator[Any]:
        yield rows(0)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        stage(Path(store, FOLDER, WRITE), "7-0", None, failing())
    assert list(Path(store, FOLDER, WRITE).iterdir()) == []


def test_a_store_that_somebody_else_has_is_refused_with_advice_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)
    files = staged(store)
    with (
        qindex.open(store),
        pytest.raises(qindex.StoreLocked, match=r"lockWait.*nothing is lost"),
    ):
        write(store).commit(7, files)
    write(store).commit(7, files)
    assert bodies_in(store) == both_queues(7)


def test_an_abort_removes_what_was_staged(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write(store).abort(staged(store))
    assert list(Path(store, FOLDER, WRITE).iterdir()) == []


@pytest.mark.parametrize("consumed", [False, True], ids=["at once", "when a consumer made room"])
def test_on_a_full_disk_a_commit_is_finished_by_the_next_even_after_an_abort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consumed: bool
) -> None:
    store = make_store(tmp_path)
    files = staged(store)
    publish, published = sink_commit._publish_unit, []

    def full_disk(store: qindex.Store, unit: Any, batches: Any) -> None:
        if len(published) == 2:
            raise qindex.DiskFull("the disk is full")
        published.append(unit)
        publish(store, unit, batches)

    monkeypatch.setattr(sink_commit, "_publish_unit", full_disk)
    with pytest.raises(qindex.DiskFull):
        write(store).commit(7, files)
    write(store).abort(files)  # as Spark does
    monkeypatch.undo()
    had = drain(store) if consumed else {"even": [], "odd": []}
    write(store).commit(7, staged(store))
    found = bodies_in(store)
    assert {name: had[name] + found[name] for name in had} == both_queues(7)


def test_a_part_that_no_frame_can_hold_is_published_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qindex.spark import sink_stage

    monkeypatch.setattr(sink_stage, "SLICE_BYTES_MAX", 200)
    monkeypatch.setattr(sink_commit, "FRAME_BYTES_MAX", 1000)
    store = make_store(tmp_path)
    write(store).commit(7, staged(store))
    assert bodies_in(store) == both_queues(7)


def test_a_message_keeps_what_its_row_says(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "body": "plain",
                "headers": None,
                "expires_at": None,
                "persistent": None,
                "redelivered": None,
            },
            {
                "body": "x",
                "headers": '{"a": [1, "b"]}',
                "expires_at": 4_000_000_000_000_000,
                "persistent": False,
                "redelivered": True,
            },
        ],
        schema=pa.schema(
            [
                ("body", pa.string()),
                ("headers", pa.string()),
                ("expires_at", pa.timestamp("us", "UTC")),
                ("persistent", pa.bool_()),
                ("redelivered", pa.bool_()),
            ]
        ),
    )
    folder = Path(store, FOLDER, WRITE)
    write(store).commit(0, [stage(folder, "0-0", "one", iter([batch]))])
    with qindex.open(store) as opened:
        plain, special = opened.queue("one").get_many(2)
    assert (plain.body, plain.headers, plain.expires_at) == (b"plain", {}, None)
    assert (plain.persistent, plain.redelivered) == (True, False)
    assert (special.body, special.headers) == (b"x", {"a": [1, "b"]})
    assert special.expires_at == 4_000_000_000
    assert (special.persistent, special.redelivered) == (False, True)


@pytest.mark.parametrize(
    ("columns", "queue", "text"),
    [
        (["queue"], None, "column body"),
        (["body"], None, "name the queue"),
        (["body", "expire_at"], "q", "unknown columns expire_at"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    columns: list[str], queue: str | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        check_columns(columns, queue)


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [("queue", ["a", None], "1 rows have no queue"), ("body", [b"x", None], "1 rows have no body")],
)
def test_a_row_without_a_queue_or_a_body_is_refused(
    tmp_path: Path, column: str, values: list[Any], text: str
) -> None:
    given = {"body": [b"a", b"b"], "queue": ["q", "q"], column: values}
    batch = pa.RecordBatch.from_pydict(given)
    with pytest.raises(ValueError, match=text):
        stage(Path(make_store(tmp_path), FOLDER, WRITE), "0-0", None, iter([batch]))


# --- killed at every line ------------------------------------------------------------------------


def in_a_child(action: Any) -> int:
    """Runs it in a fork, which inherits no open store; its exit code, or minus its signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_before(line: int, action: Any) -> None:
    """Does it, killed before the n-th line of sink_commit.py."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith("sink_commit.py"):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)


def drain(store: str) -> dict[str, list[bytes]]:
    """What a consumer does that gets the store's lock before the query is started again."""
    with qindex.open(store) as opened:
        had: dict[str, list[bytes]] = {}
        for name in opened.queues():
            queue = opened.queue(name)
            messages = queue.get_many(1000)
            queue.ack_many(messages)
            had[name] = [message.body for message in messages]
        return had


def kill_at(line: int, *, drained: bool) -> bool:
    """Kill a commit there, then try again as Spark does; whether it was killed.

    `drained`: a consumer has all there is in between, and it was killed while it opened the store.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store = make_store(Path(folder))
        write(store).commit(6, staged(store, 6))
        had = drain(store)
        files = staged(store)
        code = in_a_child(lambda: kill_before(line, lambda: write(store).commit(7, files)))
        assert code in (0, -signal.SIGKILL), code
        if drained:
            in_a_child(lambda: kill_before(line // EACH % SETTLING, lambda: qindex.open(store)))
            for name, bodies in drain(store).items():
                had[name] += bodies
        write(store).commit(7, staged(store))
        found = bodies_in(store)
        assert {name: had[name] + found[name] for name in had} == both_queues(6, 7), line
        with qindex.open(store) as opened:
            assert opened.check() == []
        return code != 0


def cut_off(tmp_path: Path) -> tuple[str, list[Any]]:
    """A store whose commit of batch 7 was killed between its two queues' first parts."""
    store = make_store(tmp_path)
    files = staged(store)

    def commit() -> None:
        publish, calls = sink_commit._publish_unit, count()

        def killed(*given: Any) -> None:
            if next(calls) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            publish(*given)

        sink_commit._publish_unit = killed
        write(store).commit(7, files)

    assert in_a_child(commit) == -signal.SIGKILL
    return store, files


def test_a_store_is_not_opened_if_what_is_there_cannot_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a consumer would ack it, and the retry would publish it once more."""
    store, files = cut_off(tmp_path)
    monkeypatch.setattr(Write, "_write", lambda *_: os.close(1 << 20))
    with pytest.raises(OSError, match="Bad file descriptor"):
        qindex.open(store)
    monkeypatch.undo()
    had = drain(store)  # the lock was given back
    assert sum(map(len, had.values())) == 10
    write(store).commit(7, files)
    found = bodies_in(store)
    assert {name: sorted(had.get(name, []) + found[name]) for name in found} == {
        name: sorted(bodies) for name, bodies in both_queues(7).items()
    }


def test_to_write_down_what_is_there_takes_no_space(tmp_path: Path) -> None:
    store, _ = cut_off(tmp_path)
    spare = Path(store, FOLDER, WRITE, "state.new").stat()
    qindex.open(store).close()
    state = Path(store, FOLDER, WRITE, "state.json").stat()
    assert (state.st_ino, state.st_size <= spare.st_size) == (spare.st_ino, True)


def test_a_damaged_state_stops_the_sink_but_no_consumer(tmp_path: Path) -> None:
    store, files = cut_off(tmp_path)
    Path(store, FOLDER, WRITE, "state.json").write_bytes(b"?")
    assert sum(map(len, drain(store).values())) == 10
    with pytest.raises(ValueError, match="Expecting value"):
        write(store).commit(7, files)


def test_who_opens_a_store_after_a_cut_off_commit_still_says_the_rules(tmp_path: Path) -> None:
    store, _ = cut_off(tmp_path)
    with qindex.open(store) as opened:
        queue = opened.queue("even", dead_letters=True)
        queue.nack(queue.get(), requeue=False)
        assert queue.dead == 1
        assert not opened._find_queue("odd", create=False)._has_rules


def kill_everywhere() -> int:
    """At each line, at some with a consumer in between; how many there are."""
    for line in count():
        was_killed = [kill_at(line, drained=drained) for drained in {False, line % EACH == 0}]
        if not all(was_killed):
            return line
    raise AssertionError


@pytest.mark.slow
def test_killed_at_any_line_a_commit_is_finished_by_the_next_without_loss_or_doubles() -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 100  # lines


if __name__ == "__main__":
    print(kill_everywhere())
