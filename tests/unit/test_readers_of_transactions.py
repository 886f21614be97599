"""What reads a store's files shows what transactions, moves and dead letters have left."""

import pytest

import qindex
from qindex.testing.simulated import abandon

ENDS = ["closed", "killed", "flushed"]


@pytest.fixture(params=ENDS)
def path(request, tmp_path):
    """Killed: frames of transactions have no headers in their journals, the log has them."""
    store = qindex.open(tmp_path / "data", format=2, sync_interval=3600, keep_history=1 << 30)
    store.queue("dead")
    store.queue("b")
    queue = store.queue("a", dead_letters="dead")
    queue.publish(b"moves")
    queue.publish(b"dies", headers={"k": 1})
    queue.publish(b"s" * 5000)
    store.sync()
    queue.publish(b"plain")
    store.move(0, to="b", queue="a")
    queue.get().nack(requeue=False)
    store.move(2, to="b", queue="a", confirm=True)
    with store.transaction() as t:
        t.publish("a", b"one")
        t.publish("b", b"two")
        t.change({b"last": b"two"}, queue="b")
    kept = store.queue("b", dead_letters=True)
    kept.publish(b"stays")
    kept.nack(kept.get_many(4)[3], requeue=False)
    if request.param == "flushed":
        for name in ("a", "b", "dead"):
            store.queue(name).flush()
    if request.param == "killed":
        abandon(store)
    else:
        store.close()
    return tmp_path / "data"


LEFT = {
    "a": [b"one", b"plain"],
    "b": [b"moves", b"s" * 5000, b"stays", b"two"],
    "dead": [b"dies"],
}


def left_in(path):
    with qindex.open(path, read_only=True) as store:
        return {name: sorted(m.body for m in store.queue(name).browse()) for name in LEFT}


def test_a_reader_sees_each_message_in_one_queue(path):
    assert left_in(path) == LEFT


def test_dump_tells_what_made_a_message_a_dead_letter(run, path):
    shown = run("dump", path)
    assert shown.code == 0
    assert "died" in shown.out
    assert "history from queues that it has moved out of" in shown.out


def test_trace_follows_each_of_them(run, path):
    assert "history from queues" in run("trace", path, "dead:0").out
    gone = run("trace", path, "a:1")
    assert (gone.code, "buried as a dead letter: rejected" in gone.out) == (0, True)
    stays = run("trace", path, "b:3")
    assert (stays.code, "how often and when: rejected" in stays.out) == (0, True)


def test_replay_agrees_with_what_is_there(run, path):
    verified = run("replay", path, "--verify")
    assert (verified.code, verified.err) == (0, "")


def test_replay_shows_the_history(run, path):
    shown = run("replay", path, "dead")
    assert (shown.code, "died before in a: rejected, 1 time" in shown.out) == (0, True)
    shown = run("replay", path, "b")
    assert (shown.code, "died 1 time: rejected; first 20" in shown.out) == (0, True)


def test_salvage_brings_each_message_into_one_queue(run, path, tmp_path):
    assert run("salvage", path, "--out", tmp_path / "saved").code == 0
    assert left_in(tmp_path / "saved") == LEFT


def test_salvage_without_the_engine_does_so_too(run, path, tmp_path):
    (path / "store.meta").unlink()
    assert run("salvage", path, "--out", tmp_path / "saved").code == 1
    with qindex.open(tmp_path / "saved", read_only=True) as store:
        found = {name: {m.body for m in store.queue(name).browse()} for name in store.queues()}
    for name, bodies in LEFT.items():
        assert set(bodies) <= found[name], name


def test_check_finds_nothing(run, path):
    assert run("check", path).code == 0


def test_records_of_spark_pass_side_records_over(path):
    columns = pytest.importorskip("qindex.spark.columns")
    rows = 0
    for file in path.glob("queues/*/*"):
        if file.suffix in (".idx", ".jif", ".alt"):
            for batch in columns.records(file.read_bytes()):
                rows += len(batch)
                assert set(batch["kind"].to_pylist()) <= {0, 1, 2, 3, 4, 5, 6, 7}
    assert rows > 3
