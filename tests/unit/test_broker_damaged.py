"""One queue of a virtual host is damaged: it is refused, and the others are served."""

from __future__ import annotations

import logging
import os
import shutil

import pytest
from broker_rooms import NoSyncs, Turns, declare, drain, publish
from helpers import files_of, queue_directory

import qindex
from qindex.broker import acts
from qindex.broker.catalog import StoreCatalog
from qindex.broker.errors import NotFound, Precondition, VHostDown
from qindex.broker.node import Node
from qindex.broker.vhost import VHost

DAMAGED = "queue 'bad' in vhost '/' is damaged, and is not served before a `qindex salvage`: "


def both_journals(folder):
    for path in folder.glob("journal.*"):
        path.write_bytes(b"\xff" * path.stat().st_size)


def meta_is_empty(folder):
    (folder / "queue.meta").write_bytes(b"")


def meta_is_missing(folder):
    (folder / "queue.meta").unlink()


def a_file_is_no_file(folder):
    (folder / "journal.jif").unlink()
    os.mkfifo(folder / "journal.jif")


def another_queues_files(folder):
    other = queue_directory(folder.parent.parent, "good")
    for path in other.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())


HOW = [both_journals, meta_is_empty, meta_is_missing, a_file_is_no_file, another_queues_files]


@pytest.fixture
def folder(tmp_path):
    """A virtual host with two queues; that of the second one."""
    path = tmp_path / "s"
    with qindex.open(path, format=2, expire=False) as store:
        vhost = VHost("/", Turns(), store)
        for name in ("good", "bad"):
            publish_to(declare(vhost, name, expires=60_000), vhost, b"1", b"2")
            vhost.bind("amq.fanout", "queue", name, "", {}, None)
        vhost.close()
    return queue_directory(path, "bad")


def publish_to(queue, vhost, *bodies):
    publish(vhost, *bodies, key=queue.name)


def opened(folder, turns):
    store = qindex.open(folder.parent.parent, format=2, expire=False)
    return store, VHost("/", turns, store)


@pytest.fixture
def damaged(folder, turns):
    both_journals(folder)
    store, vhost = opened(folder, turns)
    with store:
        yield vhost
        vhost.close()


@pytest.fixture
def turns():
    return Turns()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("is_empty", [False, True])
def test_the_others_are_served_and_nothing_in_its_folder_changes(
    folder, turns, caplog, how, is_empty
):
    if is_empty:
        with qindex.open(folder.parent.parent, format=2) as store:
            store.queue("bad").purge()
    how(folder)
    before = files_of(folder) if how is not a_file_is_no_file else None
    with caplog.at_level(logging.ERROR):
        store, vhost = opened(folder, turns)
    with store:
        (said,) = [each for each in caplog.messages if "is damaged" in each]
        assert str(folder) in said
        assert "qindex salvage" in said
        assert list(vhost.damaged) == ["bad"]
        assert vhost.damaged["bad"].startswith(DAMAGED)
        assert drain(vhost.queues["good"]) == [b"1", b"2"]
        turns.fire()  # x-expires: the queue that nobody uses goes, but for the damaged one
        assert list(vhost.queues) == ["bad"]
        store.sync()
        vhost.close()
    assert before is None or files_of(folder) == before


def test_who_wants_to_use_it_is_told_what_is_damaged(damaged):
    uses = [
        lambda: damaged.queue("bad", None),
        lambda: declare(damaged, "bad", expires=60_000),
        lambda: damaged.delete_queue("bad", None),
        lambda: damaged.check_arrived("bad"),
        lambda: damaged.queues["bad"].get(),
        lambda: damaged.queues["bad"].purge(),
        lambda: acts.move(damaged, damaged.queues["good"], [0], damaged.queues["bad"]),
    ]
    for use in uses:
        with pytest.raises(NotFound, match=r"'bad' .*is damaged.*journals"):
            use()
    assert len(damaged.queues["good"]) == 2
    assert [damaged.state_of(each) for each in damaged.queues.values()] == ["running", "damaged"]


def test_a_message_for_it_is_refused_and_counted_and_the_others_get_theirs(damaged, caplog):
    outcomes = publish(damaged, b"3", b"4", exchange="amq.fanout")
    outcomes += publish(damaged, b"5", key="bad")
    assert [each.queues for each in outcomes] == [["good"], ["good"], []]
    assert all(each.refused for each in outcomes)
    assert damaged.refused_by_damaged == 3
    (said,) = [each for each in caplog.messages if "are refused" in each]
    assert "'bad'" in said
    assert drain(damaged.queues["good"]) == [b"1", b"2", b"3", b"4"]


def test_its_bindings_can_be_changed(damaged):
    damaged.unbind("amq.fanout", "queue", "bad", "", {}, None)
    (outcome,) = publish(damaged, b"3", exchange="amq.fanout")
    assert (outcome.queues, outcome.refused) == (["good"], False)
    damaged.bind("amq.fanout", "queue", "bad", "", {}, None)
    (outcome,) = publish(damaged, b"4", exchange="amq.fanout")
    assert outcome.refused


