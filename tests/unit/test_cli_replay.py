"""replay: steps, states, --verify, by hand; stores and dead RabbitMQ nodes."""

import io
import json
import shutil
import struct

import pytest
from helpers import queue_directory

import qindex
from qindex.brokers.rabbitmq import log as rabbitmq_replay
from qindex.brokers.rabbitmq.directory import open_node
from qindex.native import replay
from qindex.native.frames import Frames, crc, journal_header


@pytest.fixture
def store(tmp_path):
    """A flush, deliveries, acks, a purge, and messages behind it."""
    path = tmp_path / "s"
    with qindex.open(path, segment_entries=64, idle=3600, format=1) as store:
        queue = store.queue("q")
        queue.publish_many([b"old %d" % n for n in range(100)])
        queue.ack_many(queue.get_many(20))
        queue.flush()
        queue.publish_many([b"new %d" % n for n in range(10)], headers=[{"n": 1}] * 10)
        queue.ack(queue.get())
        queue.get_many(3)
        queue.purge()
        queue.publish(b"B" * 9000, persistent=False)
    return path


def steps_of(run, *arguments):
    code, out, _ = run("replay", *arguments, "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_every_step_and_how_many_are_live(run, store):
    steps = steps_of(run, store, "q")
    told = [(s["verb"], s["req_id"], s["live"]) for s in steps[1:] if s["verb"] != "mark"]
    assert steps[0] == {"step": 0, "live": 80}
    assert told[:2] == [("manifest", None, 80)] * 2
    assert told[2:12] == [("publish", str(100 + n), 81 + n) for n in range(10)]
    assert told[12:14] == [("deliver", "20", 90), ("ack", "20", 89)]
    assert told[14:17] == [("deliver", str(21 + n), 89) for n in range(3)]
    assert told[17:] == [("purge", None, 3), ("publish", "110", 4), ("close", None, 4)]
    code, out, err = run("replay", store)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == len(steps)
    assert "acks what is below 110, but for 3 messages" in out
    some = steps_of(run, store, "q", "--from", 7, "--to", 9)
    assert some == steps[7:10]


def test_a_state_is_what_was_there_then(run, store):
    steps = steps_of(run, store)
    purge = next(s["step"] for s in steps[1:] if s["verb"] == "purge")
    before = json.loads(run("replay", store, "--at", purge - 1, "--messages", "--json").out)
    assert (before["live"], before["ready"], before["unacked"]) == (89, 86, 3)
    bodies = [m["body"] for m in before["message_list"]]
    assert bodies == [f"old {n}" for n in range(21, 100)] + [f"new {n}" for n in range(10)]
    after = json.loads(run("replay", store, "--at", purge, "--messages", "--json").out)
    assert [int(m["req_id"]) for m in after["message_list"]] == [21, 22, 23]
    assert {m["delivery_count"] for m in after["message_list"]} == {1}
    last = json.loads(run("replay", store, "--at", -1, "--messages", "--json").out)
    assert last["record"]["verb"] == "mark"
    stored = last["message_list"][-1]
    assert (stored["body_bytes"], stored["persistent"]) == (9000, False)
    assert len(stored["msg_id"]) == 32
    out = run("replay", store, "--at", purge - 1, "--messages", "-n", 2).out
    assert "old 22" in out
    assert "and 87 more messages" in out


def test_what_a_purge_took_comes_back_into_a_store(run, store, tmp_path):
    steps = steps_of(run, store)
    purge = next(s["step"] for s in steps[1:] if s["verb"] == "purge")
    code, out, err = run("replay", store, "--at", purge - 1, "--out", tmp_path / "t")
    assert (code, err) == (0, "")
    assert "89 messages of step" in out
    with qindex.open(tmp_path / "t") as target:
        back = list(target.queue("q").browse())
    assert [m.body for m in back] == [b"old %d" % n for n in range(21, 100)] + [
        b"new %d" % n for n in range(10)
    ]
    assert [m.redelivered for m in back] == [True] * 3 + [False] * 86
    assert back[-1].headers == {"n": 1}
    assert run("replay", store, "--at", 3, "--out", tmp_path / "t").code == 2  # it has the queue
    assert run("replay", store, "--at", 3, "--out", store / "inside").code == 2
    assert run("replay", store, "--out", tmp_path / "u").code == 2
    last = len(steps) - 1
    assert run("replay", store, "--at", last, "--out", tmp_path / "v").code == 0
    with qindex.open(tmp_path / "v") as target:
        *_, stored = target.queue("q").browse()
        assert (stored.body, stored.persistent) == (b"B" * 9000, False)


def test_bodies_that_are_gone_are_counted(run, tmp_path):
    with qindex.open(tmp_path / "s", embed_below=0) as store:
        queue = store.queue("q")
        queue.publish_many([b"one", b"two"])
    file = tmp_path / "s" / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    data[data.find(b"one")] ^= 1
    file.write_bytes(data)
    code, out, _ = run("replay", tmp_path / "s", "--until", 1, "--out", tmp_path / "t")
    assert code == 1
    assert "1 message of step" in out
    assert "the payloads of 1 message are gone" in out


def test_until_stops_behind_a_record_about_a_message(run, store):
    def until(*arguments):
        code, out, err = run("replay", store, "q", "--until", *arguments, "--json")
        return json.loads(out)["record"] if code == 0 else err

    assert until(105)["verb"] == "publish"
    assert until(20)["verb"] == "deliver"
    assert until(20, "--verb", "ack")["verb"] == "ack"
    assert until(30)["verb"] == "purge"
    assert "no deliver of ReqId 30" in until(30, "--verb", "deliver")
    assert run("replay", store, "--at", 999).code == 2
    assert run("replay", store, "--at", -999).code == 2
    assert run("replay", store, "nobody").code == 2
    assert run("replay", store, "--at", 1, "--step").code == 2


def test_by_hand_forwards_and_back(run, store, monkeypatch):
    def by_hand(*commands):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(c + "\n" for c in commands)))
        out = run("replay", store, "--step").out
        return [int(line.split()[0]) for line in out.splitlines() if " live  " in line], out

    assert by_hand("n", "", "b", "10", "-3", "+1", "q", "n")[0] == [0, 1, 2, 1, 10, 7, 8]
    numbers, out = by_hand("$", "n", "b", "0", "b", "f 20", "m", "?")
    last = len(steps_of(run, store)) - 1
    assert numbers[:6] == [0, last, last, last - 1, 0, 0]
    assert f"the end: {last} records" in out
    assert "90 live messages (* delivered before)" in out
    assert " 20* 21 " in out


