"""cat, and the options that choose messages, which all commands share."""

import hashlib
import json

import pytest
from helpers import queue_directory

import qindex
from qindex.cli.main import main
from qindex.look import messages
from qindex.moments import utc


def state_of(path):
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


def lines_of(process):
    out, err = process.communicate()
    assert err == ""
    return out.splitlines()


def test_bodies_go_to_stdout_as_they_are(start, tmp_path):
    bodies = [bytes(range(256)), b"", "☃".encode()]
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish_many(bodies)

    def written(*options):
        return start("cat", tmp_path / "s", "q", *options).stdout.buffer.read()

    assert written() == b"".join(body + b"\n" for body in bodies)
    assert written("--separator", "") == b"".join(bodies)
    assert written("--separator", r"\0\\-\n") == b"".join(body + b"\0\\-\n" for body in bodies)
    assert written("--lengths") == b"".join(len(b).to_bytes(4, "big") + b for b in bodies)


def test_all_queues_or_the_chosen_ones_in_their_order(start, store_path):
    assert len(lines_of(start("cat", store_path))) == 470
    assert lines_of(start("cat", store_path, "orders", "mails", "-n", 2)) == [
        "body 70", "body 71", "body 70", "body 71",
    ]  # fmt: skip
    assert lines_of(start("cat", store_path, "-n", 1, "orders")) == ["body 70"]


def test_messages_are_chosen_by_req_id(start, store_path):
    def shown(range_):
        return lines_of(start("cat", store_path, "orders", "--req-id", range_))

    assert shown("72") == ["body 72"]
    assert shown("60-71") == ["body 70", "body 71"]
    assert shown("298-") == ["body 298", "body 299", *["B" * 9000] * 5]
    assert shown("0-5") == []


def test_messages_are_chosen_by_state(run, start, tmp_path):
    with qindex.open(tmp_path / "s", expire=False) as store:
        queue = store.queue("q")
        queue.publish(b"seen", redelivered=True)
        queue.publish(b"gone", expires_at=1)
        queue.publish(b"new")

    def shown(*states):
        return lines_of(start("cat", tmp_path / "s", "--state", ",".join(states)))

    assert shown("ready") == ["new"]
    assert shown("unacked") == ["seen"]
    assert shown("expired") == ["gone"]
    assert shown("ready", "expired") == ["gone", "new"]
    assert lines_of(start("cat", tmp_path / "s", "--state", "ready", "-n", 1)) == ["new"]
    assert "none of ready" in run("cat", tmp_path / "s", "--state", "acked").err


@pytest.mark.parametrize("text", ["a", "5-3", "-4", "1-2-3", str(1 << 62)])
def test_a_range_that_is_none_is_refused(run, store_path, text):
    code, _, err = run("cat", store_path, "orders", f"--req-id={text}")
    assert code == 2
    assert err.count("\n") == 1


def test_a_range_needs_a_queue_and_a_separator_knows_four_escapes(run, store_path):
    assert "needs a QUEUE" in run("cat", store_path, "--req-id", "3").err
    assert r"\x is none of" in run("cat", store_path, "--separator", r"\x").err


def test_json_lines_have_the_documented_keys(run, store_path):
    out = run("cat", store_path, "orders", "--req-id", "302", "--jsonl").out
    told = json.loads(out)
    with qindex.open(store_path, read_only=True) as store:
        published = store.queue("orders").peek(302).published_at
    assert told == {
        "queue": "orders",
        "req_id": "302",
        "entry": None,
        "priority": None,
        "state": "ready",
        "dead": None,
        "due_at": None,
        "redelivered": False,
        "delivery_count": 0,
        "persistent": True,
        "expires_at": None,
        "published_at": None if published is None else utc(published),  # format 1 keeps none
        "headers": {"kind": "big"},
        "properties": None,
        "body": "B" * 9000,
    }
    documented = str(messages.__doc__)
    assert all(key in documented for key in told)


def test_a_dead_rabbitmq_node_is_read_without_recovering_it(run, dead_node, tmp_path):
    before = state_of(dead_node)
    run("recover", dead_node, "--out", tmp_path / "s", "--keep-expired")
    found = run("cat", dead_node, "--jsonl")
    assert (found.code, found.err) == (0, "")
    assert state_of(dead_node) == before
    there = [json.loads(line) for line in found.out.splitlines()]
    here = [json.loads(line) for line in run("cat", tmp_path / "s", "--jsonl").out.splitlines()]
    assert len(there) == len(here) == 339
    for key in ("queue", "body", "headers", "properties", "redelivered"):
        assert [told.get(key) for told in there] == [told.get(key) for told in here]
    priorities = [told["priority"] for told in there if told["queue"] == "q.prio"]
    assert priorities == sorted(priorities, reverse=True)
    assert len(set(priorities)) > 1
    assert "virtual host" in run("cat", dead_node, "nobody").err


