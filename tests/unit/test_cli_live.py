"""Looking at a store while another process writes to it."""

import json
import subprocess
import sys

import pytest

WRITER = """
import sys, qindex
with qindex.open(sys.argv[1], max_journal_entries=2000, segment_entries=256) as store:
    small, big = store.queue("small"), store.queue("big")
    number = 0
    while True:
        for _ in range(50):
            small.publish(b"message %d" % number)
            number += 1
        big.publish(b"b" * 9000)
        small.ack_many(small.get_many(45))
        big.ack_many(big.get_many(1) if number % 100 else [])
        if number == 20_000:
            print("writing", flush=True)
        if number == 300_000:
            small.purge(), big.purge()
            number = 20_001
"""


@pytest.fixture
def live_store(tmp_path):
    """A store that somebody is publishing to, acking and flushing all the time."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "s"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "writing\n"
    yield tmp_path / "s"
    assert writer.poll() is None, "looking has disturbed the writer"
    writer.kill()
    writer.communicate()


def test_every_command_works_beside_a_writer(run, live_store):
    for _ in range(3):
        code, out, err = run("check", live_store)
        assert (code, err) == (0, "")
        code, out, err = run("stats", live_store, "--json")
        assert (code, err) == (0, "")
        names = [queue["queue"] for queue in json.loads(out)["queues"]]
        assert names == ["big", "small"]
        code, out, err = run("peek", live_store, "small", "-n", 3)
        assert (code, err) == (0, "")
        assert "message " in out
        code, out, err = run("ls", live_store)
        assert (code, err) == (0, "")


@pytest.mark.slow
def test_top_and_plot_work_beside_a_writer(run, live_store):
    for _ in range(20):  # the writer may wait for its disk through a whole interval
        code, out, err = run("top", live_store, "--once", "--interval", 0.2, "--json")
        assert (code, err) == (0, "")
        rates = {queue["queue"]: queue["rates"] for queue in json.loads(out)["queues"]}
        if rates["small"]["published"] and rates["small"]["acked"]:
            break
    assert rates["small"]["published"] > 0
    assert rates["small"]["acked"] > 0
    for _ in range(3):
        for kind in ("slots", "depth"):
            code, out, err = run("plot", kind, live_store, "small", "--json")
            assert (code, err) == (0, "")
        assert min(json.loads(out)["depth"]) >= 0


def test_a_dump_beside_a_writer_ends(run, live_store):
    for _ in range(3):
        code, out, err = run("dump", live_store)
        assert code in (0, 1)  # a frame may be half written when the file is read
        assert err == ""
        assert " publish " in out


def test_messages_are_read_beside_a_writer(run, live_store, tmp_path):
    code, out, err = run("cat", live_store, "-n", 50, "--jsonl")
    assert (code, err) == (0, "")
    small = [json.loads(line) for line in out.splitlines() if '"queue": "small"' in line]
    req_ids = [line["req_id"] for line in small]
    assert req_ids == sorted(set(req_ids))
    assert all(line["body"].startswith("message ") for line in small)
    assert run("export", live_store, "-n", 50, "--out", tmp_path / "out.jsonl").code == 0
    assert run("diff", live_store, live_store, "-n", 20).code in (0, 1)  # it may change meanwhile
    for _ in range(20):  # the writer may be done with it, and with its segment, before we look
        code, out, err = run("peek", live_store, "small", "--json")
        req_id = json.loads(out.splitlines()[0])["req_id"]
        code, out, err = run("trace", live_store, f"small:{req_id}", "--json")
        assert (code in (0, 1), err) == (True, "")
        if code == 0:
            break
    assert json.loads(out)[0]["summary"]
    code, out, err = run("du", live_store, "--explain")
    assert (code, err) == (0, "")
    assert "all queues" in out


def test_a_writer_keeps_others_from_writing(run, live_store, dead_node):
    code, _, err = run("recover", dead_node, "--out", live_store)
    assert code == 2
    assert "another writer" in err
