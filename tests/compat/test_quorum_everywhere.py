"""Every command that reads a dead node, on every kind of directory: all say the same messages.

Quorum queues of 3.10, 4.2 and 4.3, three members of a cluster, streams of 3.10 and of Osiris 1.10,
and a Khepri store. What the files hold is compared with truth elsewhere; here commands are compared
with each other, message by message.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

import qindex
from qindex.brokers.reader import open_node
from qindex.brokers.recover import names_in_store
from qindex.cli.main import main

from .quorum_nodes import DATA

pytestmark = pytest.mark.sample(3)
Capture = pytest.CaptureFixture[str]
ARCHIVES = ["quorum_q1", "quorum_q3", "quorum_n42", "quorum_n43", "quorum_s1", "stream_osiris_1_10"]
Row = tuple[str, str, bool, int | None]  # queue, digest of the body, redelivered, entry or offset


@dataclass(frozen=True)
class Dead:
    """A directory, and what its reader gives."""

    path: Path
    rows: list[Row]
    code: int  # 1: something is suspected to be missing

    def of(self, queue: str) -> list[Row]:
        return [row for row in self.rows if row[0] == queue]

    @property
    def queues(self) -> list[str]:
        return sorted({row[0] for row in self.rows})


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def dead_of(path: Path) -> Dead:
    rows: list[Row] = []
    with open_node(path) as node:
        for queue, name in names_in_store(node):
            for message in queue.messages():
                entry = getattr(message, "index", getattr(message, "stream_offset", None))
                rows.append((name, digest(message.body), message.redelivered, entry))
        code = int(any(finding.severity != "note" for finding in node.findings))
    assert rows
    return Dead(path, rows, code)


@pytest.fixture(scope="module", params=ARCHIVES)
def dead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dead:
    name = request.param
    return dead_of(unpack(DATA / f"{name}.tar.xz", tmp_path_factory.mktemp(name)))


def text_of(capsys: Capture, code: int, *arguments: object) -> str:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == code, capsys.readouterr().err
    return capsys.readouterr().out


def body_of(row: dict[str, Any]) -> bytes:
    import base64

    return base64.b64decode(row["body_base64"]) if "body_base64" in row else row["body"].encode()


@pytest.mark.sample(2)
def test_lists_and_counts(dead: Dead, capsys: Capture) -> None:
    listed = json.loads(text_of(capsys, dead.code, "ls", dead.path, "--json"))
    counts = {each["queue"]: each["messages"] for each in listed if each["messages"]}
    assert counts == {name: len(dead.of(name)) for name in dead.queues}
    for command in ("stats", "recover"):
        told = json.loads(text_of(capsys, dead.code, command, dead.path, "--json"))
        assert told["account"]["live"] == len(dead.rows)
        assert sum(each["live"] for each in told["queues"]) == len(dead.rows)
    checked = json.loads(text_of(capsys, dead.code, "check", dead.path, "--json"))
    assert (checked["messages"], checked["unreadable"]) == (len(dead.rows), 0)
    used = json.loads(text_of(capsys, dead.code, "du", dead.path, "--json"))
    assert sum(each["messages"] for each in used["queues"]) == len(dead.rows)


@pytest.mark.sample(2)
def test_cat_and_export_as_json_lines(dead: Dead, capsys: Capture, tmp_path: Path) -> None:
    out = text_of(capsys, dead.code, "cat", dead.path, "--jsonl")
    file = tmp_path / "all.jsonl"
    text_of(capsys, dead.code, "export", dead.path, "--out", file)
    for lines in (out, file.read_text(encoding="utf-8")):
        rows = [json.loads(line) for line in lines.splitlines()]
        found = [(r["queue"], digest(body_of(r)), r["redelivered"], r["entry"]) for r in rows]
        assert found == sorted(dead.rows, key=lambda row: row[0])


def test_export_as_parquet(dead: Dead, capsys: Capture, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    file = tmp_path / "all.parquet"
    text_of(capsys, dead.code, "export", dead.path, "--out", file)
    rows = parquet.read_table(file).to_pylist()
    found = [(r["queue"], digest(r["body"]), r["redelivered"], r["entry"]) for r in rows]
    assert found == sorted(dead.rows, key=lambda row: row[0])
    for row in rows:
        headers = json.loads(row["headers"])
        if "stream_offset" in headers:
            assert headers["stream_offset"] == row["entry"]


@pytest.mark.sample(2)
def test_recovered_messages_are_the_same_ones(dead: Dead, capsys: Capture, tmp_path: Path) -> None:
    into, page = tmp_path / "store", tmp_path / "report.html"
    given = ["--into", into, "--report", page, "--at-time", "0", "--json"]
    told = json.loads(text_of(capsys, dead.code, "recover", dead.path, *given))
    assert told["recovered"]["messages"] == len(dead.rows)
    with qindex.open(into, expire=False) as store:
        found = [
            (name, digest(message.body), message.redelivered)
            for name in sorted(store.queues())
            for message in store.queue(name).browse()
        ]
    assert found == [row[:3] for row in sorted(dead.rows, key=lambda row: row[0])]
    assert f"{len(dead.rows):,}" in page.read_text(encoding="utf-8")
    given = ["--ignore-state", "--json", "--state", "ready,unacked,expired"]
    code = 3 if dead.code else 0
    same = json.loads(text_of(capsys, code, "diff", dead.path, into, *given))
    assert sum(each["alike"] for each in same["queues"]) == len(dead.rows)


def test_written_as_classic_queues_they_are_the_same_ones(
    dead: Dead, capsys: Capture, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    given = ["--out", new, "--at-time", "0", "--json"]
    told = json.loads(text_of(capsys, dead.code, "write-rabbitmq", dead.path, *given))
    assert told["messages"] == len(dead.rows)
    written = dead_of(new)
    for name in dead.queues:
        assert [row[1] for row in written.of(name)] == [row[1] for row in dead.of(name)]


@pytest.mark.sample(2)
def test_diff_with_itself_goes_by_entries(dead: Dead, capsys: Capture) -> None:
    code = 3 if dead.code else 0
    told = json.loads(text_of(capsys, code, "diff", dead.path, dead.path, "--json"))
    assert told["same"]
    assert sum(each["alike"] for each in told["queues"]) == len(dead.rows)


def test_single_messages(dead: Dead, capsys: Capture) -> None:
    for name in dead.queues[:3]:
        peeked = text_of(capsys, dead.code, "peek", dead.path, name, "-n", "2", "--json")
        rows = [json.loads(line) for line in peeked.splitlines()]
        assert [r["entry"] for r in rows] == [row[3] for row in dead.of(name)[:2]]
        traced = json.loads(text_of(capsys, 0, "trace", dead.path, f"{name}:0", "--json"))
        assert traced[0]["records"]
        assert traced[0]["summary"].startswith(("live", "a dead letter"))


def test_both_ways_to_read_agree(dead: Dead, capsys: Capture) -> None:
    told = json.loads(text_of(capsys, 0, "replay", dead.path, "--verify", "--json"))
    assert {each["difference"] for each in told} <= {""}


@pytest.mark.sample(2)
def test_tables_for_spark_and_the_audit(dead: Dead, capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    from qindex.spark.plan import find
    from qindex.spark.tables import Choice, batches

    names = ["queue", "vhost", "state", "redelivered", "body", "headers"]
    units = find([str(dead.path)])
    found = []
    for batch in batches(units, "messages", names, Choice()):
        for row in batch.to_pylist():
            prefix = "" if row["vhost"] in (None, "", "/") else f"{row['vhost']}/"
            found.append((prefix + row["queue"], digest(row["body"]), row["redelivered"]))
    assert sorted(found) == sorted(row[:3] for row in dead.rows)
    told = json.loads(
        text_of(capsys, dead.code, "audit", dead.path, "--out", tmp_path / "a", "--json")
    )
    assert told["account"]["live"] == len(dead.rows)


def test_republish_sends_each_body_in_order(
    dead: Dead, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pika = pytest.importorskip("pika", reason="qindex[amqp] is not installed")
    sent: list[tuple[str, str]] = []

    class Stub:
        def __init__(self, _: object) -> None:
            pass

        def channel(self) -> Stub:
            return self

        def close(self) -> None:
            pass

        def confirm_delivery(self) -> None:
            pass

        def queue_declare(self, *_: object, **__: object) -> None:
            pass

        def basic_publish(self, _: str, key: str, body: bytes, *__: Any, **___: Any) -> None:
            sent.append((key.encode().decode(), digest(body)))

    monkeypatch.setattr(pika, "BlockingConnection", Stub)
    given = ["--amqp", "amqp://u:p@localhost/", "--checkpoint", tmp_path / "c", "--declare"]
    text_of(capsys, dead.code, "republish", dead.path, *given, "--at-time", "0")
    assert sent == [row[:2] for row in sorted(dead.rows, key=lambda row: row[0])]


# --- what only Khepri has -------------------------------------------------------------------------


def test_a_directory_with_nothing_but_khepri_tells_its_definitions(
    tmp_path: Path, capsys: Capture
) -> None:
    path = unpack(DATA / "quorum_k17.tar.xz", tmp_path)
    told = json.loads(text_of(capsys, 1, "recover", path, "--json"))
    assert told["khepri"]["vhost_names"] == ["/", "vh/ü"]
    assert not told["complete"]  # its queues are named, and their files are not here
    assert told["not_read"]
    for command in ("ls", "stats", "check", "du", "recover"):
        assert main([command, str(path)]) == 1, command
        assert "Traceback" not in capsys.readouterr().err
