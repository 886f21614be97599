"""trace: every record about one message, where it is, and the state that follows."""

import hashlib
import json

import pytest
from helpers import queue_directory

import qindex
from qindex.brokers.rabbitmq.directory import open_node
from qindex.look.sources import open_source
from qindex.testing import abandon


def state_of(path):
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


@pytest.fixture
def trace(run):
    """The traces of one message as JSON, and the exit code."""

    def trace(path, what):
        code, out, err = run("trace", path, what, "--json")
        return (json.loads(out) if out else err), code

    return trace


def story(found):
    return [(r["file"].rpartition("/")[2], r["verb"]) for r in found["records"]]


def test_a_message_in_the_journal(trace, run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q")
        queue.publish_many([b"a", b"b"])
        queue.get()
        (found,), code = trace(tmp_path / "s", "q:0")
        assert code == 0
        assert story(found) == [("journal.jif", "publish"), ("journal.jif", "deliver")]
        assert found["summary"] == "live, unacked, 1 delivery"
        queue.ack(0)
    (found,), code = trace(tmp_path / "s", "q:0")
    assert story(found)[-1] == ("journal.jif", "ack")
    assert (found["summary"], code) == ("acked", 0)
    (found,), _ = trace(tmp_path / "s", "q:1")
    assert (found["summary"], len(found["records"])) == ("live, ready", 1)
    out = run("trace", tmp_path / "s", "q:1").out
    assert "publish  persistent, body of 1 B: embedded, 1 bytes" in out
    assert "so it is: live, ready" in out


def test_offsets_are_those_of_the_bytes(trace, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish_many([b"first body", b"second body"])
    (found,), _ = trace(tmp_path / "s", "q:1")
    (record,) = found["records"]
    data = (tmp_path / "s" / record["file"]).read_bytes()
    assert data[record["offset"] + 40 :].startswith(b"second body")


def test_a_message_in_a_segment_a_journal_and_a_message_file(trace, tmp_path):
    with qindex.open(tmp_path / "s", segment_entries=8, embed_below=0, idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"body %d" % n for n in range(20)])
        queue.get_many(20)
        queue.flush()
        queue.ack(11)
        (found,), code = trace(tmp_path / "s", "q:11")
    assert story(found) == [
        ("1.idx", "publish"), ("1.idx", "deliver"), ("journal.alt", "ack"), ("0.qms", "body"),
    ]  # fmt: skip
    assert (found["summary"], code) == ("acked", 0)
    body = found["records"][-1]
    assert b"body 11" in (tmp_path / "s" / body["file"]).read_bytes()[body["offset"] :][:40]
    assert body["text"].endswith("sound")
    (found,), _ = trace(tmp_path / "s", "q:12")
    assert found["summary"].startswith("live, unacked")


def test_a_body_that_was_moved_is_found_where_it_is(trace, tmp_path):
    with qindex.open(tmp_path / "s", embed_below=0, message_file_size=4096, idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"%4d" % n * 100 for n in range(40)])
        taken = queue.get_many(40)
        queue.ack_many([m for m in taken if m.req_id % 5])
        queue.flush()
        store.compact()  # if the worker has not done it already
    (found,), code = trace(tmp_path / "s", "q:15")
    body = found["records"][-1]
    assert (code, body["verb"]) == (0, "body")
    assert "moved here from" in body["text"]
    assert body["text"].endswith("sound")
    file = tmp_path / "s" / body["file"]
    data = bytearray(file.read_bytes())
    assert data[body["offset"] + 24 :].startswith(b"  15" * 100)
    data[20] ^= 1  # with a damaged header nobody knows that it is a compacted file
    file.write_bytes(data)
    (found,), _ = trace(tmp_path / "s", "q:15")
    assert found["records"][-1]["offset"] == body["offset"]


def test_a_msg_id_leads_to_every_queue_that_has_the_message(trace, tmp_path):
    with qindex.open(tmp_path / "s", embed_below=0) as store:
        store.queue("a").publish(b"before")
        store.publish(["a", "b"], b"for both", create=True)
        store.queue("b").ack(store.queue("b").get())
    (found,), _ = trace(tmp_path / "s", "a:1")
    msg_id = found["records"][0]["text"].partition("MsgId ")[2][:32]
    both, code = trace(tmp_path / "s", msg_id)
    assert [(t["queue"], int(t["req_id"]), t["summary"]) for t in both] == [
        ("a", 1, "live, ready"), ("b", 0, "acked"),
    ]  # fmt: skip
    assert "for 2 queues" in both[0]["records"][-1]["text"]
    assert code == 0
    assert trace(tmp_path / "s", "f" * 32)[1] == 2


