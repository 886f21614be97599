"""salvage: what a message has beside its body that is copied, or new, and said to be."""

import json

import pytest

import qindex
from qindex._core import lib


@pytest.mark.parametrize("lose", [False, True])
def test_a_lease_is_copied_and_what_cannot_be_is_told(run, tmp_path, lose):
    """Also that of a dead letter; and with it the list of deaths, and when it was published."""
    with qindex.open(tmp_path / "s", format=2) as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish(b"bad", lease=0.000001, priority=7)
        queue.nack(queue.get(lease=60), requeue=False)
        queue.publish_many([b"long", b"long too"], lease=7200.000001)
        queue.publish(b"plain")
        queue.flush()
        queue.publish(b"later", lease=0.3, delay=3600)
    wanted = leases(tmp_path / "s")
    assert sorted(wanted.values()) == [0, 1, 300_000, 7_200_000_001, 7_200_000_001]
    if lose:
        (tmp_path / "s" / "store.meta").unlink()
    told = run("salvage", tmp_path / "s", "--out", tmp_path / "new")
    assert told.code == int(lose)
    assert "5 messages: published_at is when it was copied\n" in told.out
    assert "1 message: its deaths were not copied" in told.out
    again = run("salvage", tmp_path / "s", "--out", tmp_path / "newer", "--json")
    (account,) = json.loads(again.out)["queues"]
    assert list(account["changes"].values()) == [5, 1]
    assert leases(tmp_path / "new") == wanted


def test_a_lease_that_the_new_store_cannot_keep_is_told(run, tmp_path):
    with qindex.open(tmp_path / "s", format=2) as store:
        store.queue("q").publish_many([b"1", b"2"], lease=60)
    qindex.open(tmp_path / "new", format=1).close()
    told = run("salvage", tmp_path / "s", "--out", tmp_path / "new")
    assert told.code == 1
    assert "2 messages: its own lease was left out: the new store has format 1" in told.err
    assert "2 messages of 1 queue salvaged" in told.out


def test_a_replayed_state_says_what_is_not_carried_over(run, tmp_path):
    """Its store has the format of the source: format 1 counts what is given back uncounted."""
    with qindex.open(tmp_path / "s", format=2) as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish_many([b"dead", b"uncounted", b"counted"])
        queue.nack(queue.get(), requeue=False)
        queue.nack(queue.get(), count=False)
        uncounted, counted = queue.get_many(2)
        queue.nack(counted)
        queue.nack(uncounted, count=False)
        queue.publish(b"later", delay=3600)
    told = run("replay", tmp_path / "s", "--at", -1, "--out", tmp_path / "t")
    assert (told.code, told.err) == (0, "")
    assert "All of them are ready there, also what was delayed or a dead letter then" in told.out
    with qindex.open(tmp_path / "t", read_only=True) as store:
        assert store.stats().format == 2
        back = list(store.queue("q").browse())
    assert [(m.body, m.delivery_count) for m in back] == [
        (b"dead", 1), (b"uncounted", 0), (b"counted", 1), (b"later", 0),
    ]  # fmt: skip
    assert not any(m.dead or m.due for m in back)


def leases(path):
    """In microseconds, by body."""
    with qindex.open(path, read_only=True) as store:
        queue = store.queue("q")
        return {m.body: lib.qi_lease_of(queue._handle, m.req_id) for m in queue.browse()}
