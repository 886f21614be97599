"""A node's streams through the commands: they are queues like others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from helpers import DEMO_NODE, unpack
from stream_files import NAME, file_name, write_stream

import qindex
from qindex.brokers.rabbitmq.directory import open_node

SHARED = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "rabbitmq_quorum"
BODIES = [b"message %d" % number for number in range(30)]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A classic node that has a stream, too, which no table and no coordinator names."""
    unpack(DEMO_NODE, tmp_path / "demo")
    (around,) = (tmp_path / "demo").glob("**/msg_stores")
    (around.parent / "stream").mkdir()
    write_stream(around.parent / "stream", BODIES, per_chunk=5, per_segment=2)
    return around.parent


def real(name: str, folder: Path) -> tuple[Path, dict[str, list[str]]]:
    """A real node's directory, and what its streams hold: digests by the name in a store."""
    archive = SHARED / f"{name}.tar.xz"
    if not archive.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    truth = json.loads(archive.with_name(f"{name}.json").read_text(encoding="utf-8"))
    told = {}
    for queue in truth["queues"]:
        if queue["type"] == "stream":
            where = "" if queue["vhost"] == "/" else f"{queue['vhost']}/"
            told[where + queue["name"]] = [message["sha256"] for message in queue["messages"]]
    return unpack(archive, folder), told


def test_real_streams_have_their_names_and_are_recovered_in_order(run, tmp_path):
    path, told = real("s1", tmp_path / "node")
    code, out, error = run("recover", path, "--out", tmp_path / "store", "--json")
    assert (code, error) == (0, "")
    assert json.loads(out)["not_read"] == []
    assert {each["queue"] for each in json.loads(out)["streams"]} == {"st", "поток"}
    with qindex.open(tmp_path / "store") as store:
        found = {
            name: [hashlib.sha256(m.body).hexdigest() for m in store.queue(name).browse()]
            for name in store.queues()
        }
        first = next(iter(store.queue("st").browse()))
    assert found == told
    assert first.headers["stream_offset"] == 0
    assert first.headers["timestamp_ms"] > 1_700_000_000_000


@pytest.mark.parametrize("name", ["s1", "s2"])
def test_a_whole_stream_is_no_damage(run, tmp_path, name):
    path, _ = real(name, tmp_path / "node")
    for command in ("recover", "ls", "stats", "check", "du"):
        assert run(command, path)[0] == 0, command


def test_what_a_stream_remembers_of_its_clients_is_told(run, tmp_path):
    path, _ = real("s1", tmp_path / "node")
    _, out, _ = run("recover", path, "--json")
    (told,) = [
        each for each in json.loads(out)["streams"] if (each["vhost"], each["queue"]) == ("/", "st")
    ]
    assert told["consumer_offsets"] == {"reader-1": 321, "reader-2": 456}
    # Of two channels, whose names are pids, and of a client that names itself: all messages.
    writers = told["publisher_sequences"]
    assert writers["writer-B"] == 60
    assert sorted(writers.values()) == [60, 160, 560]
    live = {(q["group"], q["queue"]): q["live"] for q in json.loads(out)["queues"]}
    assert sum(writers.values()) == live["/", "st"]
    assert (told["first_offset"], told["next_offset"], told["segments"]) == (0, 788, 7)


def test_a_stream_that_nobody_names_has_its_directory_for_a_name(run, node):
    code, out, _ = run("recover", node, "--json")
    assert code == 1
    told = json.loads(out)
    assert not told["complete"]
    (stream,) = (queue for queue in told["queues"] if queue["queue"] == NAME)
    assert stream["live"] == len(BODIES)
    assert "which stream this is" in next(f["text"] for f in told["findings"] if NAME in f["file"])


@pytest.mark.parametrize("command", ["ls", "stats", "check", "peek", "du", "export", "replay"])
def test_commands_read_a_node_that_has_a_stream(run, node, tmp_path, command):
    given = {
        "peek": [NAME, "-n", "1"],
        "export": ["--out", tmp_path / "out.jsonl"],
        "replay": ["--verify"],
    }.get(command, [])
    code, out, error = run(command, node, *given)
    assert code in (0, 1)
    assert "Traceback" not in error
    if command != "export":
        assert NAME in out


def test_messages_are_chosen_by_their_place(run, node):
    code, out, _ = run("cat", node, NAME, "--req-id", "7-8")
    assert code in (0, 1)
    assert out.splitlines() == ["message 7", "message 8"]


def test_a_replay_of_a_stream_says_what_reads_it(run, node):
    code, _, error = run("replay", node, NAME)
    assert code == 2
    assert "keeps no journal" in error


def test_a_trace_shows_where_a_message_stands(run, node):
    code, out, _ = run("trace", node, f"{NAME}:7")
    assert code == 0
    assert f"stream/{NAME}/{file_name(0)}" in out


def test_a_damaged_stream_is_counted_and_the_exit_code_says_so(run, node):
    file = node / "stream" / NAME / file_name(10)
    data = bytearray(file.read_bytes())
    data[data.index(b"message 12")] ^= 1
    file.write_bytes(data)
    with open_node(node) as opened:
        (stream,) = (queue for queue in opened.queues if queue.name == NAME)
        assert stream.account.marks == {"uncertain": 5}
    code, out, _ = run("check", node)
    assert code == 1
    assert "marked as uncertain" in out


def test_a_stream_of_zeros_is_not_clean(run, node):
    file = node / "stream" / NAME / file_name(20)
    file.write_bytes(b"OSIL\x00\x00\x00\x01" + bytes(file.stat().st_size - 8))
    (node / "stream" / NAME / file_name(20, "index")).unlink()
    code, out, _ = run("check", node)
    assert code == 1
    assert "bytes of zeros where chunks may have been" in out


def test_a_stream_without_any_segment_does_not_end_the_recovery_of_the_node(run, node, tmp_path):
    whole = json.loads(run("recover", node, "--json").out)
    for segment in node.glob("stream/*/*.segment"):
        segment.unlink()
    code, out, err = run("recover", node, "--out", tmp_path / "s", "--json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert any(finding["kind"] == "segment missing" for finding in told["findings"])
    assert len(told["queues"]) == len(whole["queues"])
