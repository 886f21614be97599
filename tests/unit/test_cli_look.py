"""ls, stats, check and peek: looking at a store without changing it."""

import hashlib
import json
import re
import shutil

import pytest
from helpers import queue_directory

import qindex


def state_of(path):
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


def directory_of(store_path, name):
    return queue_directory(store_path, name)


def flip(file, offset):
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x40
    file.write_bytes(data)


@pytest.fixture(params=["segment", "journal", "body", "message file", "meta", "headers"])
def damaged(request, store_path):
    """A store with one kind of damage, and what damaged it."""
    mails, orders = directory_of(store_path, "mails"), directory_of(store_path, "orders")
    messages = store_path / "messages" / "0.qms"
    if request.param == "segment":
        flip(orders / "2.idx", 500)
    elif request.param == "journal":
        flip(mails / "journal.jif", 9000)
    elif request.param == "body":
        flip(messages, 5000)
    elif request.param == "message file":
        messages.unlink()
    elif request.param == "meta":
        flip(orders / "queue.meta", 20)
    else:
        for journal in mails.glob("journal.*"):
            for offset in (20, 4096 + 20):
                flip(journal, offset)
    return store_path


def test_looking_changes_nothing(run, store_path):
    before = state_of(store_path)
    for command in ("ls", "stats", "check", "peek", "dump"):
        assert run(command, store_path).code == 0
    assert state_of(store_path) == before


def test_a_clean_store_checks_clean(run, store_path):
    code, out, err = run("check", store_path)
    assert (code, err) == (0, "")
    assert ": clean; 2 queues, 470 messages, 1 message file " in out
    told = json.loads(run("check", store_path, "--json").out)
    assert told["clean"] is True
    assert (told["queue_count"], told["messages"], told["findings"]) == (2, 470, [])


def test_damage_is_found_told_and_left_as_it_is(run, damaged):
    before = state_of(damaged)
    code, out, _ = run("check", damaged)
    assert code == 1
    assert "  damage  " in out
    assert "damaged place" in out.splitlines()[-1]
    told = json.loads(run("check", damaged, "--json").out)
    assert told["damage"] == sum(f["severity"] == "damage" for f in told["findings"]) > 0
    assert state_of(damaged) == before


def test_damage_is_named_with_the_queue_that_it_is_in(run, store_path):
    flip(directory_of(store_path, "orders") / "2.idx", 500)
    assert "damage  queue orders, 2.idx at byte " in run("check", store_path).out


def test_other_commands_go_on_behind_damage(run, damaged):
    for command in ("ls", "stats", "peek", "dump"):
        code, out, _ = run(command, damaged)
        assert code in (0, 1)
        assert out


def test_a_queue_beyond_reading_does_not_hide_the_others(run, store_path):
    for journal in directory_of(store_path, "mails").glob("journal.*"):
        journal.unlink()
    code, out, _ = run("ls", store_path)
    assert code == 1
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["mails", "damaged"],
        ["orders", "235"],
    ]
    code, out, _ = run("stats", store_path)
    assert code == 1
    assert "mails: beyond reading" in out
    code, out, err = run("peek", store_path, "-n", 1)
    assert code == 1
    assert "body 70" in out
    assert err.startswith("qindex: mails: ")


def test_a_queue_whose_name_is_damaged_is_not_forgotten(run, store_path):
    for copy in (0, 4096):
        flip(directory_of(store_path, "orders") / "queue.meta", copy + 20)
    for command in ("ls", "stats"):
        code, out, _ = run(command, store_path)
        assert code == 1
        assert "1 queue whose name is damaged" in out
    assert json.loads(run("stats", store_path, "--json").out)["nameless_queues"] == 1


def test_a_store_that_cannot_be_opened_is_told_apart_from_damage(run, store_path):
    flip(store_path / "store.meta", 20)
    code, out, err = run("check", store_path)
    assert code == 1
    assert "one of the two copies" in out
    flip(store_path / "store.meta", 4096 + 20)
    code, out, err = run("check", store_path)
    assert (code, out) == (2, "")
    assert "store.meta is damaged" in err


