"""What salvage finds no messages of: it is told, and the exit code is 1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import bodies, queue_directory

import qindex
from qindex.cli import ls


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with qindex.open(tmp_path / "s", format=2) as store:
        for name in ("good", "bad"):
            store.queue(name).publish_many([b"%s %d" % (name.encode(), n) for n in range(50)])
    return tmp_path / "s"


def account(run: Any, path: Path) -> tuple[dict[str, Any], dict[str, list[bytes]], str]:
    """What --json says, what the new store holds, and stderr."""
    code, out, err = run("salvage", path, "--out", path.parent / "new", "--json")
    assert code == 1
    with qindex.open(path.parent / "new", read_only=True) as store:
        assert not store.check()
        return (
            json.loads(out),
            {name: bodies(store.queue(name).browse()) for name in store.queues()},
            err,
        )


def test_what_was_behind_a_cut_is_no_number(run: Any, path: Path) -> None:
    journal = queue_directory(path, "bad") / "journal.jif"
    whole = journal.stat().st_size
    with journal.open("r+b") as file:
        file.truncate(8192 + (journal.read_bytes().rindex(b"bad 49") - 8192) // 2)
    assert journal.stat().st_size < whole
    told, found, err = account(run, path)
    (queue,) = [each for each in told["queues"] if each["queue"] == "bad"]
    assert queue["messages"] == len(found["bad"]) < 50
    assert (queue["damaged"], queue["lost_unknown"]) == (0, True)
    assert "nothing tells how many messages" in err


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_file_in_the_place_of_a_folder_is_a_lost_queue(run: Any, path: Path, what: str) -> None:
    folder = queue_directory(path, "bad")
    shutil.move(folder, path.parent / "moved")
    folder.write_text("x") if what == "file" else folder.symlink_to(path.parent / "moved")
    told, held, err = account(run, path)
    assert list(held) == ["good"]
    [text] = told["left_out"]
    assert f"left out: queues/{folder.name}: no folder, but a file or a link is" in err
    assert text in err
    for command in ("ls", "stats"):
        code, out, _ = run(command, path)
        assert code == 1
        assert "1 queue whose name is damaged: see qindex check" in out
    assert run("check", path).code == 1


def remove(journal: Path) -> None:
    journal.unlink()


def empty(journal: Path) -> None:
    journal.write_bytes(b"")


def zero(journal: Path) -> None:
    journal.write_bytes(bytes(journal.stat().st_size))


@pytest.mark.parametrize(
    ("lose", "text"),
    [(remove, "journal is missing"), (empty, "jif is empty"), (zero, "jif is empty")],
)
@pytest.mark.parametrize("without_store_meta", [False, True])
def test_a_lost_journal_is_told(
    run: Any, path: Path, lose: Any, text: str, without_store_meta: bool
) -> None:
    """Its messages are lost, and nobody knows how many: it said '0 left out as damaged'."""
    lose(queue_directory(path, "bad") / "journal.jif")
    if without_store_meta:
        (path / "store.meta").unlink()
    told, held, err = account(run, path)
    assert (len(held["good"]), held["bad"]) == (50, [])
    unknown = {queue["queue"]: queue["lost_unknown"] for queue in told["queues"]}
    assert unknown == {"good": False, "bad": True}
    assert err.count(text) == 1
    assert err.count("how many messages were in it is not known") == 1
    out = run("salvage", path, "--out", path.parent / "again").out
    assert "0 B  unknown  from the records" in out
    assert "0 left out as damaged, and of 1 queue nobody knows how many are lost" in out


@pytest.mark.parametrize("file", ["journal.jif", "0.idx"])
def test_the_file_of_another_queue_is_left_out(run: Any, path: Path, file: str) -> None:
    """Its messages would be given out twice, as those of a queue that never had them."""
    if file == "0.idx":
        with qindex.open(path) as store:
            store.queue("good").flush()
            store.queue("bad").flush()
        for journal in queue_directory(path, "bad").glob("journal.*"):
            journal.unlink()
    folder = queue_directory(path, "bad")
    shutil.copy(queue_directory(path, "good") / file, folder / file)
    told, held, err = account(run, path)
    assert (len(held["good"]), held["bad"]) == (50, [])
    assert f"queues/{folder.name}/{file}: it is the file of another queue, and left out" in err
    assert told["queues"][-1]["lost_unknown"]


def test_a_lost_name_is_no_lost_message(run: Any, path: Path) -> None:
    folder = queue_directory(path, "bad")
    (folder / "queue.meta").unlink()
    told, held, err = account(run, path)
    assert len(held[f"lost-{folder.name}"]) == 50
    assert "the name is lost" in err
    assert [queue["damaged"] for queue in told["queues"]] == [0, 0]


@pytest.mark.parametrize("lose", ["store.meta", "queues"])
def test_what_cannot_be_opened_is_refused_with_2(run: Any, path: Path, lose: str) -> None:
    """Not 1, which means: done, and there is damage. Nor is check named, which cannot open it."""
    if lose == "queues":
        shutil.rmtree(path / "queues")
    else:
        (path / lose).write_bytes(b"")
    for words in (["backup", path, path.parent / "copy"], ["check", path, "--accept-losses"]):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert "cannot be opened" in err
        assert "qindex check" not in err
    assert not (path.parent / "copy").exists()


def test_a_store_without_the_folder_of_its_queues_is_not_salvaged(run: Any, path: Path) -> None:
    """It said: there is no store at X: the store is X."""
    shutil.rmtree(path / "queues")
    code, _, err = run("salvage", path, "--out", path.parent / "new")
    assert code == 2
    assert "has no folder 'queues'" in err
    assert "there is no store" not in err


@pytest.mark.parametrize("command", ["peek", "cat"])
def test_a_queue_whose_name_is_damaged_is_told_once(run: Any, path: Path, command: str) -> None:
    (queue_directory(path, "bad") / "queue.meta").unlink()
    code, _, err = run(command, path, "bad")
    assert code == 1
    assert err.count("queue.meta is missing") == 1
    assert "1 damaged place in" in err


def test_ls_says_that_it_does_not_read_bodies(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"x" * 9000)
    (tmp_path / "s" / "messages" / "0.qms").unlink()
    assert run("ls", tmp_path / "s").code == 0
    assert run("check", tmp_path / "s").code == 1
    assert "Their bodies are not read" in str(ls.__doc__)
