"""format("qindex"): what its tables say, how it is cut into tasks, what is chosen."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, unpack

import qindex
from qindex.brokers.reader import open_node

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex.look.messages import STATES
from qindex.spark import columns
from qindex.spark.plan import Unit, find, pack, plan
from qindex.spark.schema import TABLES, arrow_schema
from qindex.spark.tables import Choice, batches, default_names

EVERY = [column.name for column in TABLES["messages"]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a long and a short queue, and RabbitMQ's demo node, two folders down."""
    root = tmp_path_factory.mktemp("source")
    options = {"segment_entries": 64, "embed_below": 200}
    with qindex.open(root / "one", sync="never", expire=False, **options) as store:
        orders = store.queue("orders")
        for number in range(1000):
            # Below 300 none expires: a get would leave out those whose time has come by then.
            soon = number % 100 == 7 and number > 300
            ttl = 0.001 if soon else 1e6 if number % 2 else None
            orders.publish(b"x" * (number % 300), headers={"n": number}, ttl=ttl)
        orders.ack_many(orders.get_many(300)[50:])
        orders.flush()
        store.queue("events.a").publish(b"a", persistent=False)
        failed = store.queue("failed", dead_letters=True)
        failed.publish_many([b"rejected", b"next"])
        failed.nack(failed.get(), requeue=False)
        failed.publish(b"later", delay=1e6)
    (root / "two" / "deep").mkdir(parents=True)
    unpack(DEMO_NODE, root / "two" / "deep")
    return root


def read(units: list[Unit], table: str, names: list[str], **choice: Any) -> list[dict[str, Any]]:
    found = []
    for unit in units:
        for batch in batches([unit], table, names, Choice(**choice)):
            batch.validate(full=True)
            assert batch.schema == arrow_schema(table, names)
            found += batch.to_pylist()
    return found


def test_many_small_directories_are_one_batch(tmp_path: Path) -> None:
    for number in range(5):
        with qindex.open(tmp_path / f"{number}", segment_entries=64 << number % 2) as store:
            store.queue("kept").publish_many([b"x"] * 70)
            store.queue("other").publish(b"y")
            if number % 2:
                store.queue("kept").flush()
    units = find([str(tmp_path)])
    for table in ("records", "messages"):
        names = ["size", *(name for name in default_names(table) if name != "size")]
        for choice in (Choice(), Choice(queues=("kept",), first=3, last=67)):
            (batch,) = batches(units, table, names, choice)
            alone = [row for unit in units for row in read([unit], table, names, **asdict(choice))]
            assert batch.to_pylist() == alone
            assert {row["source"] for row in alone} == {unit.source for unit in units}
            assert all(row["queue"] in ("kept", "other") for row in alone)
            segments = {(row["broker"], row["segment"], row["slot"]) for row in alone}
            assert {("0", 1, 3), ("1", 0, 67)} <= segments
        (only,) = batches(units, table, ["size"], Choice())
        assert only.num_rows == 5 * 71
    assert list(batches(units, "records", ["size"], Choice(queues=("nobody",)))) == []


@pytest.mark.slow
@pytest.mark.parametrize("bodies_bytes", [300, 8 << 20])
def test_messages_of_many_stores_share_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bodies_bytes: int
) -> None:
    monkeypatch.setattr(columns, "BODIES_BYTES", bodies_bytes)
    options: dict[str, Any] = {"message_file_size": 1 << 16, "embed_below": 100}
    for number in range(4):
        with qindex.open(tmp_path / f"{number}", sync="never", **options) as store:
            queue = store.queue("orders")
            for size in range(0, 1600, 50):
                queue.publish(b"%d" % number * size, headers={"n": size} if size % 100 else None)
            store.queue("later").publish(b"later", delay=1e6)
            if number % 2:  # its bodies get another file
                queue.ack_many(queue.get_many(30)[:29])
                queue.flush()
                store.queue("other").publish_many([b"z" * 3000] * 30)
                assert store.compact() > 0
    units = find([str(tmp_path)])
    for states in (frozenset(STATES), frozenset(["delayed"]), frozenset(["ready"])):
        alone = [row for unit in units for row in read([unit], "messages", EVERY, states=states)]
        found = list(batches(units, "messages", EVERY, Choice(states=states)))
        assert [row for batch in found for row in batch.to_pylist()] == alone
        assert alone
        assert len(found) == 1 or bodies_bytes == 300
    offsets = {(row["broker"], row["offset"] is None) for row in alone if row["file"]}
    assert offsets >= {("0", False), ("1", True)}


