"""gmq's data directories: what is live, in order, with the delayed messages beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qindex
from qindex.brokers.gmq import directory as gmq
from qindex.brokers.reader import DeadMessage, open_node, total
from qindex.cli.main import main

from .gmq_files import FIRST_ID, bodies, bolt_file, delayed, queue_file, record, write_files

if TYPE_CHECKING:
    from .conftest import DeadNode

Read = tuple[dict[str, list[DeadMessage]], list[str]]


def read(path: Path) -> Read:
    """Messages by queue and kinds of findings; the account adds up and is the same each time."""
    with open_node(path) as node:
        account = total(node.queues)
        assert account.adds_up
        found = {queue.name: list(queue.messages()) for queue in node.queues}
        assert sum(map(len, found.values())) == account.live
        assert total(node.queues) == account
        return found, [finding.kind for finding in node.findings]


def bodies_of(messages: list[DeadMessage]) -> list[bytes]:
    return [message.body for message in messages]


@pytest.mark.parametrize("name", ["gmq_clean", "gmq_kill9"])
def test_a_real_directory_gives_every_message_that_was_not_acked(
    shared_directory: Callable[[str, str], DeadNode], name: str
) -> None:
    dead = shared_directory("gmq", name)
    truth = dead.truth
    found, findings = read(dead.path)
    digests = {
        queue: [hashlib.sha256(message.body).hexdigest()[:32] for message in messages]
        for queue, messages in found.items()
    }
    assert digests["t_default"] == truth["put_sha256"][truth["got"] : 4000]
    rows = zip(truth["due_unix_s"], truth["ids"], truth["put_sha256"][4000:], strict=True)
    wanted = sorted(rows)
    assert digests["t.delayed"] == [digest for _, _, digest in wanted]
    headers = [message.headers for message in found["t.delayed"]]
    assert [(h["due"], int(h["id"])) for h in headers] == [
        (due, number) for due, number, _ in wanted
    ]
    assert {tuple(h["bind_keys"]) for h in headers} == {("default",)}
    # gmq fetches one message ahead of who asks: that one is marked as delivered.
    assert [m.redelivered for m in found["t_default"]] == [True] + [False] * 2499
    assert not findings


def test_status_tells_what_is_live(tmp_path: Path) -> None:
    write_files(tmp_path)
    found, findings = read(tmp_path)
    assert bodies_of(found["t_default"]) == bodies(300)[100:]
    assert [m.redelivered for m in found["t_default"]] == [True] + [False] * 199
    assert found["t_default"][0].headers == {"id": str(FIRST_ID + 100), "retry": 0}
    assert sorted(bodies_of(found["t.delayed"])) == bodies(60)
    dues = [message.headers["due"] for message in found["t.delayed"]]
    assert dues == sorted(dues)
    assert bodies_of(found["u.delayed"]) == [b"inline"]
    assert sorted(found) == ["t.delayed", "t_default", "u.delayed"]
    assert not findings


def test_a_message_that_timed_out_counts_where_it_was_written_again(tmp_path: Path) -> None:
    records = [record(b"a", 1, 4), record(b"b", 2, 4), record(b"c", 3), record(b"a", 1, 0, 1)]
    (tmp_path / "t_x.queue").write_bytes(queue_file(records))
    found, _ = read(tmp_path)
    assert [(m.body, m.redelivered) for m in found["t_x"]] == [
        (b"b", True),  # gmq died, or forgot, before it wrote that one again
        (b"c", False),
        (b"a", True),
    ]
    (tmp_path / "t_x_dead.queue").write_bytes(queue_file([record(b"b", 2, 0, 6)]))
    found, _ = read(tmp_path)
    assert bodies_of(found["t_x"]) == [b"c", b"a"]
    assert bodies_of(found["t_x_dead"]) == [b"b"]


def test_metadata_tell_of_a_lost_end_and_of_another_life(tmp_path: Path) -> None:
    write_files(tmp_path)
    file = tmp_path / "t_default.queue"
    data = file.read_bytes()
    used = len(data.rstrip(b"\0"))
    file.write_bytes(data[: used - 500] + bytes(len(data) - used + 500))
    found, findings = read(tmp_path)
    assert "cut" in findings
    assert bodies_of(found["t_default"])[:100] == bodies(300)[100:200]
    file.write_bytes(data[:used] + record(b"later", 999) + bytes(5000))
    with open_node(tmp_path) as node:
        assert [(f.kind, f.severity) for f in node.findings] == [("other life", "note")]
        assert list(node.queues[0].messages())[-1].body == b"later"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"queues": [{}]}', "[" * 100_000, '{"queues": 5}']
)
def test_metadata_without_sense_cost_nothing(tmp_path: Path, text: str) -> None:
    write_files(tmp_path)
    (tmp_path / "t.meta").write_text(text)
    found, findings = read(tmp_path)
    assert bodies_of(found["t_default"]) == bodies(300)[100:]
    assert findings == ["metadata"]


def test_a_rewrite_that_was_cut_short_is_only_a_note(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "t_default.temp.queue").write_bytes(queue_file([record(b"again", 0)]))
    found, findings = read(tmp_path)
    assert "t_default.temp" not in found
    assert findings == ["rewrite"]
    (tmp_path / "t_default.queue").unlink()
    assert bodies_of(read(tmp_path)[0]["t_default.temp"]) == [b"again"]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"{}",
        b'{"msg": 5}',
        b'{"msg": {"id": "1", "retry": 0, "delay": 1, "expire": 1, "body": ""}, "bind_key": []}',
        b'{"msg": {"id": 1, "retry": 0, "delay": 1, "expire": -1, "body": ""}, "bind_key": []}',
        b'{"msg": {"id": 1, "retry": 0, "delay": 1, "expire": 1, "body": "x"}, "bind_key": []}',
        b'{"msg": {"id": 1, "retry": 0, "delay": 1, "expire": 1, "body": ""}, "bind_key": [1]}',
        b'{"msg": {"id": 1, "retry": 99999, "delay": 1, "expire": 1}, "bind_key": []}',
        b"[" * 100_000,
        b'{"msg": {"id": 1' + b"0" * 5000,
    ],
    ids=range(11),
)
def test_a_delayed_message_without_sense_is_counted_as_damaged(
    tmp_path: Path, value: bytes
) -> None:
    with pytest.raises(ValueError):
        gmq.decode_delayed(value)
    pairs = sorted(
        [delayed(b"one", 1, 10), (delayed(b"", 2, 20)[0], value), delayed(b"two", 3, 30)]
    )
    (tmp_path / "gmq.db").write_bytes(bolt_file({b"t": pairs}))
    with open_node(tmp_path) as node:
        (queue,) = node.queues
        assert bodies_of(list(queue.messages())) == [b"one", b"two"]
        assert (queue.account.found, queue.account.lost) == (3, {"damaged": 1})
        assert [finding.kind for finding in node.findings] == ["message lost"]


def test_a_key_that_is_not_its_message_s_is_told(tmp_path: Path) -> None:
    pairs = [(delayed(b"", 9, 99)[0], delayed(b"one", 1, 10)[1]), delayed(b"two", 3, 130)]
    (tmp_path / "gmq.db").write_bytes(bolt_file({b"t": pairs}))
    found, findings = read(tmp_path)
    assert bodies_of(found["t.delayed"]) == [b"one", b"two"]
    assert findings == ["mismatch"]


def test_names_that_are_no_text_are_kept_apart(tmp_path: Path) -> None:
    key, value = delayed(b"one", 1, 10)
    value = value.replace(b'"default"', rb'"\ud800x", "\\ud800x"')
    (tmp_path / "gmq.db").write_bytes(bolt_file({b"\xff": [(key, value)]}))
    assert main(["recover", str(tmp_path), "--out", str(tmp_path.with_name("s"))]) == 0
    with qindex.open(tmp_path.with_name("s"), read_only=True) as store:
        message = store.queue("\\x{ff}.delayed").peek()
        assert message is not None
        assert message.headers["bind_keys"] == ["\\u{d800}x", "\\ud800x"]


def test_the_command_shows_and_recovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path / "gmq")
    assert main(["recover", str(tmp_path / "gmq")]) == 0
    out = capsys.readouterr().out
    assert "gmq data directory gmq" in out
    assert "361 messages in the files = 100 acked + 0 timed out + 0 damaged + 261 live" in out
    assert main(["recover", str(tmp_path / "gmq"), "--out", str(tmp_path / "s")]) == 0
    with qindex.open(tmp_path / "s", read_only=True) as store:
        assert [m.body for m in store.queue("t_default").browse()] == bodies(300)[100:]
        assert len(store.queue("t.delayed")) == 60


def test_links_are_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path / "gmq")
    for name in ("u_default.queue", "u.meta"):
        (tmp_path / "gmq" / name).symlink_to(tmp_path / "gmq" / f"t{name[1:]}")
    assert read(tmp_path / "gmq")[0].keys() == {"t_default", "t.delayed", "u.delayed"}
    (tmp_path / "gmq" / "gmq.db").rename(tmp_path / "elsewhere")
    (tmp_path / "gmq" / "gmq.db").symlink_to(tmp_path / "elsewhere")
    found, findings = read(tmp_path / "gmq")
    assert found.keys() == {"t_default"}
    assert findings == ["unreadable"]