def test_peek_shows_a_dead_rabbitmq_node(run, dead_node):
    code, out, err = run("peek", dead_node, "q.prio", "-n", 3)
    assert (code, err) == (0, "")
    assert "priority 5" in out
    assert "routing_keys=['q.prio']" in out
    code, _, err = run("peek", dead_node, "q.prio", "--req-id", 999_999)
    assert code == 2
    assert "no message 999999 in 'q.prio'" in err


def test_what_is_behind_a_damaged_message_is_written(run, store_path):
    file = store_path / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    code, out, err = run("cat", store_path, "mails", "--jsonl")
    assert code == 1
    assert len(out.splitlines()) == 234
    assert "mails: message 300 " in err
    assert "1 damaged place" in err


def test_much_damage_is_counted_and_the_first_of_it_told(run, tmp_path):
    with qindex.open(tmp_path / "s", embed_below=0) as store:
        store.queue("q").publish_many([b"x"] * 50)
    (tmp_path / "s" / "messages" / "0.qms").unlink()
    code, out, err = run("cat", tmp_path / "s")
    assert (code, out) == (1, "")
    assert 20 < err.count("\n") < 25
    assert "more damage" in err


def test_a_queue_beyond_reading_leaves_the_others(run, store_path):
    meta = queue_directory(store_path, "orders") / "journal.jif"
    other = queue_directory(store_path, "orders") / "journal.alt"
    for file in (meta, other):
        if file.exists():
            file.write_bytes(b"\xff" * 8192)
    code, out, err = run("cat", store_path, "--jsonl")
    assert code == 1
    assert {json.loads(line)["queue"] for line in out.splitlines()} == {"mails"}
    assert "orders" in err


def test_delayed_messages_and_dead_letters_are_told_apart(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish_many([b"bad", b"good"])
        queue.nack(queue.get(), requeue=False)
        queue.publish(b"later", due=4e9)
        told = [json.loads(line) for line in run("cat", store.path, "--jsonl").out.splitlines()]
        assert [(m["body"], m["state"], m["dead"], m["due_at"]) for m in told] == [
            ("bad", "dead", "rejected", None),
            ("good", "ready", None, None),
            ("later", "delayed", None, "2096-10-02T07:06:40Z"),
        ]
        shown = run("peek", store.path).out
        assert "dead letter: rejected" in shown
        assert "due 2096-10-02T07:06:40Z" in shown
        (stats,) = json.loads(run("stats", store.path, "--json").out)["queues"]
        assert (stats["ready"], stats["delayed"], stats["dead"]) == (1, 1, 1)
        assert run("stats", store.path).out.splitlines()[-1].split()[:5] == [
            "q",
            "3",
            "0",
            "1",
            "1",
        ]
        (look,) = json.loads(run("top", store.path, "--once", "--json").out)["queues"]
        assert [look[key] for key in ("messages", "unacked", "delayed", "dead")] == [3, 0, 1, 1]
        assert int(look["oldest_req_id"]) == 1
        depth = json.loads(run("plot", "depth", store.path, "q", "--json").out)["depth"]
        assert depth[-1] == 3


@pytest.mark.parametrize("command", ["cat", "export"])
def test_one_message_that_is_not_there_is_named_and_the_exit_code_is_1(tmp_path, capfd, command):
    with qindex.open(tmp_path / "s") as store:
        store.queue("a").publish_many([b"0", b"1"])
        store.queue("b").publish_many([b"0", b"1"])
        store.queue("b").ack(store.queue("b").get())
    more = []
    if command == "export":
        more = ["--out", str(tmp_path / "out.jsonl")]

    def code(*queues, req_id, again=False):
        for file in () if again else tmp_path.glob("out*"):
            file.unlink()
        result = main([command, str(tmp_path / "s"), *queues, "--req-id", req_id, *more])
        return result, capfd.readouterr().err.splitlines()

    assert code("a", "b", req_id="1") == (0, [])
    gone = "qindex: no message 0 in 'b': it was acked, expired, or is not in the wanted state"
    assert code("a", "b", req_id="0") == (1, [gone])
    assert code("a", "b", req_id="0", again=True) == (1, [gone]), "also of a job that is complete"
    new = ["qindex: no message 7 in 'a': it is not published yet"]
    assert code("a", req_id="7") == (1, new)
    assert code("b", req_id="0-0") == (1, [gone])
    assert code("b", req_id="0-1") == (0, []), "a range may have gaps"
