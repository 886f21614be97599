"""What reads a whole store says what is missing there: in words, in JSON, and by exit code 1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import queue_directory

import qindex

LOST = "1 queue of which the counts are here has no folder any more, with 6 messages"


@pytest.fixture
def robbed(tmp_path: Path) -> Path:
    """A store of format 2 from which somebody removed the folder of a queue with 6 messages."""
    path = tmp_path / "robbed"
    with qindex.open(path, format=2) as store:
        for name in ("a", "b", "c"):
            queue = store.queue(name)
            queue.publish_many([b"%d" % i for i in range(10)])
            queue.ack_many(queue.get_many(4))
    shutil.rmtree(queue_directory(path, "b"))
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls {s}", LOST),
        ("ls {s} --json", LOST),
        ("stats {s}", LOST),
        ("stats {s} --json", LOST),
        ("check {s}", LOST),
        ("check {s} --json", LOST),
        ("salvage {s} --out {o}", LOST),
        ("salvage {s} --out {o} --json", LOST),
        ("export {s} --out {o}.jsonl", "1 damaged place"),
        ("cat {s}", "1 damaged place"),
        ("redrive {s}", "1 damaged place"),
        ("redrive {s} --dry-run", "1 damaged place"),
        ("purge {s} a --yes", "1 damaged place"),
        ("backup {s} {o}", "1 damaged place"),
        ("du {s}", "1 damaged place"),
        ("du {s} --json", "1 damaged place"),
        ("top {s} --once", ""),
        ("diff {s} {s}", "1 damaged place"),
        ("upgrade {s}", LOST),
        ("upgrade {s} --dry-run", LOST),
        ("replay {s} a", LOST),
        ("replay {s} --verify", LOST),
    ],
)
def test_a_queue_without_a_folder_is_missed(
    run: Any, robbed: Path, tmp_path: Path, line: str, words: str
) -> None:
    asked = [word.format(s=robbed, o=tmp_path / "out") for word in line.split()]
    code, out, err = run(*asked)
    assert code in ((3,) if asked[0] == "diff" else (1,)), out + err
    assert words in out + err


NAMELESS = "1 queue whose name is damaged"


@pytest.fixture(params=["gone", "empty"])
def nameless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store in which nothing says any more whose folder one of three is."""
    path = tmp_path / "nameless"
    with qindex.open(path, format=2) as store:
        for name in ("a", "b", "c"):
            store.queue(name).publish_many([b"%d" % i * 5000 for i in range(5)])
    meta = queue_directory(path, "b") / "queue.meta"
    meta.unlink() if request.param == "gone" else meta.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    "line",
    [
        "ls {s}",
        "stats {s}",
        "export {s} --out {o}.jsonl",
        "export {s} --out {o} --form files --json",
        "cat {s}",
        "cat {s} --jsonl",
        "peek {s} a",
        "du {s}",
        "du {s} --explain",
        "du {s} --json",
        "trace {s} 00000000000000000000000000000000",
        "trace {s} no-such-id",
        "diff {s} {s}",
        "spark-export {s} --out {o}",
        "spark-export {s} --out {o} --json",
        "plot files {s} --json",
        "upgrade {s}",
        "replay {s} a",
        "replay {s} a --at 1 --messages",
        "replay {s} --verify",
    ],
)
@pytest.mark.sample(4)
def test_a_queue_without_a_name_is_told(
    run: Any, nameless: Path, tmp_path: Path, line: str
) -> None:
    if line.startswith("spark"):
        pytest.importorskip("pyarrow")
    asked = [word.format(s=nameless, o=tmp_path / "out") for word in line.split()]
    code, out, err = run(*asked)
    assert code == (3 if asked[0] == "diff" else 1), out + err
    assert NAMELESS in out + err


def test_bodies_of_a_queue_that_is_not_read_are_not_called_garbage(
    run: Any, nameless: Path, tmp_path: Path
) -> None:
    _, out, _ = run("du", nameless, "--explain")
    assert "25.1 kB garbage or not read" in out
    assert "compact() would free" not in out
    assert "To free" not in out
    _, out, _ = run("du", nameless, "--json")
    [file] = [each for each in json.loads(out)["files"] if each["kind"] == "messages"]
    assert file["garbage_bytes"] is None
    assert file["bytes"] > file["live_bytes"] > 2 * 25_000
    with qindex.open(tmp_path / "sound", format=2) as store:
        queue = store.queue("q")
        queue.publish_many([b"x" * 5000] * 5)
        queue.ack_many(queue.get_many(2))
    code, out, _ = run("du", tmp_path / "sound")
    assert (code, "10.1 kB garbage + 0 B room" in out) == (0, True), out


