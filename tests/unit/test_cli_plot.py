"""qindex plot: the numbers behind the pictures, and that pictures are made of them."""

import json
import random
import sys
from datetime import datetime
from xml.etree import ElementTree

import pytest
from helpers import files_of, queue_directory

import qindex
from qindex.brokers.rabbitmq.directory import open_node
from qindex.cli.plot.slots import COLUMNS

TEXT = "{http://www.w3.org/2000/svg}text"


def churn(queue, seed):
    """Publishes, deliveries, acks, flushes and a purge; one in three messages stays for long."""
    chance = random.Random(seed)
    taken = []
    for step in range(60):
        queue.publish_many([b"x"] * chance.randrange(1, 20))
        taken += queue.get_many(chance.randrange(0, 15))
        done = [m for m in taken if chance.random() < 0.6]
        taken = [m for m in taken if m not in done]
        queue.ack_many(done)
        if chance.random() < 0.2:
            queue.flush()
        if step == 30 and seed % 2:
            queue.purge()


# --- slots --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_live_cells_are_the_live_messages(numbers, tmp_path, seed):
    with qindex.open(tmp_path / "s", segment_entries=32, idle=3600) as store:
        queue = store.queue("q")
        churn(queue, seed)
        expected = [message.req_id for message in queue.browse()]
        found = numbers("slots", tmp_path / "s", "q")
    first, cell = int(found["first_req_id"]), found["cell_slots"]
    cells = [count for row in found["cells"]["live"] for count in row]
    here = [0] * len(cells)
    for req_id in expected:
        here[(req_id - first) // cell] += 1
    assert [max(0, count) for count in cells] == here
    assert found["totals"]["live"] == len(expected)
    totals = found["totals"]
    assert totals["live"] == totals["published"] - totals["acked"]
    assert totals["delivered"] >= totals["acked"] or seed % 2  # what is purged was not delivered


def test_slots_without_a_file_are_told_apart(numbers, tmp_path):
    with qindex.open(tmp_path / "s", segment_entries=64, idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 64 * 6)
        queue.flush()
        taken = queue.get_many(64 * 6)
        queue.ack_many(taken[64 : 64 * 5])
        queue.flush()
        found = numbers("slots", tmp_path / "s", "q")
    assert (found["cell_slots"], COLUMNS) == (1, 64)
    rows = found["cells"]["published"]
    assert [row[0] for row in rows] == [1, -1, -1, -1, -1, 1]
    assert [row[5] for row in found["cells"]["live"]] == [1, -1, -1, -1, -1, 1]


@pytest.mark.slow
def test_the_slots_of_a_rabbitmq_queue_agree_with_its_account(numbers, dead_node):
    compared = 0
    with open_node(dead_node) as node:
        for vhost in node.vhosts:
            for queue in vhost.queues:
                if len(queue.parts) != 1 or vhost.name != "/":
                    continue
                totals = numbers("slots", dead_node, queue.name)["totals"]
                counts = queue.counts
                assert totals["published"] == counts.published
                assert totals["acked"] == counts.acked
                compared += counts.published > 0
    assert compared > 3


@pytest.mark.slow
def test_slots_are_drawn(draws, store_path):
    texts = draws("slots", store_path, "mails")
    assert "slots of mails, 1 ReqId a cell" in texts
    assert "235 live" in texts


def test_two_purges_leave_what_both_of_them_left(numbers, tmp_path):
    with qindex.open(tmp_path / "s", segment_entries=8, idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 20)
        taken = queue.get_many(6)
        queue.purge()
        queue.publish_many([b"x"] * 20)
        queue.nack_many(taken[:3])
        queue.purge()
        assert [message.req_id for message in queue.browse()] == [3, 4, 5]
        found = numbers("slots", tmp_path / "s", "q")
    assert found["cells"]["live"][0][:7] == [0, 0, 0, 1, 1, 1, 0]
    assert found["totals"] == {"published": 40, "delivered": 6, "acked": 37, "live": 3}


def test_names_are_drawn_as_they_are(draws, tmp_path):
    name = "$x_1$ <b> 注文 ☃"
    with qindex.open(tmp_path / "s") as store:
        store.queue(name).publish(b"x")
    assert f"slots of {name}, 2 ReqIds a cell" in draws("slots", tmp_path / "s")


@pytest.mark.slow
def test_an_empty_queue_is_drawn(draws, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q")
    assert "0 live" in draws("slots", tmp_path / "s")


# --- depth --------------------------------------------------------------------------------------


def test_depth_follows_each_record(numbers, tmp_path):
    with qindex.open(tmp_path / "s", idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 3)
        queue.flush()
        for _ in range(2):
            queue.publish(b"y")
        taken = queue.get_many(4)
        queue.ack_many(taken[:3])
        found = numbers("depth", tmp_path / "s")
    assert found["depth"] == [3, 4, 5, 5, 5, 5, 5, 4, 3, 2]
    assert found["numbers"] == list(range(10))


def test_a_purge_leaves_what_is_handed_out(numbers, tmp_path):
    with qindex.open(tmp_path / "s", idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 10)
        queue.get_many(2)
        queue.purge()
        queue.publish(b"y")
        found = numbers("depth", tmp_path / "s")
        assert len(queue) == 3
    assert found["depth"][-3:] == [10, 2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_the_last_depth_is_that_of_the_queue(numbers, tmp_path, seed):
    with qindex.open(tmp_path / "s", segment_entries=32, idle=3600) as store:
        churn(store.queue("q"), seed)
        found = numbers("depth", tmp_path / "s")
        assert found["depth"][-1] == len(store.queue("q"))
    assert min(found["depth"]) >= 0
    assert len(found["depth"]) == len(found["age_seconds"]) or not found["age_seconds"]


def test_priorities_and_delays_are_in_the_depth_and_in_slots_of_their_own(numbers, tmp_path):
    with qindex.open(tmp_path / "s", segment_entries=8, idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 20)
        queue.publish_many([b"urgent"] * 3, priority=9)
        queue.publish(b"later", delay=3600)
        queue.ack(queue.get())
        found = numbers("depth", tmp_path / "s")
        assert found["depth"][-1] == len(queue) == 23
        found = numbers("slots", tmp_path / "s")
        assert found["totals"] == {"published": 20, "delivered": 0, "acked": 0, "live": 20}
        assert found["queue"] == "q, lane 0"
        queue.purge(state="all")
        found = numbers("depth", tmp_path / "s")
        assert found["depth"][-1] == len(queue) == 0
        assert numbers("slots", tmp_path / "s")["totals"]["live"] == 0


def test_ages_grow_until_the_first_message_is_acked(numbers, tmp_path):
    with qindex.open(tmp_path / "s", idle=3600) as store:
        queue = store.queue("q")
        for _ in range(5):
            queue.publish(b"x", confirm=True)  # each sync leaves a clock in the journal
        queue.ack(queue.get())
        queue.sync()
        queue.publish(b"y")
    found = numbers("depth", tmp_path / "s")
    ages = [age for age in found["age_seconds"][1:6] if age is not None]
    assert ages == sorted(ages)
    assert ages[0] == 0 or ages[0] < ages[-1]
    assert not any(found["older"])
    began, ended = (datetime.fromisoformat(found[name]) for name in ("began_at", "ended_at"))
    assert found["age_seconds"][7] <= ages[-1] + (ended - began).total_seconds()


@pytest.mark.slow
def test_depth_is_drawn(draws, store_path):
    texts = draws("depth", store_path, "mails")
    assert any(text.startswith("mails: ") and "records in its journals" in text for text in texts)
    assert "messages" in texts


def test_burials_and_delays_are_counted_and_drawn(numbers, draws, tmp_path):
    with qindex.open(tmp_path / "s", idle=3600, sync="never") as store:
        queue = store.queue("q", dead_letters=True)
        for delay in (0, 3600, 0, 3600):
            queue.publish(b"x", delay=delay)
        queue.nack(queue.get(), requeue=False)
        queue.nack(queue.get(), delay=3600)
        found = numbers("depth", tmp_path / "s")
        assert (found["depth"][-1], found["buried"][-1], found["held"][-1]) == (4, 1, 3)
        assert found["buried"] == sorted(found["buried"])
        assert found["held"] == sorted(found["held"])
        assert found["held"][found["buried"].index(1)] == 2
        texts = draws("depth", tmp_path / "s")
    assert {"1 burial, so far", "3 delays, so far"} < set(texts)


def test_depth_of_a_format_without_journals_is_refused(run, tmp_path):
    (tmp_path / "nsq").mkdir()
    with qindex.DiskQueue("t", tmp_path / "nsq", format="nsq") as queue:
        queue.put(b"x")
    code, _, err = run("plot", "depth", tmp_path / "nsq", "--json")
    assert code == 2
    assert "depth cannot read nsq directories" in err


def test_slots_of_a_format_without_slots_are_refused(run, tmp_path):
    (tmp_path / "nsq").mkdir()
    with qindex.DiskQueue("t", tmp_path / "nsq", format="nsq") as queue:
        queue.put(b"x")
    code, _, err = run("plot", "slots", tmp_path / "nsq", "--json")
    assert code == 2
    assert "slots cannot read nsq directories" in err


# --- files and recovery -------------------------------------------------------------------------


def test_files_are_those_of_du(numbers, run, draws, store_path):
    found = numbers("files", store_path)
    files = json.loads(run("du", store_path, "--json").out)["files"]
    expected = [f for f in files if f["kind"] == "messages"]
    assert [f["live_bytes"] for f in found] == [f["live_bytes"] for f in expected]
    assert (
        sum(f["live_bytes"] + f["garbage_bytes"] + f["room_bytes"] for f in found)
        == expected[0]["bytes"]
    )
    texts = draws("files", store_path)
    assert "garbage" in texts
    assert "0.qms" in texts


def test_what_is_not_read_is_not_drawn_as_garbage(run, tmp_path):
    pytest.importorskip("matplotlib")
    with qindex.open(tmp_path / "s") as store:
        for name in ("a", "b"):
            store.queue(name).publish_many([b"x" * 5000] * 5)
    (queue_directory(tmp_path / "s", "b") / "queue.meta").unlink()
    code, out, _ = run("plot", "files", tmp_path / "s", "--json")
    [file] = json.loads(out)
    assert (code, file["garbage_bytes"]) == (1, None)
    assert file["bytes"] > file["live_bytes"] + file["room_bytes"]
    assert run("plot", "files", tmp_path / "s", "--out", tmp_path / "p.svg").code == 1
    root = ElementTree.fromstring((tmp_path / "p.svg").read_text())  # noqa: S314 - our own
    texts = [element.text for element in root.iter(TEXT)]
    assert "garbage or not read" in texts
    assert "garbage" not in texts


@pytest.mark.slow
def test_recovery_measures_all_directories_and_queues(numbers, draws, store_path, dead_node):
    found = numbers("recovery", store_path, dead_node)
    assert [opening["format"] for opening in found["openings"]] == ["qindex", "rabbitmq"]
    of_store = [r for r in found["readings"] if r["path"] == str(store_path)]
    assert [(r["queue"], r["messages"]) for r in of_store] == [("mails", 235), ("orders", 235)]
    assert all(r["seconds"] > 0 for r in found["readings"])
    assert "reading a queue, by its bodies" in draws("recovery", store_path, dead_node)


def test_links_are_not_followed(run, store_path, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (segment,) = store_path.glob("queues/*/1.idx")
    segment.rename(elsewhere)
    segment.symlink_to(elsewhere)
    _, out, _ = run("plot", "slots", store_path, "orders", "--json")
    live = json.loads(out)["totals"]["live"]
    assert live == 235 - 58  # those of 64 slots that were not acked


# --- what is refused ----------------------------------------------------------------------------


def test_drawing_changes_nothing_in_the_store(run, store_path, tmp_path):
    pytest.importorskip("matplotlib")
    before = files_of(store_path)
    for kind in ("slots", "depth"):
        assert run("plot", kind, store_path, "mails", "--out", tmp_path / "x.svg").code == 0
    code, _, err = run("plot", "files", store_path, "--out", store_path / "x.svg")
    assert code == 2
    assert "nothing is changed" in err
    assert files_of(store_path) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["slots", "STORE", "--out", "x.svg"], "choose one: mails, orders"),
        (["slots", "STORE", "none", "--out", "x.svg"], "no queue 'none'"),
        (["slots", "STORE", "mails", "orders", "--out", "x.svg"], "one QUEUE at a time"),
        (["files", "STORE", "mails", "--out", "x.svg"], "leave out QUEUE"),
        (["files", "STORE", "--out", "x.jpg"], "neither in .svg nor in .png"),
        (["files", "STORE"], "say where to"),
        (["files", "STORE", "--json", "--out", "x.svg"], "say where to"),
    ],
)
def test_wrong_usage_says_what_to_do(run, store_path, tmp_path, monkeypatch, arguments, told):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    words = [store_path if word == "STORE" else word for word in arguments]
    code, out, err = run("plot", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert not list(tmp_path.glob("x.*"))


def test_without_matplotlib_the_numbers_are_still_there(run, store_path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "qindex.cli.plot.draw", raising=False)
    code, _, err = run("plot", "slots", store_path, "mails", "--out", tmp_path / "x.svg")
    assert code == 2
    assert "pip install 'qindex[plot]'" in err
    assert run("plot", "slots", store_path, "mails", "--json").code == 0
