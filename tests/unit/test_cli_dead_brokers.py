"""The commands that read messages do so in every dead broker's directory."""

from __future__ import annotations

import json
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
    assert run("export", path, "--jsonl", tmp_path / "out").code == 0
    assert run("recover", path, "--into", tmp_path / "s").code == 0
    assert run("export", tmp_path / "s", "--jsonl", tmp_path / "again").code == 0
    keys = ("queue", "headers", "redelivered", "body", "body_base64")
    out, again = (
        [[row.get(key) for key in keys] for row in rows((tmp_path / name).read_text())]
        for name in ("out", "again")
    )
    assert out == again
    assert len(out) > 40
    assert run("diff", path, tmp_path / "s").code == 0


def test_peek_and_cat_choose_messages(run, broker):
    _, path, queue = broker
    shown = rows(run("peek", path, queue, "-n", 30, "--json").out)
    assert [row["req_id"] for row in shown] == list(range(30))
    one = rows(run("peek", path, queue, "--req-id", 7, "--json").out)
    assert one == [shown[7]]
    assert run("cat", path, "--queue", "nothing").code == 2


@pytest.mark.parametrize("command", ["trace", "du"])
def test_what_needs_the_format_says_so(run, broker, command):
    name, path, queue = broker
    arguments = [f"{queue}:1"] if command == "trace" else []
    code, _, err = run(command, path, *arguments)
    assert code == 2
    assert f"cannot read {name} directories" in err