def test_an_index_without_a_store_is_refused_with_advice(run, tmp_path):
    with qindex.QueueIndex(tmp_path / "i") as index:
        index.publish_many(3)
    code, _, err = run("stats", tmp_path / "i")
    assert code == 2
    assert "QueueIndex" in err
    code, out, _ = run("dump", tmp_path / "i")
    assert code == 0
    assert out.count("publish") == 3


def test_ls_lists_queues_with_their_messages(run, store_path):
    code, out, _ = run("ls", store_path)
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [["mails", "235"], ["orders", "235"]]
    told = json.loads(run("ls", store_path, "--json").out)
    assert told == [
        {"queue": "mails", "messages": 235, "error": ""},
        {"queue": "orders", "messages": 235, "error": ""},
    ]


def test_stats_agree_with_the_store(run, store_path):
    told = json.loads(run("stats", store_path, "--json").out)
    assert (told["queue_count"], told["message_files"], told["segment_entries"]) == (2, 1, 64)
    mails, orders = told["queues"]
    assert (mails["queue"], mails["ready"], int(mails["next_req_id"])) == ("mails", 235, 305)
    assert (orders["queue"], orders["ready"], orders["segments"]) == ("orders", 235, 5)
    assert 0 <= mails["oldest_seconds"] < 3600
    out = run("stats", store_path).out
    assert "messages       470" in out
    assert re.search(r"^ *mails .* [\d.]+ m?s ", out, re.M)


def test_an_empty_store_has_figures_too(run, tmp_path):
    qindex.open(tmp_path / "s").close()
    for command in ("ls", "stats", "check", "peek", "dump"):
        assert run(command, tmp_path / "s").code == 0


def test_peek_shows_the_first_messages_of_each_queue(run, store_path):
    code, out, _ = run("peek", store_path, "-n", 2)
    assert code == 0
    assert out.count("body 70\n") == out.count("body 71\n") == 2
    assert "body 72" not in out
    assert "mails  (235 messages)" in out
    assert "body" not in run("peek", store_path, "mails", "-n", 2).out.partition("orders")[2]


def test_peek_finds_one_message_by_its_req_id(run, store_path):
    out = run("peek", store_path, "orders", "--req-id", 302).out
    assert "kind=big" in out
    assert "…" in out  # a long body is cut
    told = json.loads(run("peek", store_path, "orders", "--req-id", 302, "--json").out)
    assert (int(told["req_id"]), told["body"], told["headers"]) == (
        302,
        "B" * 9000,
        {"kind": "big"},
    )


def test_peek_says_why_a_message_is_not_there(run, store_path):
    assert "acked" in run("peek", store_path, "orders", "--req-id", 3).err
    assert "not published" in run("peek", store_path, "orders", "--req-id", 999_999).err
    assert "QUEUE" in run("peek", store_path, "--req-id", 3).err
    assert "see qindex ls" in run("peek", store_path, "nobody").err
    assert run("peek", store_path, "nobody").code == 2


def test_a_message_that_expires_in_ten_thousand_years_is_shown_too(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"x", expires_at=4e12)
    assert "expires @4000000000000" in run("peek", tmp_path / "s").out


def test_a_queue_that_goes_while_it_is_listed_is_left_out(run, store_path, monkeypatch):
    monkeypatch.setattr(qindex.Store, "queues", lambda _: ["gone", "orders"])
    for command in ("ls", "stats", "peek"):
        code, out, _ = run(command, store_path)
        assert code == 0
        assert "gone" not in out
        assert "orders" in out


def test_peek_writes_raw_bodies_and_nothing_else(start, tmp_path):
    bodies = [bytes(range(256)), b"", "☃".encode()]
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish_many(bodies)
    process = start("peek", tmp_path / "s", "q", "--bodies", "raw")
    assert process.stdout.buffer.read() == b"".join(bodies)


