"""Stores that an older qindex wrote, when there was only format 1: read, written on, and upgraded.

make_format_1.py made them, with their truth: what its program published and did not ack.
"""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

import qindex
from qindex.cli.main import main

ARCHIVE = Path(__file__).parent / "data" / "format_1.tar.xz"
SMALL = {"max_journal_entries": 60, "max_journal_bytes": 32768, "embed_below": 200}


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture(params=["clean", "unclean"])
def made(request, folder):
    """The path of a store, and the truth about it: queue -> ReqId -> what is known of it."""
    return folder / request.param, json.loads((folder / f"{request.param}.json").read_text())


def read(store, name):
    """As the truth says it, but for redelivered, which only a get tells."""
    found = {}
    for message in store.queue(name, create=False).browse():
        found[str(message.req_id)] = {
            "sha256": hashlib.sha256(message.body).hexdigest(),
            "headers": message.headers,
            "persistent": message.persistent,
            "priority": message.priority,
            "expires_at": message.expires_at,
            "due": None if message.dead else message.due,
            "dead": message.dead,
        }
    return found


def truth_of(truth, name, *, transients=True):
    known = truth["queues"][name].items()
    return {
        req_id: {key: value for key, value in message.items() if key != "redelivered"}
        for req_id, message in known
        if transients or message["persistent"]
    }


def check_all(store, truth, *, transients):
    assert sorted(store.queues()) == sorted(truth["queues"])
    for name in truth["queues"]:
        assert read(store, name) == truth_of(truth, name, transients=transients), name
    store.check()
    assert [finding for finding in store.findings if finding.severity == "damage"] == []


def test_the_truth_is_about_something(made):
    _, truth = made
    messages = [m for queue in truth["queues"].values() for m in queue.values()]
    assert len(messages) > 200
    assert {m["dead"] for m in messages} == {None, "rejected", "deliveries", "expired"}
    assert sum(bool(m["headers"]) for m in messages) > 10
    assert sum(not m["persistent"] for m in messages) > 5
    assert len({m["priority"] for m in messages}) > 40
    assert sum(m["due"] is not None for m in messages) > 30


def test_a_store_of_format_1_is_read(made):
    path, truth = made
    before = {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}
    with qindex.open(path, read_only=True) as store:
        assert store.stats().format == 1
        check_all(store, truth, transients=True)
    assert before == {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}


@pytest.mark.parametrize("upgrade", [False, True])
def test_a_store_of_format_1_is_written_on_and_upgraded(made, upgrade):
    path, truth = made
    with qindex.open(path, expire=False, upgrade=upgrade, **SMALL) as store:
        assert store.stats().format == (2 if upgrade else 1)
        check_all(store, truth, transients=truth["clean"])
        for name, known in truth["queues"].items():
            queue = store.queue(name)
            highest = max(map(int, known), default=-1)
            new = queue.publish_many([b"new %d" % number for number in range(100)])
            assert not {str(req_id) for req_id in new} & known.keys()
            assert new[0] > highest or highest >> 52
    with qindex.open(path, expire=False, **SMALL) as store:
        assert store.stats().format == (2 if upgrade else 1)
        for name, known in truth["queues"].items():
            queue = store.queue(name)
            left = set(truth_of(truth, name, transients=truth["clean"]))
            new = 0
            while message := queue.get():
                if message.body.startswith(b"new "):
                    new += 1
                else:
                    left.remove(str(message.req_id))
                    told = known[str(message.req_id)]["redelivered"]
                    assert message.redelivered == (told or not truth["clean"]), message
                queue.ack(message)
            assert new == 100
            waiting = {r for r in left if known[r]["due"] is None and known[r]["dead"] is None}
            assert not waiting
            assert len(queue) + queue.stats().dead >= len(left)
        store.check()
        assert [finding for finding in store.findings if finding.severity == "damage"] == []


@pytest.mark.parametrize("command", ["check", "ls", "du", "stats"])
def test_a_command_looks_at_a_store_of_format_1(made, capsys, command):
    path, _ = made
    assert main([command, str(path)]) == 0
    assert capsys.readouterr().out


def test_each_queue_is_replayed_from_the_beginning_of_its_history(made, capsys):
    path, truth = made
    assert main(["replay", str(path), "--verify"]) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert out.count("✓ the same") == len(truth["queues"])


def test_an_index_of_format_1_is_read_and_written_on(folder):
    truth = json.loads((folder / "index.json").read_text())
    known = [(int(r), bytes.fromhex(i), size, out) for r, (i, size, out) in truth.items()]
    for _ in range(2):
        with qindex.QueueIndex(folder / "index") as index:
            found = index.read(0, known[-1][0] + 1)
            assert [(e.req_id, e.msg_id, e.size, e.delivered) for e in found] == known
            assert index.publish() > known[-1][0]
