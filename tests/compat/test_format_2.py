"""Stores of format 2 as they were when it became a promise: read, and written on.

make_format_2.py made them, with their truth: what its program published, moved and did not ack.
"""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import pytest

import qindex
from qindex.cli.main import main

ARCHIVE = Path(__file__).parent / "data" / "format_2.tar.xz"
SMALL = {"max_journal_entries": 60, "max_journal_bytes": 32768, "embed_below": 200}
KEYS = ("headers", "persistent", "priority", "expires_at", "dead")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("format_2")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.fixture(params=["clean", "unclean", "cut"])
def made(request, folder):
    """The path of a store that is only read, and the truth about it."""
    return folder / request.param, json.loads((folder / f"{request.param}.json").read_text())


@pytest.fixture
def own(made, tmp_path):
    """The same for a test that writes to the store."""
    return shutil.copytree(made[0], tmp_path / "own"), made[1]


def seen_of(message):
    return {
        "sha256": hashlib.sha256(message.body).hexdigest(),
        "due": None if message.dead else message.due,
        **{key: getattr(message, key) for key in KEYS},
    }


def truth_of(truth, name, *, transients):
    known = truth["queues"][name].items()
    return {r: m for r, m in known if transients or m["persistent"]}


def check_queue(queue, known):
    there = {str(message.req_id): message for message in queue.browse()}
    assert there.keys() == known.keys(), queue.name
    for req_id, message in there.items():
        told = known[req_id]
        assert seen_of(message) == {key: told[key] for key in ("sha256", "due", *KEYS)}, message
        low, high = told["published"]
        assert low <= message.published_at <= high, message
        deaths = [[d.queue, d.why, d.times] for d in message.deaths]
        if told["dead"] is None:
            assert deaths == told["deaths"], message
        else:
            assert (queue.name, told["dead"]) in [(d.queue, d.why) for d in message.deaths]


def check_all(store, truth, *, transients):
    assert sorted(store.queues()) == sorted(truth["queues"])
    for name in truth["queues"]:
        queue = store.queue(name, create=False)
        check_queue(queue, truth_of(truth, name, transients=transients))
        told = {k: v.encode() for k, v in truth["data"].get(name, {}).items()}
        assert queue.data.copy() == {key.encode(): value for key, value in told.items()}
        for key, value in truth["settings"].get(name, {}).items():
            assert getattr(queue.settings, key) == value
    expected = {k.encode(): v.encode() for k, v in truth["data"]["store"].items()}
    assert store.data.copy() == expected
    store.check()
    assert [finding for finding in store.findings if finding.severity == "damage"] == []


def test_the_truth_is_about_something(made):
    path, truth = made
    messages = [m for queue in truth["queues"].values() for m in queue.values()]
    assert len(messages) > 250
    assert {m["dead"] for m in messages} == {None, "rejected", "deliveries", "expired"}
    assert sum(bool(m["deaths"]) for m in messages) == 1
    assert sum(m["lease"] is not None for m in messages) == 6
    assert [file.suffix for file in (path / "commits").iterdir()] == [".log"]
    assert any(file.suffix == ".alt" for file in path.glob("queues/*/[0-9]*"))
    assert any(file.name.startswith("past.") for file in path.glob("queues/*/*"))


def test_a_store_of_format_2_is_read_and_nothing_is_changed(made):
    path, truth = made
    before = {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}
    with qindex.open(path, read_only=True) as store:
        assert store.stats().format == 2
        check_all(store, truth, transients=True)
    assert before == {f: f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_a_store_of_format_2_is_written_on(own):
    path, truth = own
    for round_number in range(2):
        with qindex.open(path, expire=False, **SMALL) as store:
            if round_number == 0:
                check_all(store, truth, transients=truth["clean"])
            for name, known in truth["queues"].items():
                queue = store.queue(name)
                new = queue.publish_many([b"new %d" % number for number in range(70)])
                assert not {str(req_id) for req_id in new} & known.keys()
                left = truth_of(truth, name, transients=truth["clean"])
                there = {str(m.req_id): m for m in queue.browse() if m.req_id not in new}
                assert left.keys() <= there.keys()
                for req_id, told in left.items():
                    assert told["published"][0] <= there[req_id].published_at
            assert [f for f in store.findings if f.severity == "damage"] == []


def test_leases_of_messages_are_those_that_they_were_published_with(own):
    path, truth = own
    known = truth_of(truth, "leases", transients=True)
    with qindex.open(path, expire=False, sync="never") as store:
        for message in store.queue("leases").get_many(20):
            told = known[str(message.req_id)]["lease"]
            assert message.delivery_count == 1  # what was given back unseen does not count
            assert queue_lease(store, message.req_id) == (told or 0)


def queue_lease(store, req_id):
    from qindex._core import lib

    return lib.qi_lease_of(store.queue("leases")._handle, req_id) / 1e6


@pytest.mark.parametrize("command", ["check", "ls", "du", "stats"])
def test_a_command_looks_at_a_store_of_format_2(made, capsys, command):
    path, _ = made
    assert main([command, str(path)]) == 0
    assert capsys.readouterr().out


def test_each_queue_is_replayed_from_the_beginning_of_its_history(made, capsys):
    path, truth = made
    assert main(["replay", str(path), "--verify"]) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert out.count("✓ the same") == len(truth["queues"])