def test_every_directory_is_found_and_named(fleet: Path) -> None:
    units = find([str(fleet)])
    assert [(unit.format, unit.broker.split("/")[0]) for unit in units] == [
        ("qindex", "one"),
        ("rabbitmq", "two"),
    ]
    assert find([f"{fleet}/*"]) == units == find([f"{fleet}/one", str(fleet)])
    assert find([str(fleet)], "nsq") == []
    with pytest.raises(FileNotFoundError):
        find([str(fleet / "three")])


def test_a_store_within_another_is_found(tmp_path: Path) -> None:
    for path in (tmp_path / "outer", tmp_path / "inner", tmp_path / "outer-most"):
        with qindex.open(path) as store:
            store.queue("orders").publish(b"x")
    (tmp_path / "inner").rename(tmp_path / "outer/inner")  # open() makes no store there
    outer, inner = f"{tmp_path}/outer", f"{tmp_path}/outer/inner"
    assert [unit.broker for unit in find([inner, outer])] == [".", "inner"]
    sources = [unit.source for unit in find([str(tmp_path)])]
    assert sources == [outer, f"{outer}-most", inner]
    names = [unit.broker for unit in find([f"{tmp_path}/*", inner])]
    assert names == ["outer", "outer-most", "outer/inner"]


@pytest.mark.parametrize("table", ["messages", "records", "files"])
def test_directories_of_several_formats_are_read_together(fleet: Path, table: str) -> None:
    one, two = find([str(fleet)])
    names = default_names(table)
    alone = {unit.format: read([unit], table, names) for unit in (one, two)}
    assert alone["qindex"]
    for units in ([one, two], [two, one], [one, two, one]):
        found = [
            row for batch in batches(units, table, names, Choice()) for row in batch.to_pylist()
        ]
        assert found == [row for unit in units for row in alone[unit.format]]


def test_messages_of_a_store_are_what_browse_shows(fleet: Path) -> None:
    found = read(find([f"{fleet}/one"]), "messages", EVERY)
    with qindex.open(fleet / "one", read_only=True) as store:
        browsed = [m for name in store.queues() for m in store.queue(name).browse()]
    assert len(found) == len(browsed) == 754
    for row, message in zip(found, browsed, strict=True):
        assert (row["queue"], row["req_id"]) == (message.queue, message.req_id)
        assert (row["body"], row["size"]) == (message.body, len(message.body))
        assert row["redelivered"] == message.redelivered
        assert row["persistent"] == message.persistent
        assert (row["segment"], row["slot"]) == divmod(message.req_id, 64)
        expires_at = row["expires_at"].timestamp() if row["expires_at"] else None
        assert expires_at == message.expires_at
        assert row["headers"] == (f'{{"n": {message.headers["n"]}}}' if message.headers else None)
        assert (row["msg_id"] is None) == (row["file"] is None) == (row["offset"] is None)


def test_messages_of_a_dead_node_are_what_its_reader_gives(fleet: Path) -> None:
    found = read(find([f"{fleet}/two"]), "messages", EVERY)
    with open_node(fleet / "two") as node:
        told = [(queue, message) for queue in node.queues for message in queue.messages()]
        expected: list[Any] = [
            (q.group, q.name, m.seq, m.body, m.exchange, m.routing_keys, m.file, m.offset)  # type: ignore[attr-defined]
            for q, m in told
        ]
    keys = ("vhost", "queue", "req_id", "body", "exchange", "routing_keys", "file", "offset")
    assert [tuple(row[key] for key in keys) for row in found] == expected
    assert len(found) > 100


