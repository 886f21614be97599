"""write-rabbitmq: what is written is read again, and has the bytes that a real node writes."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

import qindex
from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.brokers.rabbitmq.directory import Message, open_node
from qindex.brokers.rabbitmq.message import Content
from qindex.brokers.rabbitmq.write import FILE_BYTES_MAX, SLOTS, VhostWriter, encode_message

SHARED = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "rabbitmq"
DEMO = Path(qindex.__file__).parent / "cli" / "demo" / "demo_node.tar.xz"


def queues_of(path: Path) -> dict[str, list[Any]]:
    """By the names that a recovery gives them."""
    with open_node(path) as node:
        assert not node.findings
        return {
            queue.name if vhost.name == "/" else f"{vhost.name}/{queue.name}": [
                (m.body, m.exchange, m.routing_keys, m.properties, m.expiry_us)
                for m in queue.messages()
            ]
            for vhost in node.vhosts
            for queue in vhost.queues
        }


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DEMO, tmp_path_factory.mktemp("dead"))


def test_a_dead_node_written_anew_has_the_same_messages(
    run: Any, dead: Path, tmp_path: Path
) -> None:
    store, new = tmp_path / "store", tmp_path / "new"
    assert run("recover", dead, "--out", store, "--keep-expired").code == 0
    for source in (store, dead):  # by way of a store, and straight
        code, out, err = run("write-rabbitmq", source, "--out", new, "--json", "--state",
                             "ready,delivered,expired")  # fmt: skip
        assert code == 0
        assert ("q.prio has messages with priorities" in err) == (source is store)
        told = json.loads(out)
        want, found = queues_of(dead), queues_of(new)
        if source is store:  # where what had expired has no expiry any more
            want, found = ({name: [row[:4] for row in rows] for name, rows in queues.items()}
                           for queues in (want, found))  # fmt: skip
        assert found == {name: rows for name, rows in want.items() if rows}
        assert told["messages"] == sum(map(len, found.values())) == 339
        assert {queue["target_queue"]: queue["messages"] for queue in told["queues"]} == {
            name: len(rows) for name, rows in want.items()
        }
        new = tmp_path / "straight"


def test_the_arguments_of_a_dead_nodes_queues_are_kept(
    run: Any, dead: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    assert run("write-rabbitmq", dead, "q.prio", "q.ttlq", "--out", new).code == 0
    with open_node(dead) as node:
        known = {queue.name: queue.arguments for queue in node.vhosts[0].queues}
    definitions = json.loads((new / "definitions.json").read_text())
    told = {queue["name"]: queue["arguments"] for queue in definitions["queues"]}
    assert told == {name: known[name] for name in ("q.prio", "q.ttlq")}
    assert "x-max-priority" in told["q.prio"]
    assert "x-message-ttl" in told["q.ttlq"]
    with open_node(new) as node:
        (prio,) = (queue for queue in node.queues if queue.name == "q.prio")
        assert len(prio.parts) > 1


def test_what_no_broker_saw_gets_what_a_node_needs(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"a", headers={"n": 1})
        store.queue("q").publish(b"b", persistent=False, expires_at=4e9)
        store.queue("q").publish(b"c", expires_at=1.0)
        store.queue("q").publish(b"d" * 5000)
    assert run("write-rabbitmq", tmp_path / "s", "--out", tmp_path / "new").code == 0
    mode = [encode_properties(Properties(delivery_mode=mode)) for mode in (0, 1, 2)]
    headers = encode_properties(Properties(headers={"n": 1}, delivery_mode=2))
    assert queues_of(tmp_path / "new") == {
        "q": [
            (b"a", "", ["q"], headers, None),
            (b"b", "", ["q"], mode[1], 4_000_000_000_000_000),
            (b"d" * 5000, "", ["q"], mode[2], None),
        ]
    }


def test_a_priority_queue_has_a_directory_for_each_priority(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s") as store:
        for n, priority in enumerate([None, 3, 1, 9, 3]):
            raw = encode_properties(Properties(priority=priority))
            store.queue("x/q").publish(b"%d" % n, headers={"properties": raw})
    options = ["--vhost", "x", "--strip-prefix", "x/"]
    told = run("write-rabbitmq", tmp_path / "s", "--out", tmp_path / "plain", *options)
    assert "q has messages with priorities up to 9: if the node's queue has" in told.err
    options += ["--max-priority", "q=5"]
    told = run("write-rabbitmq", tmp_path / "s", "--out", tmp_path / "new", *options)
    assert (told.code, told.err) == (0, "")
    with open_node(tmp_path / "new") as node:
        (queue,) = node.queues
        assert (queue.name, queue.group) == ("q", "x")
        assert [(m.body, m.priority) for m in queue.messages()] == [
            (b"3", 5), (b"1", 3), (b"4", 3), (b"2", 1), (b"0", 0),
        ]  # fmt: skip
    definitions = json.loads((tmp_path / "new" / "definitions.json").read_text())
    assert definitions["queues"][0]["arguments"] == {"x-max-priority": 5}
    assert definitions["vhosts"] == [{"name": "x"}]


def test_a_priority_of_ones_own_becomes_that_of_the_node(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"plain")
        store.queue("q").publish(b"urgent", priority=4)
    options = ["--out", tmp_path / "new", "--max-priority", "q=5"]
    assert run("write-rabbitmq", tmp_path / "s", *options).code == 0
    with open_node(tmp_path / "new") as node:
        (queue,) = node.queues
        messages = list(queue.messages())
    assert [(m.body, m.priority) for m in messages] == [(b"urgent", 4), (b"plain", 0)]
    assert decode_properties(messages[0].properties).priority == 4


def test_a_damaged_property_list_is_left_out_and_told(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"bad", headers={"properties": b"\x80"})
        store.queue("q").publish(b"good")
    code, out, err = run("write-rabbitmq", tmp_path / "s", "--out", tmp_path / "new", "--json")
    assert code == 1
    assert "message 0 of q: damaged properties" in err
    assert json.loads(out)["queues"][0]["damaged"] == 1
    assert [row[0] for row in queues_of(tmp_path / "new")["q"]] == [b"good"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--out", "there"], "is there already"),
        (["--out", "half"], "half.part' is there already: another command writes it"),
        (["--out", "s/new"], "where nothing is changed"),
        (["--out", "new", "--strip-prefix", "a/"], "two queues would become 'q'"),
        (["--out", "new", "--max-priority", "x=3"], "no queue 'x' is written"),
        (["--out", "new", "--max-priority", "q=0"], "is not QUEUE=N"),
        (["--out", "new", "a\nb"], r"RabbitMQ has no queue 'a\\nb'"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there", "half.part"):
        Path(name).mkdir()
    with qindex.open("s") as store:
        for name in ("q", "a/q", "a\nb"):
            store.queue(name).publish(b"")
    queues = [] if "a\nb" in arguments else ["q", "a/q"]
    code, _, err = run("write-rabbitmq", "s", *queues, *arguments)
    assert (code, text in err) == (2, True), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half.part", "s", "there"]


def test_an_error_on_the_way_leaves_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"")
    monkeypatch.setattr("qindex.brokers.rabbitmq.write.QueueWriter.publish", full)
    code, _, err = run("write-rabbitmq", tmp_path / "s", "--out", tmp_path / "new")
    assert (code, err) == (2, "qindex: No space left on device\n")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


# --- byte for byte ------------------------------------------------------------------------------


def test_terms_have_the_bytes_that_a_real_node_wrote(dead: Path) -> None:
    seen = {"one key": 0, "fragments": 0, "empty": 0}
    with open_node(dead) as node:
        for queue in node.queues:
            for m in queue.messages():
                data = (node.tree.path / m.file).read_bytes()[m.offset :]
                term = encode_message(_content(m), queue.group.encode())
                if b"P_basic" in data[: len(term)]:  # the broker itself made this one
                    continue
                assert data.startswith(term)
                seen["one key"] += len(m.routing_keys) == 1
                seen["fragments"] += len(m.body) > 131064
                seen["empty"] += not m.body
    assert all(seen.values()), seen


def test_segments_have_the_bytes_that_a_real_node_wrote(tmp_path: Path) -> None:
    archive = SHARED / "c_v1_seg2048_kill9.tar.xz"
    if not archive.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    path = unpack(archive, tmp_path / "real")
    same = []
    with open_node(path) as node:
        (queue,) = (queue for queue in node.queues if queue.parts)
        where = node.tree.path / queue.parts[0].where
        for number, messages in groupby(queue.messages(), lambda m: m.seq // SLOTS):
            whole = list(messages)
            file = where / f"{number}.idx"
            if len(whole) < SLOTS or not file.exists():
                continue  # acked in part, or not flushed
            if file.read_bytes()[:2] != (0xC000 | SLOTS - 1).to_bytes(2, "big"):
                continue  # came in several flushes
            writer = VhostWriter(tmp_path / f"new{number}", b"/")
            into = writer.queue(queue.name.encode())
            for m in whole:
                into.publish(_content(m), m.expiry_us)
            writer.close()
            folder = writer.where / "queues" / where.name
            assert (folder / "0.idx").read_bytes() == file.read_bytes()
            assert (folder / ".queue_name").read_bytes() == (where / ".queue_name").read_bytes()
            stored = (writer.where / "msg_store_persistent" / "0.rdq").read_bytes()
            real = (where.parents[1] / "msg_store_persistent" / "0.rdq").read_bytes()
            assert stored
            assert stored in real
            same.append(number)
    assert same == [15, 18, 19, 20]
    for name in (".config", ".vhost"):
        assert (writer.where / name).read_bytes() == (where.parents[1] / name).read_bytes()


def _content(m: Message) -> Content:
    return Content(m.exchange, m.routing_keys, m.properties, m.body, m.msg_id, m.persistent)


def test_message_files_roll_behind_the_entry_that_passes_their_size(tmp_path: Path) -> None:
    writer = VhostWriter(tmp_path, b"/")
    queue = writer.queue(b"q")
    for n in range(40):
        assert queue.publish(Content("", ["q"], b"\0\0", b"x" * 1_000_000, bytes([n]) * 16, True))
    writer.close()
    sizes = [file.stat().st_size for file in sorted(tmp_path.glob("**/*.rdq"))]
    assert len(sizes) == 3
    assert all(FILE_BYTES_MAX <= size < FILE_BYTES_MAX + 1_001_000 for size in sizes[:-1])
    assert len(queues_of(tmp_path)["q"]) == 40
