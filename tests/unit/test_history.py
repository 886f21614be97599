"""keep_history: what stays of flushed journals, how far a replay reaches, and what recovery makes
of it."""

import json
import random

import pytest
from helpers import SMALL, content, crash, damage, files_of, put_files, queue_directory

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.native.log import NativeLog
from qindex.native.replay import Replay
from qindex.testing import SimulatedDisk

NAME = "q"
PLENTY = 1 << 30


def live(queue, steps, seed, seen=None):
    """Lets `steps` things happen, at random; `seen` gets the live ReqIds after each."""
    choose = random.Random(seed)
    out, alive = [], {message.req_id for message in queue.browse()}
    for _ in range(steps):
        way = choose.random()
        if way < 0.5:
            alive.add(queue.publish(b"x" * choose.randrange(200)))
        elif way < 0.75:
            out += queue.get_many(2)
        elif way < 0.98 and out:
            message = out.pop(choose.randrange(len(out)))
            queue.ack(message)
            alive.discard(message.req_id)
        elif way < 0.99:
            kept = {message.req_id for message in out}
            queue.purge()
            alive &= kept
        if seen is not None:
            seen.append(frozenset(alive))


def past(path):
    return sorted(file.name for file in queue_directory(path, NAME).glob("past.*"))


def verify(run, path):
    code, out, err = run("replay", path, NAME, "--verify", "--json")
    assert (code, err) == (0, "")
    (verdict,) = json.loads(out)
    return verdict


def test_replay_reaches_back_over_every_flush(run, tmp_path):
    seen = []
    for session in range(3):
        with qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY) as store:
            live(store.queue(NAME), 300, session, seen)
            epoch = store.queue(NAME).stats().epoch
    assert epoch > 20
    tree = Tree(tmp_path / "s", Findings())
    replay = Replay(NativeLog(tree, f"queues/{queue_directory('', NAME).name}", 16))
    assert len(replay.log.journals.all) == epoch - 1  # all: the first one has epoch 2
    states = [frozenset()]
    while record := replay.forward():
        now = frozenset(message.req_id for message in replay.state.messages())
        assert len(now) == replay.state.live
        if record.verb in ("publish", "ack", "purge") and now != states[-1]:
            states.append(now)
    changes = [frozenset()]
    changes += [now for before, now in zip([frozenset(), *seen], seen, strict=False)
                if now != before]  # fmt: skip
    assert states == changes
    tree.close()
    assert verify(run, tmp_path / "s")["flushes"] >= epoch - 4  # not of those that were cut short


def test_the_bound_is_kept_and_the_oldest_go_first(run, tmp_path):
    with qindex.open(tmp_path / "s", **SMALL, keep_history=60_000) as store:
        queue = store.queue(NAME)
        live(queue, 900, 1)
        queue.flush()
        names = past(tmp_path / "s")
        folder = queue_directory(tmp_path / "s", NAME)
        assert 20_000 < sum((folder / name).stat().st_size for name in names) <= 60_000
        epochs = sorted(int(n.split(".")[1]) for n in names if n.endswith(".jif"))
        last = queue.stats().epoch - 1
        assert epochs == list(range(epochs[0], last + 1))
        assert epochs[0] > 5
        assert all(int(name.split(".")[1]) >= epochs[0] for name in names)
    assert verify(run, tmp_path / "s")["flushes"] == len(epochs)


def test_a_long_history_is_kept_as_far_as_its_bound(tmp_path):
    with qindex.open(tmp_path / "s", keep_history=PLENTY) as store:
        queue = store.queue(NAME)
        for _ in range(70):
            queue.publish(b"x")
            queue.flush()
        assert len(past(tmp_path / "s")) >= 70
    with qindex.open(tmp_path / "s", keep_history=1) as store:
        queue = store.queue(NAME)
        queue.publish(b"x")
        queue.flush()
        assert len(past(tmp_path / "s")) <= 1
        assert len(queue) == 71


def test_without_the_option_nothing_is_kept_and_what_was_kept_stays(tmp_path):
    with qindex.open(tmp_path / "s", **SMALL) as store:
        live(store.queue(NAME), 300, 1)
        assert past(tmp_path / "s") == []
    with qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY) as store:
        live(store.queue(NAME), 100, 2)
    names = past(tmp_path / "s")
    assert names
    with qindex.open(tmp_path / "s", **SMALL) as store:
        live(store.queue(NAME), 100, 3)
    assert past(tmp_path / "s") == names
    with qindex.open(tmp_path / "s", **SMALL, keep_history=1) as store:
        store.queue(NAME).publish(b"x")
        store.queue(NAME).flush()
    assert past(tmp_path / "s") == []
    with pytest.raises(ValueError, match="keep_history"):
        qindex.open(tmp_path / "s", keep_history=-1)


def test_history_begins_behind_a_gap(run, tmp_path):
    with qindex.open(tmp_path / "s", segment_entries=16, keep_history=PLENTY) as store:
        queue = store.queue(NAME)
        for _ in range(3):  # five flushes; the fourth and the fifth each end a segment
            for _ in range(2):
                queue.publish_many([b"x"] * 16)
                queue.flush()
                queue.ack_many(queue.get_many(10))
                queue.flush()
            queue.ack_many(queue.get_many(12))
            queue.flush()
    folder = queue_directory(tmp_path / "s", NAME)
    journals = sorted(int(n.split(".")[1]) for n in past(tmp_path / "s") if n.endswith(".jif"))
    assert journals == list(range(2, 17))
    assert verify(run, tmp_path / "s")["flushes"] == len(journals)
    (folder / "past.8.jif").unlink()
    assert verify(run, tmp_path / "s")["flushes"] == len(journals) - 7
    (folder / "past.10.2.idx").unlink()  # the journal of epoch 9 begins with this segment
    code, _, err = run("replay", tmp_path / "s", NAME)
    assert code == 0
    assert "history begins behind this journal" in err
    assert verify(run, tmp_path / "s")["flushes"] == len(journals) - 9
    (folder / f"past.{journals[-1]}.jif").unlink()
    assert verify(run, tmp_path / "s")["flushes"] == 0


