"""The table "what survives what" (docs/guide/durability.rst), row by row.

A process does something and ends: with close(), or by kill -9. The same on a simulated disk, whose
power is cut, with what was not synced at stake, and behind a sync.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import qindex
from qindex.testing import SimulatedDisk, abandon

PAGE = Path(__file__).parents[2] / "docs/guide/durability.rst"
LATER = 4_102_444_800


class End(NamedTuple):
    how: str  # close, kill, cut
    synced: bool  # only a cut asks for that
    wait: Callable[[float], None]

    @property
    def keeps_all(self) -> bool:
        return self.how != "cut" or self.synced


class Row(NamedTuple):
    act: Callable[[qindex.Store], Any]
    check: Callable[[qindex.Store, Any, End], None]
    simulated: bool = True


ROWS: dict[str, Row] = {}


def row(words: str, act: Callable[[qindex.Store], Any], *, simulated: bool = True) -> Any:
    """The check of the row that begins with these words, and what is done before the end."""

    def keep(check: Callable[[qindex.Store, Any, End], None]) -> None:
        ROWS[words] = Row(act, check, simulated)

    return keep


def bodies(store: qindex.Store, name: str = "q") -> list[bytes]:
    return [message.body for message in store.queue(name).browse()]


def act(store: qindex.Store) -> None:
    queue = store.queue("q")
    queue.publish(b"0")
    queue.publish_many([b"1", b"2"])
    queue.ack(queue.get())


@row("publish, ack or batch that returned", act)
def _(store, _kept, end):
    found = bodies(store)
    assert found == [b"1", b"2"] or (
        not end.keeps_all and found in ([], [b"0"], [b"0", b"1", b"2"])
    )


@row("a batch", lambda store: store.queue("q").publish_many([b"x"] * 5))
def _(store, _kept, end):
    assert len(bodies(store)) == 5 or (not end.keeps_all and bodies(store) == [])


def act(store):
    a = store.queue("a")
    store.queue("b")
    a.publish_many([b"1", b"2"], confirm=True)
    store.move(a.get(), to="b")
    with store.transaction() as t:
        t.move(a.get(), to="b")
        t.publish("q", b"3", create=True)


@row("a transaction, a move", act)
def _(store, _kept, end):
    a, b = bodies(store, "a"), bodies(store, "b")
    q = bodies(store) if "q" in store else []
    if end.keeps_all:
        assert (a, b, q) == ([], [b"1", b"2"], [b"3"])
    assert sorted(a + b) == [b"1", b"2"]  # each in exactly one
    assert (b"2" in b) == (q == [b"3"])


@row(
    "message with ``persistent=False``",
    lambda store: store.queue("q").publish(b"x", persistent=False),
)
def _(store, _kept, end):
    assert bodies(store) == ([b"x"] if end.how == "close" else [])


def act(store):
    store.queue("q").publish(b"x", confirm=True)
    store.queue("q").get()


@row("unacked message", act)
def _(store, _kept, _end):
    assert (store.queue("q").ready, store.queue("q").unacked) == (1, 0)
    assert store.queue("q").get().redelivered


def act(store):
    queue = store.queue("q")
    queue.publish(b"x", confirm=True)
    queue.ack(queue.get())


@row("ack that was not synced", act)
def _(store, _kept, end):
    left = [m.redelivered for m in store.queue("q").browse()]
    assert left == [] or (not end.keeps_all and left == [True])


def act(store):
    queue = store.queue("q")
    req_ids = [queue.publish(b"x") for _ in range(3)]
    queue.purge()
    return req_ids


@row("ReqIds", act)
def _(store, kept, _end):
    assert store.queue("q").publish(b"new") > max(kept)


def act(store):
    queue = store.queue("q")
    queue.publish(b"x", confirm=True)
    for _ in range(2):
        queue.nack(queue.get())


@row("``delivery_count``", act)
def _(store, _kept, end):
    count = store.queue("q").peek().delivery_count
    assert count == 2 or (not end.keeps_all and count < 2)


def act(store):
    queue = store.queue("q")
    queue.publish(b"x", confirm=True)
    queue.nack(queue.get(), count=False)


@row("``nack(count=False)``", act)
def _(store, _kept, end):
    count = store.queue("q").peek().delivery_count
    assert count == 0 or (not end.keeps_all and count == 1)


def act(store):
    queue = store.queue("q", dead_letters=True)
    queue.publish(b"dead")
    queue.nack(queue.get(), requeue=False)
    queue.publish(b"later", due=LATER, priority=3)


@row("due time, priority, dead letter", act)
def _(store, _kept, end):
    found = {m.body: m for m in store.queue("q").browse()}
    assert len(found) == 2 or not end.keeps_all
    if b"later" in found:
        assert (found[b"later"].due, found[b"later"].priority) == (LATER, 3)
        assert found[b"dead"].dead == "rejected"  # what came before is there, too
    if b"dead" in found and end.keeps_all:
        assert found[b"dead"].dead == "rejected"


@row("``publish(lease=)``, of the message", lambda store: store.queue("q").publish(b"x", lease=0.2))
def _(store, _kept, end):
    queue = store.queue("q")
    if end.keeps_all or bodies(store):
        queue.get()
        end.wait(0.4)
        assert (queue.ready, queue.unacked) == (1, 0)


def act(store):
    store.queue("q").publish(b"x")
    return store.queue("q").peek().published_at


@row("``published_at``", act)
def _(store, kept, end):
    message = store.queue("q").peek()
    assert message is not None or not end.keeps_all
    assert kept is not None
    assert message is None or message.published_at == kept


def act(store):
    store.queue("q", ttl=77, max_deliveries=4)
    store.data[b"key"] = b"value"


@row("settings of a queue, ``data``", act)
def _(store, _kept, end):
    settings = store.queue("q").settings
    assert (settings.ttl, settings.max_deliveries) == (77, 4)
    found = store.data.get(b"key")
    assert found == b"value" or (not end.keeps_all and found is None)


def act(store):
    store.queue("q", expires=4)
    time.sleep(2)


@row("the time without use of a queue with ``expires``", act, simulated=False)
def _(store, _kept, end):
    end.wait(2.5)  # more than 4 seconds since it was used, and less since the open
    assert "q" in store


def act(store):
    store.queue("q").publish(b"x", confirm=True)
    return store.queue("q").get().token


@row("tokens of deliveries", act)
def _(store, kept, _end):
    for verb in (store.ack, store.nack, lambda token: store.touch(token, 5)):
        with pytest.raises(qindex.DeliveryEnded):
            verb(kept)
    assert store.queue("q").ready == 1


CONSUMERS: list[qindex.Consumer] = []  # nobody lets go of it before the end


def act(store):
    store.queue("q").publish(b"x", confirm=True)
    CONSUMERS.append(store.consumer(["q"], prefetch=1))
    CONSUMERS[-1].get()
    CONSUMERS[-1].pause()


@row("a consumer: its queues, ``prefetch``, pause; what it has", act)
def _(store, _kept, _end):
    with store.consumer([]) as consumer:
        assert (consumer.queues, consumer.unacked, consumer.paused) == ([], [], False)
    assert store.queue("q").get().redelivered


def act(store):
    queue = store.queue("q")
    queue.publish_many([b"1", b"2"])
    queue.ack(queue.get())
    return CAME_BEFORE


CAME_BEFORE = 1  # published and acked by the session before


@row("``counters``: ``lifetime``", act)
def _(store, kept, end):
    counters = store.queue("q").stats().counters
    news = (2, 1) if end.how == "close" else (0, 0)
    life = counters.lifetime
    assert (life.published, life.acked) == (kept + news[0], kept + news[1])
    assert counters.exact == (end.how == "close")


@row("``counters``: ``since_open``; events", act)
def _(store, _kept, _end):
    with store.events() as events:
        since = store.queue("q").stats().counters.since_open
        assert (since.published, since.delivered, since.acked) == (0, 0, 0)
        assert events.get() is None


def act(store):
    store.queue("q").publish(b"x", confirm=True)
    store.queue("q").get(lease=3600)


@row("lease", act)
def _(store, _kept, _end):
    assert (store.queue("q").ready, store.queue("q").unacked) == (1, 0)


def act(store):
    store.queue("q").publish_many([b"1", b"2"])
    store.backup(store.path + ".copy")
    store.queue("q").publish(b"3")
    return store.path + ".copy"


@row("a backup", act, simulated=False)
def _(_store, kept, _end):
    with qindex.open(kept) as copied:
        assert (bodies(copied), copied.check()) == ([b"1", b"2"], [])


def act(store):
    store.queue("q").publish(b"1", confirm=True)
    store.rename_queue("q", "r")


@row("another name of a queue", act)
def _(store, _kept, _end):
    assert (store.queues(), bodies(store, "r")) == (["r"], [b"1"])
    assert store.findings == []


# --- the ends ------------------------------------------------------------------------------------


def before(path: str | Path, **options: Any) -> None:
    """A session that has ended: so there is a last close, and one ReqId is used."""
    with qindex.open(path, format=2, **options) as store:
        queue = store.queue("q")
        queue.publish(b"before")
        queue.ack(queue.get())


def ended(path: Path, act: Callable[[qindex.Store], Any], how: str) -> Any:
    """In a process of its own. What `act` has returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store = qindex.open(path)
            kept = act(store)
            if how == "close":
                store.close()
            os.write(writer, pickle.dumps(kept))
            os.close(writer)
            time.sleep(600 if how == "kill" else 0)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()  # to its end: then the child has done everything
    if how == "kill":
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) == (how == "kill")
    return pickle.loads(said)  # noqa: S301 - our own child's


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", ["close", "kill"])
@pytest.mark.parametrize("words", ROWS)
def test_what_a_process_leaves(tmp_path, words, how):
    path = tmp_path / "data"
    before(path)
    kept = ended(path, ROWS[words].act, how)
    with qindex.open(path) as store:
        ROWS[words].check(store, kept, End(how, False, time.sleep))


@pytest.mark.parametrize("synced", [False, True], ids=["at stake", "synced"])
@pytest.mark.parametrize("words", [words for words, each in ROWS.items() if each.simulated])
def test_what_a_power_cut_leaves(words, synced):
    disk = SimulatedDisk(seed=7)
    before("/", disk=disk)
    store = qindex.open("/", disk=disk, sync_interval=3600)
    kept = ROWS[words].act(store)
    if synced:
        store.sync()
    cuts = [disk.power_cut(seed) for seed in range(12)]
    abandon(store)
    for left in cuts:
        with qindex.open("/", disk=left) as after:
            ROWS[words].check(after, kept, End("cut", synced, left.advance))


def test_each_row_of_the_page_has_a_check():
    table = PAGE.read_text("utf-8").split("* -\n", 1)[1].split("\nAfter an unclean end", 1)[0]
    assert set(re.findall(r"^   \* - (.+)$", table, re.M)) == set(ROWS)