def test_peek_shows_bytes_as_hex(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(bytes(range(256)), ttl=1000, persistent=False, redelivered=True)
    out = run("peek", tmp_path / "s").out
    assert "256 B, redelivered, transient, expires 20" in out
    assert "00000000  00 01 02 03" in out
    assert "192 more bytes" in out
    whole = run("peek", tmp_path / "s", "--bodies", "hex").out
    assert "000000f0  f0 f1" in whole
    assert "abcdefghijklmno" in whole


def test_peek_decodes_what_came_from_rabbitmq(run, dead_node, tmp_path):
    run("recover", dead_node, "--out", tmp_path / "s")
    out = run("peek", tmp_path / "s", "q.small", "-n", 1).out
    assert "routing_keys=['q.small']" in out
    assert "message_id=0" in out
    assert "T" in out.partition("timestamp=")[2][:20]
    told = json.loads(run("peek", tmp_path / "s", "q.small", "-n", 1, "--json").out)
    assert told["properties"]["app_id"] == "qix"


def test_stats_tell_when_the_next_delayed_message_is_due(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("none").publish(b"x")
        store.queue("q").publish(b"x", delay=3000)
        store.queue("q").publish(b"x", delay=7000)
    out = run("stats", tmp_path / "s").out
    none, some = (line for line in out.splitlines() if line.startswith(("  none", "  q ")))
    assert none.endswith("  -")
    assert some.split()[3] == "2"
    assert "  in 49 min" in some or "  in 50 min" in some


def test_a_priority_is_told_wherever_messages_are(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"plain")
        store.queue("q").publish(b"urgent", priority=9)
    lines = [json.loads(line) for line in run("cat", tmp_path / "s", "--jsonl").out.splitlines()]
    assert [(line["priority"], line["body"]) for line in lines] == [(None, "plain"), (9, "urgent")]
    assert "priority 9" in run("peek", tmp_path / "s").out
    out = tmp_path / "files"
    assert run("export", tmp_path / "s", "--out", out, "--form", "files").code == 0
    assert [file.read_bytes() for file in sorted(out.glob("q/p009-*.body"))] == [b"urgent"]


def test_a_dead_brokers_directory_is_listed_told_and_checked(run, dead_node):
    code, out, err = run("ls", dead_node, "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert {"queue": "q.small", "messages": 65, "error": ""} in rows
    assert {"queue": "vh-два/q.small", "messages": 10, "error": ""} in rows
    assert sum(row["messages"] for row in rows) == 339
    assert "  q.small                          65\n" in run("ls", dead_node).out
    assert "339 live (4.56 MB)" in run("stats", dead_node).out
    assert json.loads(run("stats", dead_node, "--json").out)["account"]["live"] == 339
    code, out, _ = run("check", dead_node)
    assert code == 0
    assert ": clean; RabbitMQ node, 19 queues, 339 live messages (4.56 MB), read in " in out


def test_check_reads_the_bodies_of_a_dead_broker(run, dead_node, tmp_path):
    shutil.copytree(dead_node, tmp_path / "dead")
    (file,) = (tmp_path / "dead").rglob("628WB*/msg_store_persistent/0.rdq")
    data = bytearray(file.read_bytes())
    where = data.index(b"basic_message")
    data[where : where + 5] = b"~~~~~"
    file.write_bytes(data)
    assert run("ls", tmp_path / "dead").code == 0  # it looks at indexes only
    code, out, _ = run("check", tmp_path / "dead", "--json")
    told = json.loads(out)
    assert (code, told["clean"], told["unreadable"], told["messages"]) == (1, False, 1, 338)
    assert [finding["kind"] for finding in told["findings"]] == ["message lost"]
    code, out, _ = run("check", tmp_path / "dead")
    assert (code, "1 damaged place; 1 unreadable; RabbitMQ node" in out) == (1, True)
