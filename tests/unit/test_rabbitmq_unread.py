"""Queues of a dead RabbitMQ node that are not read are named; none is passed over in silence."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from helpers import DEMO_NODE, unpack
from ra_files import term

from qindex.brokers.rabbitmq.erlang import Atom

COMMANDS = ("recover", "ls", "stats", "check")
ATOMS = ("true", "undefined", "rabbit_quorum_queue", "a@b", "c@d", "live", "none", "nodes")
TRUE, UNDEFINED, QUORUM, HERE, THERE, LIVE, NONE, NODES = map(Atom, ATOMS)


def defined(name: bytes, nodes: list[Atom], type_name: Atom = QUORUM) -> tuple[Any, ...]:
    """The record of a quorum queue in the node's tables, or of one of another type."""
    resource = (Atom("resource"), b"/", Atom("queue"), name)
    fields = (resource, TRUE, Atom("false"), NONE, [], (Atom("%2F_q"), HERE), [], [], [HERE])
    more = (UNDEFINED, UNDEFINED, [], [], LIVE, 0, [], b"/", {}, type_name, {NODES: nodes})
    return (Atom("amqqueue"), *fields, *more)


def define(node: Path, *records: tuple[Any, ...]) -> None:
    """Adds the records to the table of queues."""
    table = node / "rabbit_durable_queue.DCD"
    data = table.read_bytes() if table.exists() else b"\x01\x02\x03\x04\x06\x07\x08\x09"
    for record in records:
        raw = term(record)
        data += struct.pack(">I", len(raw)) + b"bWLA" + raw
    table.write_bytes(data)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A classic node that has a quorum queue, too, which is defined and has no files."""
    unpack(DEMO_NODE, tmp_path / "demo")
    (around,) = (tmp_path / "demo").glob("**/msg_stores")
    define(around.parent, defined(b"orders", [HERE]))
    return around.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_each_is_named_in_text_with_its_type_and_place(run, node, command):
    code, out, _ = run(command, node)
    assert code == 1
    lines = out.splitlines()
    (quorum,) = (line for line in lines if "orders" in line)
    assert "quorum queue" in quorum
    assert "its directory is not here" in quorum


def test_one_without_a_place_has_no_offset_and_a_command_that_wants_it_says_that_it_is_not_read(
    run, node
):
    code, out, _ = run("check", node)
    assert code == 1
    assert "at byte 0" not in out
    assert "; 1 queue not read; " in out
    code, out, err = run("cat", node, "orders")
    assert (code, out) == (2, "")
    assert "quorum queue 'orders' in" in err
    assert "is not read: qindex recover DIR says why" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_each_is_named_in_json_and_nothing_is_complete(run, node, command):
    code, out, _ = run(command, node, "--json")
    assert code == 1
    told = json.loads(out)
    if command == "ls":
        unread = [each["not_read"] for each in told if each["messages"] is None]
    else:
        unread = told["not_read"]
        assert not told.get("complete", told.get("clean"))
    assert [(each["kind"], each["vhost"], each["queue"]) for each in unread] == [
        ("quorum queue", "/", "orders")
    ]
    assert (unread[0]["elsewhere"], unread[0]["unknown"]) == (False, False)


@pytest.mark.parametrize("command", COMMANDS)
def test_one_of_a_type_that_nobody_knows_is_named_and_no_size_is_made_up(run, tmp_path, command):
    """Only the plugin of its type knows where its messages are: 0 bytes would be a wrong figure."""
    unpack(DEMO_NODE, tmp_path / "demo")
    (around,) = (tmp_path / "demo").glob("**/msg_stores")
    define(around.parent, defined(b"odd", [HERE], Atom("rabbit_delayed_queue")))
    code, out, _ = run(command, around.parent)
    assert code == 1
    assert "odd" in out
    assert "rabbit_delayed_queue" in out
    assert "not know" in out
    code, out, _ = run(command, around.parent, "--json")
    told = json.loads(out)
    (unread,) = (
        [e["not_read"] for e in told if "not_read" in e] if command == "ls" else told["not_read"]
    )
    assert unread == {
        "queue": "odd",
        "kind": "queue of the type rabbit_delayed_queue",
        "vhost": "/",
        "elsewhere": False,
        "unknown": True,
    }


def test_a_recovery_and_its_page_name_them_too(run, node, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = run("recover", node, "--out", tmp_path / "store", "--report", page)
    assert code == 1
    for text in (out, page.read_text()):
        assert "orders" in text
        assert "its directory is not here" in text
    assert 'class="verdict bad"' in page.read_text()


def test_an_audit_names_them(run, node, tmp_path):
    pytest.importorskip("pyarrow")
    code, out, _ = run("audit", node, "--out", tmp_path / "out", "--json", "--master", "none")
    assert code == 1
    assert json.loads(out)["kinds"]["not read"] == 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert "quorum queue orders" in page


def test_one_whose_members_are_on_other_nodes_is_a_note(run, tmp_path):
    """The node has quorum queues, but of this one other nodes have the members."""
    system = tmp_path / "quorum" / "a@b"
    system.mkdir(parents=True)
    (system / "00000001.wal").write_bytes(b"RAWA\1")
    for table in ("names.dets", "meta.dets"):
        (system / table).write_bytes(bytes(100))
    define(tmp_path, defined(b"far", [THERE]))
    code, out, _ = run("check", tmp_path, "--json")
    (finding,) = json.loads(out)["findings"]
    assert (finding["severity"], finding["kind"]) == ("note", "not read")
    assert "on other nodes" in finding["text"]
    assert code == 0


def test_files_that_hold_nothing_that_can_be_read_are_damage(run, tmp_path):
    """Neither a queue's name nor an entry: and yet something was there."""
    system = tmp_path / "quorum" / "a@b"
    (system / "2F_LOST0").mkdir(parents=True)
    (system / "00000001.wal").write_bytes(b"RAWA\1" + b"\5" * 9000)
    (system / "2F_LOST0" / "00000001.segment").write_bytes(b"RASG" + b"\5" * 996)
    code, out, _ = run("recover", tmp_path)
    assert code == 1
    assert "2F_LOST0" in out
    assert "00000001.wal" in out
