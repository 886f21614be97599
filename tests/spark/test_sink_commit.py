"""The sink without Spark: staging and commits. (Killed ones: test_sink_kill.py.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

import pyarrow as pa
from spark_sinks import WRITE, bodies_in, both_queues, drain, make_store, rows, staged, write

from qindex.begun import FOLDER
from qindex.spark import sink_commit
from qindex.spark.sink_columns import check_columns
from qindex.spark.sink_stage import stage


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
        check_columns([(name, "string") for name in columns], queue)


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
