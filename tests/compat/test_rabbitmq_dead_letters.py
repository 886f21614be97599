"""What a dead node would have passed on to its dead-letter exchanges is put where it would be."""

from __future__ import annotations

import json
import shutil
import tarfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import qindex
from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq.directory import open_node
from qindex.brokers.rabbitmq.topology import headers_match, topic_matches
from qindex.brokers.recover import DEAD_LETTER_AT, RecoverReport, recover_into
from qindex.cli.main import main

from .dead_letter_node import build, drained
from .rabbitmq_server import Server

DATA = Path(__file__).parent / "data"
NODE = DATA / "rabbitmq_dead_letters.tar.xz"
TRUTH = DATA / "rabbitmq_dead_letters.json"

# What the node drops when it starts, and stays in the last queue that it reached.
KEPT = {
    "no queue is bound for it at 'dx.headers': the node would drop it": ("d.headers", 1),
    "no queue is bound for it at 'dx.none': the node would drop it": ("d.lost", 2),
    "its dead-letter exchange 'dx.missing' is not there: the node would drop it": ("d.nodlx", 2),
    "it comes back to 'final', in a circle: the node would drop it": ("d.default", 1),
    "it comes back to 'self', in a circle: the node would drop it": ("self", 2),
    "it comes back to 'cyc1', in a circle: the node would drop it": ("cyc2", 2),
}
# Behind a message that does not expire the node passes nothing on yet. Nobody would get it there.
BEHIND = ("d.behind", 2)


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    with tarfile.open(NODE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "dead"


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(TRUTH.read_text())
    return told


Row = tuple[str, str, str, bool, Any]


def as_row(body: bytes, exchange: str, key: str, redelivered: bool, raw: bytes) -> Row:
    """Properties decoded, with the order of the headers; without the time of a death.

    And without original-expiration: a node that starts forgets it, since it has not decoded the
    properties yet; a running node writes it, and so does a recovery.
    """
    properties = decode_properties(raw)
    headers = properties.headers or {}
    order = [list(headers)]
    for death in headers.get("x-death") or []:  # type: ignore[union-attr]
        if isinstance(death, dict):
            death.pop("time", None)
            death.pop("original-expiration", None)
            order.append(list(death))
    return body.decode(), exchange, key, redelivered, (repr(properties), order)


def rows_of(store: Path) -> dict[str, list[Row]]:
    with qindex.open(store, read_only=True, expire=False) as opened:
        return {
            name: [
                as_row(m.body, m.headers["exchange"], m.headers["routing_keys"][0], m.redelivered,
                       m.headers["properties"])
                for m in opened.queue(name).browse()
            ]
            for name in opened.queues()
        }  # fmt: skip


def wanted_rows(truth: dict[str, Any]) -> dict[str, list[Row]]:
    return {
        name: [
            as_row(row["body"].encode(), row["exchange"], row["key"], row["redelivered"],
                   bytes.fromhex(row["properties"]))
            for row in rows
        ]
        for name, rows in truth["queues"].items()
    }  # fmt: skip


def recovered(dead: Path, store: Path, now: float, **options: Any) -> RecoverReport:
    with open_node(dead) as node, qindex.open(store, expire=False) as target:
        report = recover_into(node, target, now=now, **options)
        for queue in report.queues:
            assert queue.adds_up
            assert len(target.queue(queue.into, create=False)) == queue.in_store
        assert target.check() == []
    return report


def assert_as_the_node_does(dead: Path, truth: dict[str, Any], tmp_path: Path) -> RecoverReport:
    report = recovered(dead, tmp_path / "store", truth["booted"])
    found, wanted = rows_of(tmp_path / "store"), wanted_rows(truth)
    assert report.reasons == {reason: number for reason, (_, number) in KEPT.items()}
    for name, rows in wanted.items():
        kept = sum(number for queue, number in KEPT.values() if queue == name)
        rest = list(found.pop(name))
        if name == "final":
            behind = [row for row in rest if "d.behind" in row[0]]
            assert len(behind) == BEHIND[1]
            rest = [row for row in rest if row not in behind]
        assert sorted(map(repr, rows)) == sorted(map(repr, rest[: len(rest) - kept])), name
        assert len(rest) == len(rows) + kept
    assert not any(found.values())
    return report


def test_a_recovery_puts_what_has_died_where_the_node_does(
    dead: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    """Queue arguments, a policy, an expiration per message; all kinds of exchanges; several hops;
    circles; what is too long after a crash; headers that clients wrote."""
    report = assert_as_the_node_does(dead, truth, tmp_path)
    assert report.expired == 2  # plain.ttl has no dead-letter exchange: the node drops them
    assert report.live == report.messages + report.dead_lettered + 2
    assert report.arrived > report.dead_lettered > 30  # some go to several queues
    assert not report.lost
    with qindex.open(tmp_path / "store", read_only=True) as store:
        arrived = list(store.queue("final.ttl").browse())
        now = pytest.approx(time.time() + 600, abs=300)  # they keep the time that they had left
        assert [m.expires_at for m in arrived] == [now] * 2
        for message in store.queue("d.lost").browse():
            assert message.expires_at is None
            assert DEAD_LETTER_AT not in message.headers


@pytest.mark.interop
@pytest.mark.slow
def test_a_real_node_does_so_now(rabbitmq_server: Server, tmp_path: Path) -> None:
    truth = build(rabbitmq_server, tmp_path)
    assert_as_the_node_does(tmp_path / "dead", truth, tmp_path)


def test_a_death_has_its_time_and_the_message_its_order(
    dead: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    recovered(dead, tmp_path / "s", truth["booted"])
    with qindex.open(tmp_path / "s", read_only=True) as store:
        letters = list(store.queue("final.direct").browse())
        assert [m.body.split()[2] for m in letters] == [b"d.direct"] * 2
        assert letters[0].body < letters[1].body
        properties = decode_properties(letters[0].headers["properties"])
        assert properties.expiration is None
        assert properties.headers is not None
        (death,) = properties.headers["x-death"]  # type: ignore[misc]
        assert death["time"].timestamp() == int(truth["booted"])  # type: ignore[index, call-overload, union-attr]
        found = {m.body: m for m in store.queue("final").browse()}
        expired = next(m for body, m in found.items() if body.endswith(b" of d.permsg"))
        properties = decode_properties(expired.headers["properties"])
        assert properties.expiration is None
        assert "'original-expiration': '2500'" in repr(properties.headers)
        assert not expired.redelivered


def test_what_expires_later_keeps_its_time_and_is_not_dropped_by_the_store(
    dead: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    """The node would pass it on then; a store that is opened would drop it without a word. What
    counts as now is an hour before: that long each message has left, and a little less."""
    called = time.time()
    report = recovered(dead, tmp_path / "s", truth["booted"] - 3600)
    later = (called, time.time() + 3600)
    assert report.dying > 30
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("d.direct")
        assert queue.expire() == 0
        messages = list(queue.browse())
        assert len(messages) == 2
        assert all(m.expires_at is None for m in messages)
        for message in messages:
            at = message.headers[DEAD_LETTER_AT] / 1e6
            assert called + 3600 - 60 < at < later[1]
        plain = list(store.queue("plain.ttl").browse())  # a node drops these
        assert len(plain) == 2
        assert all(m.expires_at and later[0] < m.expires_at < later[1] for m in plain)


def test_with_keep_expired_nothing_is_moved(
    dead: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    report = recovered(dead, tmp_path / "s", truth["booted"], keep_expired=True)
    assert report.messages == report.live
    assert report.arrived == report.dead_lettered == report.expired == 0


def lose_tables(dead: Path, *tables: str) -> None:
    """As if the node had written its tables to files of their own, and some were lost."""
    (dead / "LATEST.LOG").unlink()
    for table in tables:
        for file in dead.glob(f"{table}.*"):
            file.unlink()


def test_without_definitions_nothing_that_has_expired_is_dropped(
    dead: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    lose_tables(dead, "rabbit_durable_queue", "rabbit_durable_exchange")
    report = recovered(dead, tmp_path / "s", truth["booted"])
    assert report.messages == report.live
    assert report.expired == report.dead_lettered == 0
    assert report.kept > 40
    (reason,) = report.reasons
    assert reason == "the exchanges of its virtual host are not in the directory"


def test_the_command_says_what_went_where_and_by_which_moment(
    dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    arguments = ["recover", str(dead), "--out", str(tmp_path / "s"), "--report", str(page)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "dead-lettered" in out
    assert "no queue is bound for it at 'dx.none': the node would drop it" in out
    assert "had expired by 20" in out
    assert "no queue is bound for it at" in page.read_text()
    shutil.rmtree(tmp_path / "s")
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["recovered"]
    assert told["as_of"] > "2023"
    assert told["live"] == sum(
        told[name] for name in ("messages", "expired", "dead_lettered", "unreadable", "unstorable")
    )


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        (b"a.*.c", b"a.b.c", True), (b"a.*.c", b"a.c", False), (b"a.#", b"a", True),
        (b"#", b"", True), (b"#", b"a.b", True), (b"*", b"", False), (b"a.#.c", b"a.x.y.c", True),
        (b"a.#.c", b"a.c", True), (b"#.#.b", b"b", True), (b"", b"", True), (b"a.*", b"a.", True),
        (b"a", b"b", False), (b"#.a.#", b"x.a", True), (b"*.#", b"", False),
    ],
)  # fmt: skip
def test_a_topic_matches_as_in_amqp(pattern: bytes, key: bytes, matches: bool) -> None:
    assert topic_matches(pattern, key) == matches


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({}, {}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {"a": "any"}, True),
        ({"a": None}, {}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any"}, {"b": 2}, False),
        ({"x-match": "all", "x-y": 1}, {}, True),
        ({"x-match": "all-with-x", "x-y": 1}, {}, False),
        ({"x-match": "any-with-x", "x-y": 1}, {"x-y": 1}, True),
    ],
)
def test_headers_match_as_in_rabbitmq(
    arguments: dict[str, Any], headers: dict[str, Any], matches: bool
) -> None:
    assert headers_match(arguments, headers) == matches


def test_diff_knows_the_header_that_was_an_expiry_and_tells_of_dead_letters(
    dead: Path, truth: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recovered(dead, tmp_path / "early", truth["booted"] - 3600)
    report = recovered(dead, tmp_path / "late", truth["booted"])
    queues = ["d.direct", "d.topic", "d.headers", "hop1", "pol.a"]
    assert main(["diff", str(dead), str(tmp_path / "early"), *queues, "--ignore-state"]) == 0
    assert "compared by content: A and B have different formats" in capsys.readouterr().out
    assert main(["diff", str(dead), str(tmp_path / "late"), "--ignore-state"]) == 1
    out = capsys.readouterr().out
    assert "Dead letters are in other queues" in out
    assert main(["diff", str(dead), str(tmp_path / "late"), "--ignore-state", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["queues"]
    assert sum(queue["only_a"] for queue in told) == report.dead_lettered + report.expired
    assert sum(queue["only_b"] for queue in told) == report.arrived
    assert sum(queue["body_differs"] for queue in told) == 0


# --- write-rabbitmq -------------------------------------------------------------------------------


def written(dead: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The account of write-rabbitmq, by JSON."""
    assert main(["write-rabbitmq", str(dead), "--out", str(new), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_what_a_node_will_pass_on_is_written_with_what_it_needs(
    dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    told = written(dead, new, capsys)
    letters = told["dead_letters"]
    report = recovered(dead, tmp_path / "s", datetime.fromisoformat(letters["as_of"]).timestamp())
    hops = 2  # cyc1 to cyc2 and back: kept on the way, here in cyc1
    assert letters["passed_on"] == report.dead_lettered - hops
    assert sum(letters["kept_by"].values()) == report.kept
    assert told["messages"] == report.live - report.expired
    definitions = json.loads((new / "definitions.json").read_text())
    assert {each["name"] for each in definitions["exchanges"]} == {
        "dx.direct", "dx.fan", "dx.topic", "dx.headers", "dx.ae", "dx.alt", "dx.none",
    }  # fmt: skip
    assert len(definitions["bindings"]) == 10
    assert {each["name"] for each in definitions["policies"]} == {"ttlpol", "ae"}
    with open_node(new) as node:
        expiries = {
            queue.name: [message.expiry_us for message in queue.messages()] for queue in node.queues
        }
    assert expiries["d.lost"] == expiries["self"] == [None, None]  # the node would drop them
    assert all(expiries["d.direct"])


def test_a_selection_without_the_target_keeps_what_would_go_there(
    dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, queue in (
        (["d.direct"], "d.direct"),
        (["d.direct", "final.direct", "--strip-prefix", "d."], "direct"),
    ):
        new = tmp_path / queue
        assert main(["write-rabbitmq", str(dead), *more, "--out", str(new)]) == 0
        out = capsys.readouterr().out
        assert "2 messages kept in the queue" in out
        with open_node(new) as node:
            (written,) = (each for each in node.queues if each.name == queue)
            assert [message.expiry_us for message in written.messages()] == [None, None]


def test_a_limit_that_would_drop_messages_is_not_defined(
    dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    assert main(["write-rabbitmq", str(dead), "maxlen", "--out", str(new)]) == 0
    assert "maxlen has more than its limit" in capsys.readouterr().out
    definitions = json.loads((new / "definitions.json").read_text())
    (queue,) = definitions["queues"]
    assert "x-max-length" not in queue["arguments"]
    assert "x-dead-letter-exchange" in queue["arguments"]


@pytest.mark.interop
@pytest.mark.slow
def test_a_new_node_passes_on_what_was_written(
    rabbitmq_server: Server, dead: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, new = rabbitmq_server, tmp_path / "new"
    told = written(dead, new, capsys)
    as_of = datetime.fromisoformat(told["dead_letters"]["as_of"])
    recovered(dead, tmp_path / "s", as_of.timestamp())
    server.ctl("import_definitions", new / "definitions.json")
    server.stop()
    vhosts = server.mnesia / "qix@localhost" / "msg_stores" / "vhosts"
    (folder,) = (new / "msg_stores" / "vhosts").iterdir()
    shutil.move(vhosts / folder.name, tmp_path / "aside")
    shutil.copytree(folder, vhosts / folder.name)
    server.start()
    time.sleep(2)
    connection = server.connect()
    served = drained(connection.channel())
    connection.close()
    found = rows_of(tmp_path / "s")
    for name, rows in served.items():
        if name == "final":
            found[name] = [row for row in found[name] if "d.behind" not in row[0]]
        if name in ("cyc1", "cyc2"):  # kept where it was, there in the last queue that it reached
            continue
        bodies = sorted(row["body"] for row in rows)
        assert bodies == sorted(row[0] for row in found[name]), name
    assert sorted(r["body"] for r in served["cyc1"]) == sorted(r[0] for r in found["cyc2"])