def test_of_the_parts_of_a_store_one_says_what_has_no_name(nameless: Path) -> None:
    pytest.importorskip("pyarrow")
    from qindex.spark.export import told
    from qindex.spark.plan import find, plan
    from qindex.spark.tables import Choice, batches

    units = [
        unit for task in plan(find([str(nameless)]), "messages", target_bytes=1) for unit in task
    ]
    assert [unit.queue for unit in units] == ["a", "c"]
    with told() as texts:
        rows = sum(each.num_rows for each in batches(units, "messages", ["req_id"], Choice()))
    assert rows == 10
    assert len(texts) == 1
    assert NAMELESS in texts[0]
    for name in ("a", "c"):
        (queue_directory(nameless, name) / "queue.meta").unlink()
    units = [
        unit for task in plan(find([str(nameless)]), "messages", target_bytes=1) for unit in task
    ]
    with told() as texts:
        assert not list(batches(units, "messages", ["req_id"], Choice()))
    assert len(texts) == 1
    assert "3 queues whose name is damaged" in texts[0]


@pytest.mark.parametrize(
    "line",
    [
        "ls {s}",
        "ls {s} --json",
        "stats {s}",
        "check {s}",
        "export {s} --out {o}.jsonl",
        "export {s} q --out {o}.jsonl",
        "spark-export {s} --out {o}",
        "salvage {s} --out {o}",
    ],
)
@pytest.mark.parametrize("with_catalog", [True, False])
def test_lost_settings_and_data_are_told(
    run: Any, tmp_path: Path, line: str, with_catalog: bool
) -> None:
    if line.startswith("spark"):
        pytest.importorskip("pyarrow")
    path = tmp_path / "s"
    filled(path)
    shutil.rmtree(path / "commits")
    if not with_catalog:
        (path / "catalog").unlink(missing_ok=True)
    code, out, err = run(*[word.format(s=path, o=tmp_path / "out") for word in line.split()])
    assert code == 1, out + err
    assert "data and settings of the store and of its queues are lost" in out + err


def test_salvage_counts_lost_settings_and_data_as_left_out(run: Any, tmp_path: Path) -> None:
    filled(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "commits")
    code, out, _ = run("salvage", tmp_path / "s", "--out", tmp_path / "new", "--json")
    told = json.loads(out)
    assert code == 1
    [text] = told["left_out"]
    assert text.startswith("commits/1.log: it is missing")
    assert sum(queue["messages"] for queue in told["queues"]) == 2
    assert told["lost"] == 0


@pytest.mark.parametrize("line", ["ls {s}", "stats {s}", "salvage {s} --out {o}", "redrive {s}"])
def test_a_queue_that_was_deleted_is_not_missed(run: Any, tmp_path: Path, line: str) -> None:
    path = tmp_path / "s"
    with qindex.open(path, format=2) as store:
        for name in ("a", "b"):
            store.queue(name).publish(b"x")
    with qindex.open(path) as store:
        store.delete_queue("b")
    code, out, err = run(*[word.format(s=path, o=tmp_path / "out") for word in line.split()])
    assert (code, err) == (0, ""), out


def test_findings_have_it_at_once_and_once(robbed: Path, tmp_path: Path) -> None:
    with qindex.open(robbed, read_only=True) as store:
        [found] = store.findings
        assert (found.severity, found.where, found.lost) == ("damage", "queues", 6)
        store.queues()
        store.check()
        assert store.findings == [found]
    with qindex.open(robbed) as store:
        store.backup(tmp_path / "copy")
        [found] = store.findings
        assert found.lost == 6


def test_a_reader_does_not_miss_what_a_writer_has_deleted_since(tmp_path: Path) -> None:
    """It has the counts of the moment at which it was opened."""
    with qindex.open(tmp_path, format=2) as store:
        for name in ("a", "b"):
            store.queue(name).publish(b"x")
    with qindex.open(tmp_path, read_only=True) as reader:
        with qindex.open(tmp_path) as store:
            store.delete_queue("b")
        assert reader.queues() == ["a"]
        assert reader.findings == []