def test_both_ways_come_to_the_same_also_beside_a_writer(run, store, store_path):
    code, out, _ = run("replay", store_path, "--verify", "--json")
    verdicts = {v["queue"]: v for v in json.loads(out)}
    assert code == 0
    assert verdicts["mails"]["messages"] == verdicts["orders"]["messages"] == 235
    assert all(v["same"] and v["record_count"] for v in verdicts.values())
    with qindex.open(store) as writer:
        writer.queue("q").publish(b"and one more")
        code, out, _ = run("replay", store, "q", "--verify")
        assert code == 0
        assert "the same" in out


def flip_an_ack(path, req_id):
    """As if the engine had lost an ack: the record becomes a delivery, its checksum is right."""
    file = queue_directory(path, "q") / "journal.alt"
    data = bytearray(file.read_bytes())
    at = data.find((3 << 62 | req_id).to_bytes(8, "big"))
    data[at] &= 0xBF
    frame = at - 8
    header = journal_header(bytes(data))
    seed = crc(0, header.identity + struct.pack(">QQ", 0, header.epoch))
    value = crc(seed, struct.pack(">Q", frame) + bytes(data[frame : frame + 4]) + data[at : at + 8])
    data[frame + 4 : frame + 8] = value.to_bytes(4, "big")
    assert Frames(bytes(data), header).at(frame) is not None
    file.write_bytes(data)


def test_a_difference_is_found_and_told(run, store, monkeypatch):
    flip_an_ack(store, 20)
    steps = steps_of(run, store)
    assert "ack" not in [s.get("verb") for s in steps]
    assert run("replay", store, "--verify").code == 0  # both see the same records
    monkeypatch.setitem(replay._BITS, "deliver", replay.PUBLISHED)
    code, out, _ = run("replay", store, "--verify")
    assert code == 1
    assert "ReqId 21: redelivered is True for the engine, False by its records" in out


def test_damage_is_told_and_counts(run, store):
    file = queue_directory(store, "q") / "journal.alt"
    data = bytearray(file.read_bytes())
    at = data.find(b"new 5")
    data[at] ^= 1
    file.write_bytes(data)
    code, _, err = run("replay", store)
    assert code == 1
    assert "among durable records are damaged" in err
    code, out, _ = run("replay", store, "--verify")
    assert code == 1
    assert "damaged" in out


@pytest.fixture
def node(dead_node, tmp_path):
    """(its directory, a queue, live seqs): a node whose journal says what happened last.

    One message was delivered, one acked, one published anew.
    """
    path = tmp_path / "node"
    shutil.copytree(dead_node, path)
    with open_node(path) as node:
        plain = [q for q in node.queues if len(q.parts) == 1 and q.vhost.name == "/"]
        queue = max(plain, key=lambda q: q.counts.live - q.counts.stored)
        part = queue.parts[0]
        seqs = [m.seq for m in queue.messages_of(part)]
        folder = node.tree.path / part.where
        first = next(iter(queue.vhost.live(part)))
    fields = struct.pack(">16sQII", first[3][0], 0, first[3][2], first[3][3])
    with (node.tree.path / first[2]).open("rb") as file:
        file.seek(first[3][4])
        publish = fields + file.read(first[3][3])
    new = seqs[-1] + 5
    words = [2 << 62 | seqs[0], 2 << 62 | seqs[1], 3 << 62 | seqs[1]]
    journal = b"".join(word.to_bytes(8, "big") for word in words)
    (folder / "journal.jif").write_bytes(journal + new.to_bytes(8, "big") + publish)
    return path, queue.name, [seqs[0], *seqs[2:], new]


def test_a_dead_rabbitmq_node(run, node):
    path, name, live = node
    steps = steps_of(run, path, name)
    told = [(s["verb"], s["live"]) for s in steps[1:]]
    assert told == [("deliver", len(live)), ("deliver", len(live)), ("ack", len(live) - 1),
                    ("publish", len(live))]  # fmt: skip
    last = json.loads(run("replay", path, name, "--at", 4, "--messages", "--json").out)
    assert [int(m["req_id"]) for m in last["message_list"]] == live
    assert last["message_list"][0]["state"] == "unacked"
    assert last["message_list"][-1]["published_by"] == "step 4"
    code, out, _ = run("replay", path, "--verify", "--json")
    assert code == 0
    (verdict,) = [v for v in json.loads(out) if v["queue"] == name]
    assert (verdict["record_count"], verdict["messages"]) == (4, len(live))


def test_a_difference_in_a_rabbitmq_queue_is_found(run, node, monkeypatch):
    monkeypatch.setattr(rabbitmq_replay, "VERBS", ("publish", "publish", "deliver", "deliver"))
    code, out, _ = run("replay", node[0], node[1], "--verify")
    assert code == 1
    assert "its records say" in out