def test_states_and_bounds_choose_rows(fleet: Path) -> None:
    units = find([f"{fleet}/one"])
    names = ["queue", "req_id", "state", "expires_at"]
    rows = read(units, "messages", names)
    for state in ("ready", "delayed", "unacked", "expired", "dead"):
        some = read(units, "messages", names, states=frozenset([state]))
        assert some == [row for row in rows if row["state"] == state]
        assert some
    some = read(units, "messages", names, first=400, last=499)
    assert [row["req_id"] for row in some] == list(range(400, 500))
    assert {row["queue"] for row in read(units, "messages", names, queues=("ev*",))} == {"events.a"}
    soon = 10**15 * 2
    assert len(read(units, "messages", names, expires_before_us=soon)) == sum(
        row["expires_at"] is not None for row in rows
    )
    assert read(units, "messages", names, expires_after_us=soon) == []


@pytest.mark.parametrize("table", ["messages", "records"])
def test_a_huge_store_is_split_and_nothing_is_read_twice_or_left_out(
    fleet: Path, table: str
) -> None:
    units = find([f"{fleet}/one"])
    names = ["queue", "req_id", "file", "offset"]
    tasks = plan(units, table, target_bytes=8192)
    assert len(tasks) > 5
    parts = [row for task in tasks for row in read(task, table, names)]

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["queue"], row["req_id"], row["file"] or "", row["offset"] or 0)

    assert sorted(parts, key=order) == sorted(read(units, table, names), key=order)


