"""recover: what is in a dead RabbitMQ node, and into a store with it."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest

import qindex
from qindex.brokers.recover import recover_into
from qindex.cli.recover import command as recover


@pytest.fixture
def damaged_node(dead_node, tmp_path):
    """A copy without one message file and with a broken segment."""
    path = shutil.copytree(dead_node, tmp_path / "damaged")
    next(path.glob("**/msg_store_persistent/*.rdq")).unlink()
    return path


def state_of(path):
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(f, f.stat().st_mtime_ns, hashlib.sha256(f.read_bytes()).digest()) for f in files]


def test_a_node_is_listed_by_virtual_host_and_queue(run, dead_node):
    before = state_of(dead_node)
    code, out, err = run("recover", dead_node)
    assert (code, err) == (0, "")
    assert "virtual host /\n" in out
    assert "virtual host vh-два\n" in out
    assert "заказы/queue ☃" in out
    assert "344 messages in the files = 0 acked + 5 transient + 0 without a body + 339 live" in out
    assert state_of(dead_node) == before


def test_the_list_as_json_has_every_count(run, dead_node):
    told = json.loads(run("recover", dead_node, "--json").out)
    assert (told["node"], told["complete"], told["out"]) == ("qix@localhost", True, None)
    total = told["total"]
    assert total["published"] == (
        total["acked"] + total["transient"] + total["body_missing"] + total["live"]
    )
    queues = {(v["vhost"], q["queue"]): q for v in told["vhosts"] for q in v["queues"]}
    assert len(queues) == 19
    assert queues["/", "q.lazy"]["transient"] == 5
    assert queues["/", "q.prio"]["arguments"] == {"x-max-priority": 5}


def test_messages_are_recovered_into_a_store(run, dead_node, tmp_path):
    before = state_of(dead_node)
    code, out, err = run("recover", dead_node, "--out", tmp_path / "s", "--keep-expired")
    assert (code, err) == (0, "")
    assert "339 live = 339 recovered + 0 expired + 0 unreadable" in out
    assert "left out: 5 transient" in out
    assert state_of(dead_node) == before
    with qindex.open(tmp_path / "s", read_only=True) as store:
        assert len(store.queues()) == 19
        assert sum(len(store.queue(name)) for name in store.queues()) == 339
        message = store.queue("q.small").peek()
        assert message.headers["routing_keys"] == ["q.small"]
    assert run("check", tmp_path / "s").code == 0


def test_what_has_expired_is_left_out_and_counted(run, dead_node, tmp_path):
    told = json.loads(run("recover", dead_node, "--out", tmp_path / "s", "--json").out)
    recovered = told["recovered"]
    assert recovered["expired"] > 0
    assert recovered["live"] == recovered["messages"] + recovered["expired"] == 339
    assert len(recovered["queues"]) == 19


def test_a_second_run_is_refused_and_changes_nothing(run, dead_node, tmp_path):
    run("recover", dead_node, "--out", tmp_path / "s")
    code, out, err = run("recover", dead_node, "--out", tmp_path / "s")
    assert (code, out) == (2, "")
    assert "already has 19 of the 19 queues" in err
    with qindex.open(tmp_path / "s", read_only=True) as store:
        assert len(store.queue("q.small")) == 65


def test_a_store_in_use_is_refused(run, dead_node, tmp_path):
    with qindex.open(tmp_path / "s"):
        code, _, err = run("recover", dead_node, "--out", tmp_path / "s")
        assert code == 2
        assert err.count("\n") == 1


def test_the_dead_node_is_no_place_for_a_store(run, dead_node):
    for path in (dead_node / "s", dead_node / "qix@localhost" / "s"):
        code, _, err = run("recover", dead_node, "--out", path)
        assert code == 2
        assert "elsewhere" in err
        assert not path.exists()


def test_a_directory_that_is_no_node_is_refused(run, tmp_path):
    code, out, err = run("recover", tmp_path, "--out", tmp_path / "s")
    assert (code, out) == (2, "")
    assert "no RabbitMQ node" in err
    assert not (tmp_path / "s").exists()
    assert run("recover", tmp_path / "nothing").code == 2


def test_a_store_is_no_dead_broker_and_its_path_is_told(run, tmp_path):
    inside = tmp_path / "served" / "vhosts" / "default"
    inside.parent.mkdir(parents=True)
    qindex.open(inside).close()
    told = run("recover", inside)
    assert told.code == 2
    assert f"is no dead broker's directory: the store is '{inside}'; a store recovers" in told.err
    told = run("recover", tmp_path / "served", "--out", tmp_path / "new")
    assert told.code == 2
    assert f"that is a directory of qindex serve; its stores are '{inside}'" in told.err
    assert not (tmp_path / "new").exists()


def test_options_without_a_meaning_are_refused(run, dead_node):
    assert run("recover", dead_node, "--keep-expired").code == 2


def test_damage_is_told_and_the_rest_is_recovered(run, damaged_node, tmp_path):
    code, out, _ = run("recover", damaged_node)
    assert code == 1
    assert "findings\n" in out
    assert "messages without a body: seqs" in out
    code, out, _ = run("recover", damaged_node, "--out", tmp_path / "s")
    assert code == 1
    assert "without a body" in out
    told = json.loads(run("recover", damaged_node, "--json").out)
    assert told["complete"] is False
    with qindex.open(tmp_path / "s", read_only=True) as store:
        messages = sum(len(store.queue(name)) for name in store.queues())
    assert 0 < messages < 339


def test_an_account_that_does_not_add_up_is_a_failure(run, dead_node, tmp_path, monkeypatch):
    def forgets_one(node, store, **options):
        report = recover_into(node, store, **options)
        store.queue("q.small").get()
        store.queue("q.small").ack(0)
        return report

    monkeypatch.setattr(recover, "recover_into", forgets_one)
    code, _, err = run("recover", dead_node, "--out", tmp_path / "s")
    assert code == 1
    assert "'q.small' does not add up: 65 live, 64 in the store" in err


def test_progress_is_shown_where_it_is_asked_for(dead_node, tmp_path):
    code = (
        "import sys, qindex.look.screen as screen; screen._LINE_SECONDS = 0;"
        "from qindex.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "recover", dead_node, "--out", tmp_path / "s", "--progress"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "recovering  " in done.stderr
    assert "of 339 messages" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_a_virtual_host_whose_directory_is_gone_is_damage(run, dead_node, tmp_path):
    path = shutil.copytree(dead_node, tmp_path / "damaged")
    whole = json.loads(run("recover", dead_node, "--json").out)
    folder = next(iter(path.glob("**/msg_stores/vhosts/*/.config"))).parent
    shutil.rmtree(folder)
    code, out, _ = run("recover", path, "--json")
    assert code == 1
    told = json.loads(out)
    assert not told["complete"] or told["findings"]
    (finding,) = [each for each in told["findings"] if folder.name in each["file"]]
    assert "the directory of virtual host" in finding["text"]
    assert len(told["queues"]) < len(whole["queues"])
    assert run("check", path).code == 1