def test_a_purge_is_an_ack_of_what_was_there(trace, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 5)
        queue.get_many(2)
        queue.purge()
        queue.publish(b"later")
        (purged,), _ = trace(tmp_path / "s", "q:3")
        (kept,), _ = trace(tmp_path / "s", "q:1")
        (later,), _ = trace(tmp_path / "s", "q:5")
    assert story(purged)[-1] == ("journal.jif", "purge")
    assert purged["summary"] == "acked"
    assert kept["summary"].startswith("live, unacked")
    assert "purge" not in [verb for _, verb in story(kept)]
    assert later["summary"] == "live, ready"


def test_what_is_not_there_says_why(trace, store_path, tmp_path):
    (found,), code = trace(store_path, "orders:999999")
    assert (found["summary"], found["records"], code) == ("not published yet", [], 0)
    (found,), _ = trace(store_path, "orders:3")
    assert found["summary"].startswith("acked")
    err, code = trace(store_path, "nobody:3")
    assert code == 2
    assert "nothing about 'nobody:3'" in err
    store = qindex.open(tmp_path / "t")
    store.queue("q").publish(b"x", persistent=False)
    abandon(store)
    with qindex.open(tmp_path / "t") as store:
        store.queue("q")  # only a session of its own finds out that the end was unclean
    (found,), _ = trace(tmp_path / "t", "q:0")
    assert found["summary"].startswith("gone: it was transient")


def test_damage_is_told_where_it_is(trace, store_path):
    file = store_path / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    (found,), code = trace(store_path, "mails:300")
    assert code == 1
    assert found["records"][-1]["text"].endswith("its checksum is wrong")
    assert "damaged" in found["summary"]
    file.unlink()
    (found,), code = trace(store_path, "mails:300")
    assert (found["records"][-1]["text"], code) == ("missing: no such file", 1)


def test_records_that_were_lost_are_part_of_the_story(trace, store_path):
    (found,), _ = trace(store_path, "orders:200")
    record = found["records"][0]
    segment = store_path / record["file"]
    data = bytearray(segment.read_bytes())
    data[record["offset"]] ^= 0x40
    segment.write_bytes(data)
    (found,), code = trace(store_path, "orders:200")
    assert code == 1
    assert "damage" in [verb for _, verb in story(found)]
    assert found["is_damaged"]
    assert queue_directory(store_path, "orders").name in found["records"][0]["file"]


# --- RabbitMQ -----------------------------------------------------------------------------------


def test_every_live_message_of_a_rabbitmq_node_has_its_story(dead_node):
    from qindex.cli.trace import rabbitmq as trace_rabbitmq
    from qindex.look.messages import Choice
    from qindex.look.screen import Screen

    with open_source(str(dead_node), Screen()) as source:
        count = 0
        for name in source.names():
            for message in source.messages(name, Choice()):
                traces = trace_rabbitmq.trace(source, name, message.req_id)
                (found,) = [t for t in traces if t.priority == message.priority]
                assert found.state == f"live, {message.state}"
                assert found.records[0].verb in ("publish", "live")
                count += 1
        assert count == 339


def test_offsets_in_a_rabbitmq_node_are_those_of_the_bytes(dead_node):
    from qindex.cli.trace.rabbitmq import trace as trace_message
    from qindex.look.screen import Screen

    with open_node(dead_node) as node, open_source(str(dead_node), Screen()) as source:
        root = node.tree.path
        for queue in node.vhosts[0].queues:
            for message in queue.messages():
                if not message.stored or message.priority is not None:
                    continue
                (found,) = trace_message(source, queue.name, message.seq)
                body = found.records[-1]
                data = (root / body.file).read_bytes()[body.offset :]
                assert data[8:24] == message.msg_id
                assert message.body[:100] in data  # a long one is in fragments, the last one first


def test_a_message_of_rabbitmq_is_found_by_its_ids(trace, run, dead_node):
    line = json.loads(run("cat", dead_node, "q.small", "-n", 1, "--jsonl").out)
    by_property, code = trace(dead_node, line["properties"]["message_id"])
    assert code == 0
    assert ("q.small", int(line["req_id"])) in {(t["queue"], int(t["req_id"])) for t in by_property}
    text = next(t for t in by_property if t["queue"] == "q.small")["records"][0]["text"]
    msg_id = text.partition("MsgId ")[2][:32]
    (found,), _ = trace(dead_node, msg_id)
    assert (found["queue"], int(found["req_id"])) == ("q.small", int(line["req_id"]))


def test_tracing_changes_nothing(run, store_path, dead_node):
    before = state_of(store_path), state_of(dead_node)
    run("trace", store_path, "orders:200")
    run("trace", dead_node, "q.small:3")
    assert (state_of(store_path), state_of(dead_node)) == before