def test_a_store_is_split_for_the_cores_that_are_there(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = find([f"{fleet}/one"])
    assert len(plan(units, "messages", tasks_min=4)) == 1  # too little for more than one task
    monkeypatch.setattr("qindex.spark.plan._SPLIT_MIN", 1024)
    assert 3 <= len(plan(units, "messages", tasks_min=4)) <= 6
    assert len(plan(units, "messages", tasks_min=0)) == 1
    three = find([f"{fleet}/one"]) * 3
    assert len(plan(three, "messages", tasks_min=4)) == 4


def test_small_directories_are_packed_by_bytes() -> None:
    units = [Unit(f"/b/{n}", str(n), "qindex", 1 << (n % 20)) for n in range(10_000)]
    tasks = plan(units, "messages", target_bytes=64 << 20, tasks_min=4)
    wanted = sum(unit.bytes + 65536 for unit in units) / ((64 << 20) + 65536)
    assert len(tasks) == 16 == 4 * round(wanted / 4)  # as many for each of four cores
    assert len(plan(units, "messages", target_bytes=64 << 20)) == round(wanted) == 18
    weights = [sum(unit.bytes for unit in task) for task in tasks]
    assert max(weights) < 1.2 * min(weights)
    assert sorted(unit.source for task in tasks for unit in task) == sorted(u.source for u in units)
    assert pack([], 0) == []


def test_queues_and_files_account_for_all(fleet: Path) -> None:
    units = find([str(fleet)])
    queues = read(units, "queues", default_names("queues"))
    live = read(units, "messages", ["queue", "state"])
    assert sum(row["live"] for row in queues) == len(live)
    assert all(row["found"] == row["live"] + row["gone"] + row["lost"] for row in queues)
    files = read(units, "files", default_names("files"))
    assert {row["kind"] for row in files} == {"journal", "segment", "messages"}
    for row in files:
        assert (Path(row["source"]) / row["file"]).stat().st_size == row["bytes"]


def test_a_directory_beyond_reading_is_a_finding_and_no_failure(
    fleet: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(fleet / "one", tmp_path / "broken")
    (broken / "store.meta").write_bytes(b"?" * 8192)
    units = find([str(tmp_path)])
    assert read(units, "messages", ["queue"]) == []
    assert [row["kind"] for row in read(units, "findings", ["kind"])] == ["unreadable"]


# --- through Spark ------------------------------------------------------------------------------


def test_spark_sees_the_same_rows(spark: Any, fleet: Path) -> None:
    frame = spark.read.format("qindex").option("columns", "*").load(f"{fleet}/*")
    rows = frame.toArrow().to_pylist()
    expected = read(find([str(fleet)]), "messages", EVERY)

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return (
            row["source"],
            row["vhost"] or "",
            row["queue"],
            row["priority"] or 0,
            row["req_id"],
        )

    assert sorted(rows, key=order) == sorted(expected, key=order)


def test_a_frame_that_is_used_twice_gives_right_rows(spark: Any, fleet: Path) -> None:
    """Spark 4.3.0 mixes up the filters of a source that accepts them."""
    frame = spark.read.format("qindex").load(str(fleet / "one"))
    some = frame.where("req_id = 400").select("queue", "req_id")
    assert frame.count() == 754
    assert some.collect() == [("orders", 400)]
    assert frame.count() == 754
    other = frame.where("req_id = 401").select("req_id")
    assert some.crossJoin(other).collect() == [("orders", 400, 401)]
    assert some.union(frame.select("queue", "req_id")).count() == 755


def test_a_schema_chooses_columns_and_options_choose_rows(spark: Any, fleet: Path) -> None:
    reader = spark.read.format("qindex").schema("queue string, size long, body binary")
    frame = reader.option("queues", "orders").option("minReqId", "900").load(str(fleet))
    assert frame.columns == ["queue", "size", "body"]
    assert frame.where("size = length(body)").count() == frame.count() == 100
    with pytest.raises(Exception, match="is long, not int"):
        spark.read.format("qindex").schema("size int").load(str(fleet)).count()
    with pytest.raises(Exception, match="no column nonsense"):
        spark.read.format("qindex").option("columns", "nonsense").load(str(fleet)).count()


def test_sql_over_the_other_tables(spark: Any, fleet: Path) -> None:
    for table in ("queues", "records"):
        frame = spark.read.format("qindex").option("table", table).load(str(fleet))
        frame.createOrReplaceTempView(table)
    told = spark.sql("select sum(live) from queues where format = 'qindex'").collect()
    assert told == [(754,)]
    kinds = {row.kind for row in spark.sql("select distinct kind from records").collect()}
    assert {"publish", "transient"} <= kinds


def test_a_path_without_anything_has_no_rows(spark: Any, tmp_path: Path) -> None:
    assert spark.read.format("qindex").load(str(tmp_path)).count() == 0


def test_what_goes_to_workers_can_be_pickled(fleet: Path) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
    from pyspark.sql.types import LongType, StructField, StructType

    from qindex.spark.source import QindexSource

    schema = StructType([StructField("req_id", LongType())])
    made = QindexSource({"path": str(fleet), "columns": "req_id"}).reader(schema)
    reader = pickle.loads(pickle.dumps(made))  # noqa: S301
    tasks = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301
    rows = sum(batch.num_rows for task in tasks for batch in reader.read(task))
    assert rows == len(read(find([str(fleet)]), "messages", ["req_id"]))


def test_a_huge_store_gives_each_core_as_much_as_the_others(tmp_path: Path) -> None:
    mib = 1 << 20
    folder = tmp_path / "queues/x"
    folder.mkdir(parents=True)
    for number in range(30):
        with (folder / f"{number}.idx").open("wb") as file:
            file.truncate(100 * mib)
    store = Unit(str(tmp_path), "", "qindex", 3000 * mib)
    for cores, tasks, most in ((2, 6, 500), (4, 4, 800), (8, 8, 400)):
        found = plan([store], "records", tasks_min=cores)
        assert len(found) == tasks
        assert max(sum(unit.bytes for unit in task) for task in found) == most * mib
        assert sorted(name for task in found for unit in task for name in unit.files) == sorted(
            f"queues/x/{number}.idx" for number in range(30)
        )


def test_a_folder_that_cannot_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with qindex.open(tmp_path / name / "store") as store:
            store.queue("a").publish(b"x")

    def formats_in(folder: Path) -> set[str]:
        if folder.name == "one":
            raise PermissionError(13, "Permission denied", str(folder))
        return set()

    monkeypatch.setattr("qindex.spark.search.formats_in", formats_in)
    found = {unit.broker: unit.problem for unit in find([f"{tmp_path}/*"])}
    assert found == {
        "one": "it cannot be looked at: Permission denied",
        "one/store": "",
        "two/store": "",
    }
