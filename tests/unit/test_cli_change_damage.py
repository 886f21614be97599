"""Commands that change a store, beside damage: what they go on behind, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import files_of, queue_directory

import qindex


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Queue a has four messages, three of them in a message file; b nothing, c a dead letter."""
    path = tmp_path / "s"
    with qindex.open(path, format=2) as store:
        store.queue("b")
        store.queue("a").publish_many([b"small", b"B" * 9000, b"C" * 9000, b"D" * 9000])
        queue = store.queue("c", dead_letters=True)
        queue.publish(b"x")
        queue.nack(queue.get(), requeue=False)  # type: ignore[arg-type]
    return path


def ruin(path: Path, name: str) -> None:
    """Nobody can read this queue any more."""
    for journal in queue_directory(path, name).glob("journal.*"):
        journal.write_bytes(bytes(100))


def test_a_move_goes_on_behind_a_damaged_message(run: Any, path: Path) -> None:
    file = path / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    data[data.index(b"CCC") + 50] ^= 1
    file.write_bytes(data)
    code, out, err = run("move", path, "a", "--to", "b", "--yes")
    assert code == 1
    assert "a to b: 3 messages moved" in out
    assert "a: message 2 is damaged" in err
    assert "it stays there" in err
    with qindex.open(path, read_only=True) as store:
        assert [m.body[:1] for m in store.queue("b").browse()] == [b"s", b"B", b"D"]
        assert len(store.queue("a")) == 1


def test_a_redrive_of_all_queues_goes_on_behind_one_that_cannot_be_read(
    run: Any, path: Path
) -> None:
    ruin(path, "a")
    code, out, err = run("redrive", path, "--yes")
    assert code == 1
    assert "c: 1 message ready again" in out
    assert err.count("a is left as it is") == 1
    code, out, err = run("redrive", path, "--yes")
    assert code == 1
    assert out == "there is nothing to do in what can be read\n"
    assert "a is left as it is" in err


@pytest.mark.parametrize(
    "line",
    [
        "redrive a --yes", "purge a --yes", "move a --to b --yes", "move b --to a --yes",
        "delete a --yes", "configure a ttl=3 --yes", "configure a",
    ],
)  # fmt: skip
def test_what_is_refused_ends_with_2_and_changes_nothing(run: Any, path: Path, line: str) -> None:
    ruin(path, "a")
    before = files_of(path)
    command, *words = line.split()
    code, out, err = run(command, path, *words)
    assert (code, out) == (2, "")
    assert "nothing was changed" in err
    assert files_of(path) == before


def test_a_name_that_begins_with_a_dash_goes_behind_two(run: Any, tmp_path: Path) -> None:
    with qindex.open(tmp_path, format=2) as store:
        store.queue("-x").publish(b"1")
    assert run("cat", tmp_path, "--", "-x")[:2] == (0, "1\n")
    code, out, _ = run("redrive", tmp_path, "--yes", "--", "-x")
    assert (code, out) == (0, "there is nothing to do\n")
    code, _, err = run("redrive", tmp_path, "--yes", "-x")
    assert code == 2
    assert "names that begin with - go behind --" in err


@pytest.mark.parametrize("command", ["ls", "stats"])
def test_the_empty_name_can_be_seen(run: Any, tmp_path: Path, command: str) -> None:
    with qindex.open(tmp_path) as store:
        store.queue("").publish(b"1")
    assert '\n  ""  ' in run(command, tmp_path).out


def test_a_word_that_is_no_queue_says_what_is_meant(run: Any, path: Path) -> None:
    code, _, err = run("configure", path, "a", "dead_letters=true", "--yes")
    assert code == 2
    assert "dead_letters is yes, no, or the name of a queue that is there" in err