def test_a_journal_of_history_is_never_taken_for_one(tmp_path):
    with qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY) as store:
        live(store.queue(NAME), 300, 1)
        before = content(store)
    folder = queue_directory(tmp_path / "s", NAME)
    kept = list(folder.glob("past.*.jif"))
    for file in kept:
        assert file.read_bytes()[:8] == b"QIPAST\r\n"
        epoch = int(file.name.split(".")[1])
        (folder / ("journal.alt" if epoch % 2 else "journal.jif")).touch()
    spare = [n for n in ("journal.jif", "journal.alt") if not (folder / n).stat().st_size]
    assert len(spare) == 1
    for file in kept:  # somebody copies one back beside the real journal
        (folder / spare[0]).write_bytes(file.read_bytes())
        with qindex.open(tmp_path / "s", read_only=True) as store:
            assert content(store) == before
            assert damage(store) == []


def test_what_a_crash_left_between_commit_and_rename_is_named_by_recovery(run, tmp_path):
    knobs = {**SMALL, "max_journal_entries": 1 << 20, "keep_history": PLENTY}
    with qindex.open(tmp_path / "s", **knobs) as store:
        queue = store.queue(NAME)
        queue.publish_many([b"x"] * 40)
        queue.flush()
        queue.ack_many(queue.get_many(20))
        store.sync()
        before = files_of(tmp_path / "s")
        queue.flush()
        queue.publish(b"y")
    after = files_of(tmp_path / "s")
    folder = f"queues/{queue_directory('', NAME).name}"
    assert f"{folder}/past.3.0.idx" in after
    # The same names as before the flush, that had been committed.
    after[f"{folder}/0.idx"] = after.pop(f"{folder}/past.3.0.idx")
    del after[f"{folder}/past.3.jif"]
    after[f"{folder}/journal.alt"] = before[f"{folder}/journal.alt"]
    put_files(tmp_path / "t", after)
    (tmp_path / "t" / "messages").mkdir(exist_ok=True)
    with qindex.open(tmp_path / "t", **knobs) as store:
        assert len(store.queue(NAME)) == 21
        assert damage(store) == []
    assert past(tmp_path / "t") == ["past.2.jif", "past.3.0.idx", "past.3.jif"]
    assert verify(run, tmp_path / "t")["flushes"] == 2


def test_a_name_that_cannot_be_used_costs_history_only(run, tmp_path):
    with qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY) as store:
        queue = store.queue(NAME)
        for epoch in (3, 4):
            (queue_directory(tmp_path / "s", NAME) / f"past.{epoch}.jif" / "full").mkdir(
                parents=True
            )
        live(queue, 300, 1)
        before = content(store)
    with qindex.open(tmp_path / "s", **SMALL) as store:
        assert content(store) == before
        assert store.check() == []
    assert verify(run, tmp_path / "s")["flushes"] > 3


def test_a_queue_goes_with_its_history(tmp_path):
    with qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY) as store:
        live(store.queue(NAME), 200, 1)
        assert past(tmp_path / "s")
        store.delete_queue(NAME)
    assert list((tmp_path / "s" / "queues").iterdir()) == []


def test_a_crash_in_a_life_with_history(run, tmp_path):
    store = qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY)
    live(store.queue(NAME), 333, 1)
    crash(store)
    with qindex.open(tmp_path / "s", **SMALL, keep_history=PLENTY) as store:
        live(store.queue(NAME), 222, 2)
        assert store.check() == []
    assert verify(run, tmp_path / "s")["flushes"] > 10


def test_names_that_are_not_of_history_are_never_touched(tmp_path):
    foreign = ["past.", "past.x.jif", "past.01.jif", "past.3", "past.3.", "past.3.x", "past.3.0",
               "past.3.0.idx.bak", "past.3.jif.bak", "past.-3.jif", "Past.3.jif"]  # fmt: skip
    with qindex.open(tmp_path / "s", **SMALL, keep_history=1) as store:
        queue = store.queue(NAME)
        folder = queue_directory(tmp_path / "s", NAME)
        for name in foreign:
            (folder / name).write_bytes(b"somebody's")
        for name in ("past.1.jif", "past.1.0.idx", "past.1.10.alt"):
            (folder / name).write_bytes(b"of history")
        live(queue, 100, 1)
        assert past(tmp_path / "s") == sorted(name for name in foreign if name[0] == "p")


def test_h14_history_gives_way_when_the_disk_is_short_of_space():
    disk = SimulatedDisk(capacity=6 << 20, growth_min=65536)
    options = {"max_journal_bytes": 100_000, "idle": 3600, "keep_history": PLENTY}
    with qindex.open("/", disk=disk, **options) as store:
        queue = store.queue(NAME)
        most = 0
        for _ in range(200):
            queue.publish_many([bytes(1000)] * 90)
            queue.ack_many(queue.get_many(90))
            queue.flush()
            kept = sum(len(data) for name, data in disk.files().items() if "/past." in name)
            most = max(most, kept)
    assert most > 1 << 20
    assert kept < most