def test_a_dead_letter_for_it_stays_in_its_queue_until_the_next_start(damaged, turns, caplog):
    queue = declare(damaged, "work", dead_letter_exchange="amq.fanout", max_length=3)
    publish_to(queue, damaged, b"a", b"b", b"c", b"d")  # a leaves, for there are too many
    queue.reject([queue.get()])
    assert (len(queue), queue.unacked) == (2, 2)
    assert damaged.dead_dropped == 0
    assert len(damaged.queues["good"]) == 2  # it would get them twice
    assert len([each for each in caplog.messages if "stay in it" in each]) == 1
    assert drain(queue) == [b"c", b"d"]
    store = damaged._store
    damaged.close()
    store.close()
    store, again = opened(queue_directory(store.path, "bad"), turns)
    with store:
        assert drain(again.queues["work"]) == [b"a", b"b"]
        again.close()


def stuck_in(vhost, name, **options):
    """A queue with a dead letter for the damaged one, and nothing else."""
    queue = declare(vhost, name, dead_letter_exchange="", dead_letter_routing_key="bad", **options)
    publish_to(queue, vhost, b"x")
    queue.reject([queue.get()])
    assert (len(queue), queue.stuck) == (0, 1)
    return queue


def test_a_queue_with_such_dead_letters_is_not_deleted_in_silence(damaged, turns, caplog):
    queue = stuck_in(damaged, "work", expires=60_000)
    turns.fire()
    damaged.delete_unused(queue)
    with pytest.raises(Precondition, match="'work' in vhost '/' not empty"):
        damaged.delete_queue("work", None, if_empty=True)
    assert queue.stuck == 1
    assert damaged.queues["work"] is queue
    damaged.delete_queue("work", None)
    assert "work" not in damaged.queues
    assert "1 dead letter with it that waited there for a damaged queue" in caplog.messages[-1]


def test_in_memory_such_a_dead_letter_is_dropped_and_counted(damaged):
    named = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "bad"}
    options = {"durable": False, "auto_delete": False, "owner": None, "user": None}
    queue = damaged.declare_queue("memory", arguments=named, **options)
    publish_to(queue, damaged, b"x")
    queue.reject([queue.get()])
    assert (damaged.dead_dropped, queue.unacked) == (1, 0)


def test_a_damaged_queue_without_a_definition_is_named_too(folder, turns):
    with qindex.open(folder.parent.parent, format=2) as store:
        StoreCatalog(store).apply({"queue/bad": None})
    both_journals(folder)
    store, vhost = opened(folder, turns)
    with store:
        assert list(vhost.damaged) == ["bad"]
        assert "queue/bad" not in dict(vhost.catalog.items())
        vhost.close()


def test_a_file_in_the_place_of_its_folder_is_damage(folder, turns):
    """The store tried to make a folder there, and failed with all that was in it."""
    shutil.rmtree(folder)
    folder.write_bytes(b"a file")
    store, vhost = opened(folder, turns)
    with store:
        assert vhost.damaged == {"bad": DAMAGED + "queue bad: a file is in the place of its folder"}
        assert drain(vhost.queues["good"]) == [b"1", b"2"]
        declare(vhost, "new")
        vhost.close()
    assert folder.read_bytes() == b"a file"


def test_one_damaged_message_does_not_cost_a_queue_with_a_limit_of_bytes(folder, turns):
    path = folder.parent.parent
    with qindex.open(path, format=2, expire=False) as store:
        vhost = VHost("/", turns, store)
        queue = declare(vhost, "long", max_length_bytes=10_000_000)
        publish_to(queue, vhost, b"a" * 5000, b"b" * 5000, b"c" * 5000)
        vhost.close()
    for file in path.glob("messages/*.qms"):
        whole = file.read_bytes()
        if (at := whole.find(b"b" * 5000)) >= 0:
            file.write_bytes(whole[: at + 9] + b"?" + whole[at + 10 :])
    store, vhost = opened(folder, turns)
    with store:
        assert not vhost.damaged
        assert vhost.queues["long"]._bytes == 10_000
        assert drain(vhost.queues["long"]) == [b"a" * 5000, b"c" * 5000]
        vhost.close()


def test_what_keeps_a_virtual_host_down_is_said_again_to_the_next_who_asks(tmp_path, monkeypatch):
    node = Node(tmp_path, Turns(), NoSyncs, {})

    def fails(*args):
        raise qindex.StoreCorrupt("the definitions are damaged")

    monkeypatch.setattr("qindex.broker.definitions.restore", fails)
    for _ in range(3):
        with pytest.raises(VHostDown, match="definitions are damaged"):
            node.vhost("/")
    assert not node.stores
    monkeypatch.undo()
    assert node.vhost("/").queues == {}  # and when it is mended, it is served
    node.close()