def test_a_queue_that_is_deleted_while_it_is_listed_is_not_nameless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has listed the folder finds no name in it."""
    from qindex.look.stores import nameless_queue_count

    with qindex.open(tmp_path, format=2) as store:
        store.queue("a").publish(b"x")
        store.queue("b").publish(b"x")
    with qindex.open(tmp_path, read_only=True) as reader:
        folder = queue_directory(tmp_path, "b")
        meta = (folder / "queue.meta").read_bytes()
        (folder / "queue.meta").unlink()  # a deletion that is under way
        assert reader.queues() == ["a"]
        assert nameless_queue_count(reader) == 1
        shutil.rmtree(folder)
        assert reader.queues() == ["a"]
        assert nameless_queue_count(reader) == 0
        folder.mkdir()  # and made anew
        (folder / "queue.meta").write_bytes(meta)
        assert nameless_queue_count(reader) == 0


def filled(path: Path) -> None:
    with qindex.open(path, format=2) as store:
        store.queue("dead")
        queue = store.queue("q", ttl=3600, max_messages=100, dead_letters="dead", lease=7)
        queue.publish_many([b"1", b"2"])
        queue.data.update({b"k": b"v", b"long": bytes(300_000)})
        queue.data[b"too"] = bytes(300_000)  # together more than one change takes
        store.data[b"of the store"] = b"w"


def test_salvage_makes_a_store_of_the_same_format_with_settings_and_data(
    run: Any, tmp_path: Path
) -> None:
    filled(tmp_path / "s")
    code, _, err = run("salvage", tmp_path / "s", "--out", tmp_path / "new")
    assert (code, err) == (0, "")
    with (
        qindex.open(tmp_path / "s", read_only=True) as old,
        qindex.open(tmp_path / "new", read_only=True) as new,
    ):
        assert new.stats().format == 2
        assert new.data.copy() == old.data.copy()
        for name in ("q", "dead"):
            assert new.queue(name).settings == old.queue(name).settings
            assert new.queue(name).data.copy() == old.queue(name).data.copy()
        assert new.queue("q").settings.dead_letters == "dead"


def test_salvage_says_what_it_leaves_out(run: Any, tmp_path: Path) -> None:
    filled(tmp_path / "s")
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q")
        queue.configure(max_deliveries=2, dead_letters=True)
        queue.nack(queue.get(), requeue=False)
        queue.redrive()  # it may be delivered once more
        queue.nack(queue.get())
        queue.redrive()
        queue.configure(max_deliveries=2, dead_letters="dead")
    shutil.rmtree(queue_directory(tmp_path / "s", "dead"))
    code, out, err = run("salvage", tmp_path / "s", "--out", tmp_path / "new", "--json")
    assert code == 1
    assert "1 message: delivered as often as it may be: one delivery less is noted" in err
    told = json.loads(out)
    assert "q: dead letters stay: their queue dead is not there" in told["left_out"]
    with qindex.open(tmp_path / "new", read_only=True) as new:
        assert new.queue("q").settings.dead_letters is True
    (tmp_path / "s" / "store.meta").unlink()
    code, out, _ = run("salvage", tmp_path / "s", "--out", tmp_path / "raw", "--json")
    assert code == 1
    assert any(
        text.startswith("settings of queues, and data") for text in json.loads(out)["left_out"]
    )
    with qindex.open(tmp_path / "raw", read_only=True) as new:
        assert new.stats().format == 2


def test_a_store_of_format_1_stays_one(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s", format=1) as store:
        store.queue("q").publish(b"1")
    assert run("salvage", tmp_path / "s", "--out", tmp_path / "new").code == 0
    with qindex.open(tmp_path / "new", read_only=True) as new:
        assert new.stats().format == 1


def test_salvage_serves_a_queue_that_was_made_since_it_read_the_list(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qindex.look.sources import StoreSource

    with qindex.open(tmp_path / "s", format=2) as store:
        for name in ("a", "b"):
            store.queue(name).publish(b"x")
    monkeypatch.setattr(StoreSource, "names", lambda self: ["a"])
    code, out, _ = run("salvage", tmp_path / "s", "--out", tmp_path / "new", "--json")
    assert code == 0
    told = {queue["queue"]: queue["raw"] for queue in json.loads(out)["queues"]}
    assert told == {"a": False, "b": False}


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_ls_tells_of_damage_that_it_meets_when_it_counts(
    run: Any, tmp_path: Path, words: list[str]
) -> None:
    with qindex.open(tmp_path / "s", segment_entries=16) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 40)
        queue.flush()
        store.queue("other").publish(b"y")
    assert run("ls", tmp_path / "s", *words).code == 0
    (queue_directory(tmp_path / "s", "q") / "0.idx").unlink()
    code, out, err = run("ls", tmp_path / "s", *words)
    assert code == 1
    assert "messages may be missing in these numbers" in (err if words else out)
