"""Damage in a queue's journal stays told when the journal is gone, until somebody accepts it."""

import pytest
from helpers import queue_directory

import qindex
from qindex.cli.main import main
from qindex.testing import abandon


@pytest.fixture(params=[1, 2])
def spoiled(tmp_path, request):
    """A store in whose journal the bytes of one message are others; a MARK stands behind them."""
    path = tmp_path / "s"
    with qindex.open(path, format=request.param) as store:
        queue = store.queue("q")
        for body in (b"first", b"precious", b"third"):
            queue.publish(body, confirm=True)
    journal = queue_directory(path, "q") / "journal.jif"
    journal.write_bytes(journal.read_bytes().replace(b"precious", b"previous"))
    return path


def bodies(path):
    with qindex.open(path) as store:
        return [message.body for message in store.queue("q").browse()]


def test_a_loss_stays_told_behind_the_flush_that_takes_the_journal(spoiled, tmp_path, capsys):
    path, copy = str(spoiled), str(tmp_path / "copy")
    assert main(["check", path]) == 1
    with qindex.open(path) as store:
        assert len(store.queue("q")) == 2
        assert [each.lost for each in store.findings if each.severity == "damage"] == [1]
        store.queue("q").flush()
    for line in (["check", path], ["backup", path, copy], ["check", copy]):
        assert main(line) == 1, line
    assert "--accept-losses" in capsys.readouterr().out
    assert main(["check", path, "--accept-losses"]) == 0
    assert main(["check", path]) == 0
    assert bodies(path) == [b"first", b"third"]


def test_a_loss_is_accepted_by_the_session_that_met_it(spoiled):
    with qindex.open(spoiled) as store:
        store.queue("q")
        assert store.accept_losses() is True
        assert store.accept_losses() is False
        assert [message.body for message in store.queue("q").browse()] == [b"first", b"third"]
    assert main(["check", str(spoiled)]) == 0


def test_a_loss_is_kept_when_the_session_that_met_it_is_killed(spoiled):
    store = qindex.open(spoiled)
    store.queue("q").publish(b"more")
    store.queue("q").flush()
    abandon(store)
    assert main(["check", str(spoiled)]) == 1


@pytest.mark.parametrize("count", [1, 200])
def test_a_file_that_was_cut_off_stays_told(tmp_path, count):
    path = tmp_path / "s"
    store = qindex.open(path)
    for _ in range(count):
        store.queue("q").publish_many([b"x" * 100] * (200 // count), confirm=True)
    abandon(store)
    journal = queue_directory(path, "q") / "journal.jif"
    with journal.open("r+b") as file:
        file.truncate(8192 + 5000)
    bodies(path)  # the recovery makes the file whole again
    assert main(["check", str(path)]) == 1
    assert main(["check", str(path), "--accept-losses"]) == 0
    assert main(["check", str(path)]) == 0


def test_a_reader_keeps_nothing(spoiled):
    before = (spoiled / "store.meta").read_bytes()
    assert main(["check", str(spoiled)]) == 1
    assert (spoiled / "store.meta").read_bytes() == before


def test_a_torn_tail_is_no_loss(tmp_path):
    path = tmp_path / "s"
    store = qindex.open(path)
    store.queue("q").publish(b"x", confirm=True)
    abandon(store)
    journal = queue_directory(path, "q") / "journal.jif"
    data = journal.read_bytes().rstrip(b"\0")
    end = len(data) + 40
    with journal.open("r+b") as file:
        file.seek(end)
        file.write(b"torn")
    bodies(path)
    assert main(["check", str(path)]) == 0


def test_a_queue_that_is_refused_keeps_nobody_from_accepting_the_loss_of_another(spoiled):
    with qindex.open(spoiled) as store:
        store.queue("other").publish(b"x", confirm=True)
    for journal in queue_directory(spoiled, "other").glob("journal.*"):
        journal.write_bytes(bytes(journal.stat().st_size))
    with qindex.open(spoiled) as store:
        store.queue("q")
        assert store.accept_losses() is True
        assert store.accept_losses() is False
        with pytest.raises(qindex.StoreCorrupt):
            store.queue("other")
    with qindex.open(spoiled, read_only=True) as store:
        told = [each.where for each in store.check() if each.severity == "damage"]
        refused = store.queue_directory("other")
    assert told
    assert all(where.startswith(refused) for where in told)
    assert main(["check", str(spoiled), "--accept-losses"]) == 1  # of what the refused one says
