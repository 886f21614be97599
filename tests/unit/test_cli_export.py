"""export: three kinds of output, complete and without doubles, also after kills."""

import base64
import json
import os
import subprocess
import sys

import pytest

import qindex
from qindex.cli.checkpoint import Checkpoint
from qindex.cli.export import command as export
from qindex.cli.export import outputs as export_outputs
from qindex.cli.main import main

FORMS = ("jsonl", "parquet", "files")
# Dies at its n-th step: before or behind one of the calls that make something durable.
KILLED = """
import itertools, os, signal, sys
from pathlib import Path
from qindex.cli import checkpoint
from qindex.cli.export import command as export
from qindex.cli.export import outputs as export_outputs
from qindex.cli.main import main
export.COMMIT_MESSAGES = 40
left = itertools.count(int(sys.argv[1]), -1)

def step():
    if next(left) == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(call):
    def called(*arguments, **named):
        step()
        result = call(*arguments, **named)
        step()
        return result
    return called

os.fsync = dying(os.fsync)
Path.replace = dying(Path.replace)
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(params=FORMS)
def form(request):
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="qindex[parquet] is not installed")
    return request.param


def read(form, path):
    """(queue, req_id, body) of every message that an output holds."""
    if form == "jsonl":
        told = [json.loads(line) for line in path.read_text().splitlines()]
        return [(t["queue"], int(t["req_id"]), body_of(t)) for t in told]
    if form == "files":
        told = [json.loads(line) for line in (path / "messages.jsonl").read_text().splitlines()]
        return [(t["queue"], int(t["req_id"]), (path / t["file"]).read_bytes()) for t in told]
    from pyarrow import parquet

    rows = parquet.read_table(path).to_pylist()
    return [(row["queue"], int(row["req_id"]), row["body"]) for row in rows]


def body_of(told):
    return told["body"].encode() if "body" in told else base64.b64decode(told["body_base64"])


def content(path):
    with qindex.open(path, read_only=True) as store:
        return [
            (name, message.req_id, message.body)
            for name in store.queues()
            for message in store.queue(name).browse()
        ]


def test_every_message_is_in_the_output_once(run, store_path, form, tmp_path):
    code, out, err = run("export", store_path, "--form", form, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.startswith("470 messages (")
    assert read(form, tmp_path / "out") == content(store_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "out.checkpoint"]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 3, 7])
@pytest.mark.sample(9)
def test_after_kills_it_goes_on_and_nothing_is_doubled(store_path, form, tmp_path, steps):
    arguments = ["export", store_path, "--form", form, "--out", tmp_path / "out"]
    kills = 0
    for more in range(40):  # later each time, as a run that repeats no work gets further
        command = [sys.executable, "-c", KILLED, str(steps + 9 * more), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
        kills += 1
    assert kills > 0
    assert read(form, tmp_path / "out") == content(store_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "out.checkpoint"]


def test_bodies_are_text_or_base64(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish_many(["☃".encode(), b"\xff\x00", b""])
    run("export", tmp_path / "s", "--form", "jsonl", "--out", tmp_path / "out")
    told = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [t.get("body") for t in told] == ["☃", None, ""]
    assert told[1]["body_base64"] == "/wA="


def test_a_complete_export_is_not_done_again(run, store_path, form, tmp_path):
    run("export", store_path, f"--{form}", tmp_path / "out")
    with qindex.open(store_path) as store:
        store.queue("orders").publish(b"later")
    code, out, _ = run("export", store_path, f"--{form}", tmp_path / "out")
    assert code == 0
    assert "470 messages" in out
    assert "which an earlier run began" in out
    assert len(read(form, tmp_path / "out")) == 470


def test_what_is_there_already_is_never_overwritten(run, store_path, form, tmp_path):
    (tmp_path / "out").write_bytes(b"mine")
    code, _, err = run("export", store_path, f"--{form}", tmp_path / "out")
    assert code == 2
    assert "choose another name" in err
    assert (tmp_path / "out").read_bytes() == b"mine"
    (tmp_path / "other.parts").mkdir()
    code, _, err = run("export", store_path, f"--{form}", tmp_path / "other")
    assert code == 2
    assert "choose another name" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "other.parts", "out"]


def test_another_job_does_not_go_on_with_a_checkpoint(run, store_path, tmp_path):
    run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out", "orders")
    before = (tmp_path / "out").read_bytes()
    code, _, err = run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out")
    assert code == 2
    assert "another job" in err
    (tmp_path / "out.checkpoint").write_text("{}")
    assert (
        "no checkpoint"
        in run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out").err
    )
    assert (tmp_path / "out").read_bytes() == before


def test_an_output_that_lost_bytes_is_refused(run, store_path, tmp_path, monkeypatch):
    def dies(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "COMMIT_MESSAGES", 100)
    monkeypatch.setattr(export_outputs.JsonLines, "finish", dies)
    code, _, err = run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out")
    assert (code, err) == (130, "qindex: interrupted: run the same command again to go on\n")
    os.truncate(tmp_path / "out", 100)
    code, _, err = run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out")
    assert code == 2
    assert "shorter than its checkpoint" in err


def test_a_full_disk_is_told_and_can_be_mended(run, store_path, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export_outputs.Lines, "commit", full)
    code, _, err = run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out")
    assert code == 2
    assert "No space left on device after 0 messages" in err
    monkeypatch.undo()
    assert run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out").code == 0
    assert read("jsonl", tmp_path / "out") == content(store_path)


def test_the_choice_is_the_one_of_cat(run, store_path, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "COMMIT_MESSAGES", 7)
    arguments = ["orders", "mails", "--req-id", "75-", "-n", 20]
    run("export", store_path, "--form", "jsonl", "--out", tmp_path / "out", *arguments)
    assert (tmp_path / "out").read_text() == run("cat", store_path, "--jsonl", *arguments).out


def test_a_limit_holds_across_an_interruption(run, store_path, tmp_path, monkeypatch):
    arguments = [
        "export",
        str(store_path),
        "-n",
        "50",
        "--form",
        "jsonl",
        "--out",
        str(tmp_path / "out"),
    ]
    monkeypatch.setattr(export, "COMMIT_MESSAGES", 30)
    save, saves = Checkpoint.save, []

    def interrupted(*given, **named):
        save(*given, **named)
        saves.append(1)
        if len(saves) == 3:  # the empty one, 30, 60 of 100
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    assert main(arguments) == 130
    assert len(read("jsonl", tmp_path / "out")) == 60
    assert main(arguments) == 0
    queues = [queue for queue, _, _ in read("jsonl", tmp_path / "out")]
    assert (queues.count("mails"), queues.count("orders")) == (50, 50)


def test_a_dead_rabbitmq_node_is_exported(run, dead_node, form, tmp_path):
    code, out, _ = run("export", dead_node, f"--{form}", tmp_path / "out", "--json")
    assert code == 0
    assert json.loads(out)["messages"] == 339
    run("recover", dead_node, "--out", tmp_path / "s", "--keep-expired")
    here = [(queue, body) for queue, _, body in content(tmp_path / "s")]
    assert [(queue, body) for queue, _, body in read(form, tmp_path / "out")] == here


def test_nothing_is_written_into_what_is_read(run, store_path, dead_node):
    for place in (store_path, dead_node):
        code, _, err = run("export", place, "--form", "jsonl", "--out", place / "out")
        assert code == 2
        assert "where nothing is changed: go elsewhere" in err
        assert not list(place.glob("out*"))


def test_damage_is_left_out_counted_and_makes_the_exit_code(run, store_path, form, tmp_path):
    file = store_path / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    code, out, err = run("export", store_path, f"--{form}", tmp_path / "out", "--json")
    assert code == 1
    assert "message 300" in err
    told = json.loads(out)
    assert (told["messages"], told["damaged"]) == (469, 1)
    assert len(read(form, tmp_path / "out")) == 469
    assert run("export", store_path, f"--{form}", tmp_path / "out").code == 1


def test_the_columns_of_parquet_are_the_documented_ones(run, store_path, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="qindex[parquet] is not installed")
    run(
        "export",
        store_path,
        "orders",
        "--req-id",
        "302",
        "--form",
        "parquet",
        "--out",
        tmp_path / "out",
    )
    line = json.loads(run("cat", store_path, "orders", "--req-id", "302", "--jsonl").out)
    table = parquet.read_table(tmp_path / "out")
    assert set(table.column_names) == set(line)
    (row,) = table.to_pylist()
    assert (row["headers"], row["state"], row["expires_at"]) == ('{"kind": "big"}', "ready", None)


THREADS = """
import os, sys
import pyarrow.parquet
from qindex.cli.main import main
before = len(os.listdir("/proc/self/task"))
assert main(sys.argv[1:]) == 0
print("threads:", before, len(os.listdir("/proc/self/task")))
"""


def test_parquet_leaves_no_thread_of_arrow_with_a_file_of_python(store_path, tmp_path):
    """Such a thread ended one process of sixty with SIGABRT, when it was the last to let go."""
    pytest.importorskip("pyarrow.parquet", reason="qindex[parquet] is not installed")
    command = ["export", str(store_path), "--out", str(tmp_path / "out.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *command], capture_output=True, text=True, check=True
    )
    _, before, after = done.stdout.splitlines()[-1].split()
    assert before == after


def test_without_pyarrow_it_says_what_to_install(run, store_path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = run("export", store_path, "--form", "parquet", "--out", tmp_path / "out")
    assert code == 2
    assert "pip install 'qindex[parquet]'" in err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "\0", "z" * 300, "☃", "q\udc80"])
def test_a_queue_name_never_becomes_a_path(name):
    folder = export_outputs.folder_name(name)
    assert "/" not in folder
    assert "\0" not in folder
    assert not folder.startswith(".")
    assert 0 < len(folder) < 200
    assert folder != export_outputs.folder_name(name + "x")
