"""NSQ's diskqueue directories: what is unread, in order, and what is known about it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qindex
from qindex.brokers.nsq.directory import split_nsqd
from qindex.brokers.reader import Account, Node, open_node, total
from qindex.brokers.tree import UnknownFormat
from qindex.cli.main import main

from .nsq_files import NAME, bodies, record, write_files, write_meta

if TYPE_CHECKING:
    from .conftest import DeadNode

META = f"{NAME}.diskqueue.meta.dat"


def file_name(number: int) -> str:
    return f"{NAME}.diskqueue.{number:06}.dat"


def read(path: Path) -> tuple[list[bytes], Account, list[str]]:
    """Bodies, account and kinds of findings; the account adds up and is the same each time."""
    with open_node(path) as node:
        account = total(node.queues)
        assert account.adds_up
        given = [m.body for queue in node.queues for m in queue.messages()]
        assert len(given) == account.live
        assert total(node.queues) == account
        return given, account, [finding.kind for finding in node.findings]


def redelivered(path: Path) -> list[bool]:
    with open_node(path) as node:
        return [message.redelivered for queue in node.queues for message in queue.messages()]


@pytest.mark.parametrize("name", ["nsq_clean", "nsq_kill9_sync100"])
def test_a_real_directory_gives_what_go_diskqueue_gives(
    shared_directory: Callable[[str, str], DeadNode], name: str
) -> None:
    dead = shared_directory("nsq", name)
    given, account, findings = read(dead.path)
    digests = [hashlib.sha256(body).hexdigest()[:32] for body in given]
    truth = dead.truth
    assert digests == truth["program_itself_returns_after_reopen"]
    assert digests == truth["put_sha256"][truth["got"] :]
    assert [len(body) for body in given] == truth["sizes"][truth["got"] :]
    assert account.live_body_bytes == sum(truth["sizes"][truth["got"] :])
    assert not findings
    assert set(redelivered(dead.path)) == {name != "nsq_clean"}


def test_unread_messages_come_in_order(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(500), 123)
    given, account, findings = read(tmp_path)
    assert given == bodies(500)[123:]
    assert (account.live, findings) == (377, [])
    assert account.gone["read"] == account.found - 377 < 123
    assert not any(redelivered(tmp_path))


def test_what_was_written_after_the_metadata_counts(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(100), 40, 1 << 20)
    with (tmp_path / file_name(0)).open("ab") as file:
        file.write(record(b"later") + record(b"torn")[:6])
    (tmp_path / file_name(1)).write_bytes(record(b"latest"))
    given, _, findings = read(tmp_path)
    assert given == [*bodies(100)[40:], b"later", b"latest"]
    with open_node(tmp_path) as node:
        assert (
            [finding.severity for finding in node.findings] == ["note"] * len(findings) == ["note"]
        )
    assert all(redelivered(tmp_path))


def test_bad_files_come_in_their_place_and_may_have_been_read(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(300), 0)
    bad = tmp_path / file_name(1)
    bad.rename(f"{bad}.bad")
    given, account, _ = read(tmp_path)
    assert given == bodies(300)
    assert 0 < account.marks["redelivered"] < 300
    flags = redelivered(tmp_path)
    assert flags.count(True) == account.marks["redelivered"]
    assert flags == sorted(flags[: flags.index(True)]) + sorted(flags[flags.index(True) :])[::-1]


def test_a_bad_file_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / (file_name(7) + ".bad")).write_bytes(b"".join(map(record, bodies(20))))
    assert read(tmp_path)[0] == bodies(20)


def test_without_metadata_everything_is_given_and_said(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(50), 20, 1 << 20)
    (tmp_path / META).unlink()
    given, _, findings = read(tmp_path)
    assert given == bodies(50)
    assert findings == ["missing"]
    assert all(redelivered(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "5\n0,0\n", "x\n0,0\n0,0\n", "1\n1,0\n0,0\n", "-1\n0,0\n0,9\n"]
)
def test_metadata_without_sense_are_not_believed(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, bodies(50), 20, 1 << 20)
    (tmp_path / META).write_text(text)
    given, _, findings = read(tmp_path)
    assert given == bodies(50)
    assert findings == ["metadata"]


def test_a_missing_file_is_told_with_what_it_cost(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(500), 0)
    file = tmp_path / file_name(1)
    file.unlink()
    given, account, findings = read(tmp_path)
    assert account.lost["damaged"] == 500 - len(given) > 0
    assert findings == ["missing", "count"]


def test_a_depth_that_is_too_small_is_only_a_note(tmp_path: Path) -> None:
    write_files(tmp_path, bodies(10), 0)
    write_meta(tmp_path, 3, (0, 0), (0, sum(map(len, map(record, bodies(10))))))
    with open_node(tmp_path) as node:
        assert [(f.kind, f.severity) for f in node.findings] == [("count", "note")]
        assert total(node.queues).live == 10


def test_what_nsqd_puts_before_a_body_becomes_headers(tmp_path: Path) -> None:
    head = struct.pack(">QH16s", 1_700_000_000 * 10**9, 2, b"0123456789abcdef")
    assert split_nsqd(head + b"body") == (
        {"timestamp_ns": 1_700_000_000 * 10**9, "attempts": 2, "id": "0123456789abcdef"},
        b"body",
    )
    assert split_nsqd(head[:-1]) == ({}, head[:-1])
    for text in (bytes(40), b"0" * 40, b"deadbeef" * 5):
        assert split_nsqd(text) == ({}, text)
    write_files(tmp_path, [head + b"one", b"\0" * 8 + head[8:] + b"two"], 0)
    assert read(tmp_path)[0] == [b"one", b"\0" * 8 + head[8:] + b"two"]
    assert redelivered(tmp_path) == [True, False]


def test_links_and_other_files_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_files(folder, bodies(10), 0)
    (folder / file_name(1)).symlink_to(folder / file_name(0))
    (folder / f"{META}.123.tmp").write_text("9\n")
    (folder / f"{NAME}.diskqueue.0000002.dat").write_bytes(record(b"no such name"))
    assert read(tmp_path) == read(folder)
    given, _, findings = read(folder)
    assert (given, findings) == (bodies(10), [])


def test_a_message_of_an_absurd_size_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, [b"a" * 100, b"b" * 1000, b"c" * 100], 0)
    monkeypatch.setattr("qindex.brokers.nsq.directory.BODY_BYTES_MAX", 500)
    with open_node(tmp_path) as node:
        (queue,) = node.queues
        assert [m.body[:1] for m in queue.messages()] == [b"a", b"c"]
        assert queue.unreadable == 1
        assert [f.kind for f in node.findings] == ["message lost"]


def test_several_queues_are_one_node_and_two_directories_are_a_choice(tmp_path: Path) -> None:
    write_files(tmp_path / "a", bodies(5), 0)
    for file in list((tmp_path / "a").iterdir()):
        (tmp_path / "a" / file.name.replace(NAME, "other")).write_bytes(file.read_bytes())
    with open_node(tmp_path) as node:
        assert isinstance(node, Node)
        assert [(q.name, q.account.live) for q in node.queues] == [(NAME, 5), ("other", 5)]
    write_files(tmp_path / "b", bodies(5), 0)
    with pytest.raises(UnknownFormat, match=r"several at once .*directory a, .*directory b"):
        open_node(tmp_path)


def test_the_command_brings_the_messages_into_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path / "nsq", bodies(200), 50)
    assert main(["recover", str(tmp_path / "nsq"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["account"]["live"], told["complete"]) == (
        "nsq",
        150,
        True,
    )
    assert main(["recover", str(tmp_path / "nsq"), "--out", str(tmp_path / "s")]) == 0
    assert "150 live = 150 recovered + 0 expired + 0 unreadable" in capsys.readouterr().out
    with qindex.open(tmp_path / "s", read_only=True) as store:
        assert [message.body for message in store.queue(NAME).browse()] == bodies(200)[50:]
    (tmp_path / "nsq" / META).unlink()
    assert main(["recover", str(tmp_path / "nsq")]) == 1
    assert "nothing tells what was read" in capsys.readouterr().out
