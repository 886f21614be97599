"""The commands that read messages do so in every dead broker's directory."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from compat import beanstalkd_files, gmq_files, nsq_files

WRITERS = {
    "nsq": (nsq_files.NAME, lambda path: nsq_files.write_files(path, nsq_files.bodies(90), 40)),
    "gmq": ("t_default", gmq_files.write_files),
    "beanstalkd": ("t", beanstalkd_files.write_files),
}


@pytest.fixture(params=WRITERS)
def broker(request, tmp_path) -> tuple[str, Path, str]:
    """Its name, a directory of it, and the name of a queue."""
    queue, write = WRITERS[request.param]
    write(tmp_path / "dead")
    return request.param, tmp_path / "dead", queue


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_export_writes_what_recover_brings_back(run, broker, tmp_path):
    _, path, _ = broker
    assert run("export", path, "--out", tmp_path / "out.jsonl").code == 0
    assert run("recover", path, "--out", tmp_path / "s").code == 0
    assert run("export", tmp_path / "s", "--out", tmp_path / "again.jsonl").code == 0
    keys = ("queue", "headers", "redelivered", "body", "body_base64")
    out, again = (
        [[row.get(key) for key in keys] for row in rows((tmp_path / name).read_text())]
        for name in ("out.jsonl", "again.jsonl")
    )
    assert out == again
    assert len(out) > 40
    assert run("diff", path, tmp_path / "s").code == 0


def test_peek_and_cat_choose_messages(run, broker):
    _, path, queue = broker
    shown = rows(run("peek", path, queue, "-n", 30, "--json").out)
    assert [int(row["req_id"]) for row in shown] == list(range(30))
    one = rows(run("peek", path, queue, "--req-id", 7, "--json").out)
    assert one == [shown[7]]
    assert run("cat", path, "--queue", "nothing").code == 2


def test_du_explains_what_keeps_each_file(run, broker):
    name, path, queue = broker
    told = json.loads(run("du", path, "--json").out)
    messages = {use["queue"]: use["messages"] for use in told["queues"]}
    shown = rows(run("cat", path, "--jsonl").out)
    assert sum(messages.values()) == len(shown)
    files = {file["file"]: file for file in told["files"]}
    for file in files.values():
        assert file["bytes"] == (path / file["file"]).stat().st_size
        assert file["bytes"] == file["live_bytes"] + file["garbage_bytes"] + file["room_bytes"]
        if file["file"].endswith(".dat") and name == "nsq" and "meta" not in file["file"]:
            assert file["room_bytes"] == 0
    live = sum(len(row["body"]) if row.get("body") is not None else 0 for row in shown)
    assert sum(file["live_bytes"] for file in files.values()) > live
    kept = [f for f in files.values() if queue in [kept["queue"] for kept in f["queues"]]]
    assert kept
    assert {f["kind"] for f in kept} == {"messages"}
    out = run("du", path, "--explain").out
    assert f"To free {kept[0]['file']}" in out or len(kept) > 3
    assert {"nsq": "NSQ deletes", "gmq": "gmq writes", "beanstalkd": "beanstalkd deletes"}[
        name
    ] in out


def test_trace_shows_the_records_of_a_message(run, broker):
    name, path, queue = broker
    shown = rows(run("peek", path, queue, "-n", 30, "--json").out)[11]
    code, out, err = run("trace", path, f"{queue}:11", "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    assert found["summary"] == f"live, {shown['state']}"
    record = found["records"][0]
    data = (path / record["file"]).read_bytes()[record["offset"] :]
    assert shown["body"].encode() in data[: 200 + len(shown["body"])]
    if name != "nsq":
        again = json.loads(run("trace", path, shown["headers"]["id"], "--json").out)
        assert again == [found]
    assert "so it is: live" in run("trace", path, f"{queue}:11").out
    assert run("trace", path, f"{queue}:99999").code == 2
    assert run("trace", path, "nothing").code == 2


def test_trace_by_id_finds_what_is_not_live_any_more(run, tmp_path):
    beanstalkd_files.write_files(tmp_path / "b")
    (found,) = json.loads(run("trace", tmp_path / "b", "101", "--json").out)
    assert [r["verb"] for r in found["records"]] == ["ready", "deleted"]
    assert found["summary"] == "not live any more: deleted"
    assert found["queue"] == ""
    first, second = (
        (tmp_path / "b" / r["file"]).read_bytes()[r["offset"] :][:32] for r in found["records"]
    )
    assert first[:5] == b"\1\0\0\0t"
    assert second[4:12] == (101).to_bytes(8, "little")
    (buried,) = json.loads(run("trace", tmp_path / "b", "104", "--json").out)
    assert [r["verb"] for r in buried["records"]] == ["ready", "buried"]
    assert (buried["queue"], buried["summary"]) == ("t.buried", "live, unacked")
    gmq_files.write_files(tmp_path / "g")
    shown = rows(run("cat", tmp_path / "g", "--jsonl").out)
    ids = {row["headers"]["id"] for row in shown}
    acked = next(n for n in range(100) if str(gmq_files.FIRST_ID + n) not in ids)
    (found,) = json.loads(run("trace", tmp_path / "g", gmq_files.FIRST_ID + acked, "--json").out)
    assert found["summary"] == "not live any more: acked"


def test_trace_finds_what_nsqd_wrote_by_its_id(run, tmp_path):
    head = struct.pack(">QH", 1_700_000_000 * 10**9, 3)
    bodies = [head + b"%016x" % n + b"body %d" % n for n in range(9)]
    nsq_files.write_files(tmp_path / "n", bodies, 4)
    (found,) = json.loads(run("trace", tmp_path / "n", f"{6:016x}", "--json").out)
    assert (int(found["req_id"]), found["summary"]) == (2, "live, unacked")
    assert found["records"][0]["text"].startswith("body of 6 B, attempts 3, put 2023-11-14")
    (read,) = json.loads(run("trace", tmp_path / "n", f"{1:016x}", "--json").out)
    assert read["summary"] == "not live any more: record"
