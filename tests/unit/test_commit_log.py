"""The commit log of format 2: who reads a store whose journals lost what only the log has."""

import shutil
from pathlib import Path

import pytest
from helpers import queue_directory

import qindex
from qindex.native.commits import CommitLogs
from qindex.testing import abandon

QUEUES = [f"q{i}" for i in range(6)]
BODIES = [b"first", b"second", b"third"]


@pytest.fixture
def cut(tmp_path):
    """As a power cut leaves it: the log is whole, journals have what their own syncs covered."""
    live, before, after = tmp_path / "live", tmp_path / "before", tmp_path / "cut"
    store = qindex.open(live, format=2, sync="never")
    queues = [store.queue(name) for name in QUEUES]
    for body in BODIES:
        for queue in queues:
            queue.publish(body)
        store.sync()
        if body == BODIES[0]:
            shutil.copytree(live, before)
    shutil.copytree(live, after)
    for name in QUEUES:
        lost = queue_directory(before, name) / "journal.jif"
        shutil.copy(lost, queue_directory(after, name) / "journal.jif")
    store.close()
    assert [path.name for path in (after / "commits").iterdir()] == ["1.log"]
    return after


def content(path, *, read_only, findings=()):
    with qindex.open(path, read_only=read_only) as store:
        assert [each.where for each in store.findings] == list(findings)
        return {name: [m.body for m in store.queue(name).browse()] for name in QUEUES}


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("read_only", [True, False])
def test_the_engine_sees_what_the_log_has(cut, read_only):
    assert content(cut, read_only=read_only) == dict.fromkeys(QUEUES, BODIES)


def test_without_the_log_the_journals_lack_it_which_is_damage(cut):
    shutil.rmtree(cut / "commits")
    seen = content(cut, read_only=True, findings=["commits/1.log"])
    assert seen == dict.fromkeys(QUEUES, BODIES[:1])


@pytest.mark.parametrize("size", [None, 0, 8192])
def test_a_replay_without_the_log_is_damage(cut, run, size):
    log = cut / "commits/1.log"
    if size is None:
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:size])
    code, out, err = run("replay", cut, "q3")
    assert code == 1, out + err
    assert "durable" in out + err


def test_a_replay_agrees_with_the_engine(cut, run):
    code, out, err = run("replay", cut, "q3", "--verify")
    assert code == 0, out + err
    assert "third" in out or run("cat", cut, "q3").out.count("third") == 1


def test_a_replay_of_all_queues_reads_the_log_once(cut, run, monkeypatch):
    reads = []
    read = CommitLogs._read

    def counted(logs, number):
        reads.append(number)
        read(logs, number)

    monkeypatch.setattr(CommitLogs, "_read", counted)
    assert len(QUEUES) > 1
    assert run("replay", cut, "--verify").code == 0
    assert reads == [1]


def test_salvage_finds_what_the_log_has(cut, run, tmp_path):
    (cut / "store.meta").unlink()
    code, _, err = run("salvage", cut, "--out", tmp_path / "new")
    assert content(tmp_path / "new", read_only=True) == dict.fromkeys(QUEUES, BODIES), (code, err)


def test_trace_finds_a_message_of_the_log(cut, run):
    code, out, err = run("trace", cut, "q2:2")
    assert code == 0, out + err
    assert "publish" in out


def test_damage_of_the_log_is_told_by_the_engine_and_by_a_replay(cut, run):
    flip(cut / "commits/1.log", 8192 + 60)
    with qindex.open(cut, read_only=True) as store:
        for name in QUEUES:
            store.queue(name)
        assert any("commits/1.log" in finding.where for finding in store.findings)
    assert "commits/1.log" in run("replay", cut, "q5").err


def test_only_a_writer_says_that_it_has_cut_a_torn_tail(cut):
    """A reader cuts nothing: beside a writer the last frame may be one that is being written."""
    log = cut / "commits" / "1.log"
    with log.open("r+b") as file:  # behind the end there are zeros
        file.seek(len(log.read_bytes().rstrip(b"\0")) + 4)
        file.write(b"half a frame")
    for read_only in (True, False):
        with qindex.open(cut, read_only=read_only) as store:
            [note] = [each for each in store.findings if each.where == "commits/1.log"]
            assert note.severity == "note"
            assert note.text.startswith("a torn tail of ")
            assert ("was cut" in note.text) is not read_only
            assert ("a writer is appending it" in note.text) is read_only


def test_what_was_confirmed_since_a_clean_end_is_not_written_over_by_older_copies(
    tmp_path: Path,
) -> None:
    """Behind a kill, and in a journal that somebody had put back from before the clean end."""
    names = [f"q{number}" for number in range(40)]
    with qindex.open(tmp_path / "s", format=2, sync_interval=60) as store:
        for text in (b"0", b"1", b"2"):
            for name in names:
                store.queue(name).publish(text)
            store.sync()  # by the commit log
            if text == b"0":
                journal = tmp_path / "s" / store.queue_directory("q0") / "journal.jif"
                older = journal.read_bytes()
    journal.write_bytes(older)
    store = qindex.open(tmp_path / "s")
    for text in (b"new", b"newer"):
        store.queue("q0").publish(text, confirm=True)
    abandon(store)
    with qindex.open(tmp_path / "s") as store:
        assert [m.body for m in store.queue("q0").browse()] == [b"0", b"new", b"newer"]
        assert not store.findings


def test_stores_that_were_killed_once_end_cleanly_again(tmp_path: Path) -> None:
    """Their queues are used without a sync then, in format 2 as in format 1."""
    store = qindex.open(tmp_path / "s", format=2, sync_interval=60)
    for name in "abcdef":
        store.queue(name).publish(b"x")
    store.sync()
    abandon(store)
    with qindex.open(tmp_path / "s") as store:
        for name in "abcdef":
            store.queue(name).publish(b"y")
    with qindex.open(tmp_path / "s", sync="never", idle=3600) as store:
        before = store.stats().syncs.count
        for name in "abcdef":
            store.queue(name).publish(b"z")
        assert store.stats().syncs.count == before
