"""salvage: all that can be read of a damaged store, and an account of the rest."""

import hashlib
import json
import shutil
import subprocess
import sys
import time

import pytest
from helpers import queue_directory

import qindex


def state_of(path):
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


def content(path):
    with qindex.open(path, read_only=True) as store:
        return {
            name: [
                (m.body, m.headers, m.persistent, m.expires_at) for m in store.queue(name).browse()
            ]
            for name in store.queues()
        }


def flip(file, *offsets):
    data = bytearray(file.read_bytes())
    for offset in offsets:
        data[offset] ^= 0x40
    file.write_bytes(data)


@pytest.fixture
def salvage(run, tmp_path):
    """(exit code, the account by queue, what the new store holds)"""

    def salvage(path):
        before = state_of(path)
        code, out, err = run("salvage", path, "--out", tmp_path / "new", "--json")
        assert state_of(path) == before
        assert run("check", tmp_path / "new").code == 0
        told = json.loads(out)
        account = {queue["queue"]: queue for queue in told["queues"]}
        held = content(tmp_path / "new")
        assert {name: len(messages) for name, messages in held.items()} == {
            name: queue["messages"] for name, queue in account.items()
        }
        return code, account, held, err

    return salvage


def test_a_sound_store_is_copied_whole(salvage, store_path):
    with qindex.open(store_path) as store:
        mails = store.queue("mails")
        mails.publish(b"\xff", headers={"x": [1, None]}, persistent=False, expires_at=4e9)
        mails.publish(b"again", redelivered=True)
    wanted = content(store_path)
    code, account, held, err = salvage(store_path)
    assert (code, err) == (0, "")
    assert held == wanted
    assert not any(queue["raw"] or queue["damaged"] for queue in account.values())


def test_a_damaged_message_is_left_out_and_counted(salvage, store_path):
    wanted = content(store_path)
    flip(store_path / "messages" / "0.qms", 5000)
    code, account, held, err = salvage(store_path)
    assert code == 1
    assert "message 300" in err
    assert (account["mails"]["messages"], account["mails"]["damaged"]) == (234, 1)
    assert held["orders"] == wanted["orders"]
    assert held["mails"] == [m for n, m in enumerate(wanted["mails"]) if n != 230]


def lose_store_meta(path):
    (path / "store.meta").unlink()


def ruin_store_meta(path):
    data = (path / "store.meta").read_bytes()
    (path / "store.meta").write_bytes(b"\xff" * len(data))


def ruin_queue_meta(path):
    file = queue_directory(path, "orders") / "queue.meta"
    flip(file, 20, file.stat().st_size // 2 + 20)


def ruin_journal_headers(path):
    folder = queue_directory(path, "orders")
    for file in folder.glob("journal.*"):
        flip(file, 20, 4096 + 20)


@pytest.mark.parametrize("lose", [lose_store_meta, ruin_store_meta, ruin_queue_meta])
def test_what_the_engine_refuses_is_put_together_from_records(salvage, store_path, lose):
    with qindex.open(store_path) as store:
        store.queue("orders").flush()
    wanted = content(store_path)
    lose(store_path)
    code, account, held, _ = salvage(store_path)
    assert code == 1
    digest = queue_directory(store_path, "orders").name
    name = f"lost-{digest}" if lose is ruin_queue_meta else "orders"
    assert account[name]["raw"]
    assert held[name] == wanted["orders"]
    assert held["mails"] == wanted["mails"]


def test_without_journals_the_segments_are_left(salvage, store_path):
    wanted = content(store_path)
    ruin_journal_headers(store_path)
    code, account, held, err = salvage(store_path)
    assert code == 1
    assert held["mails"] == wanted["mails"]
    orders = held["orders"]  # those whose acks were in the journal come back
    assert [message for message in orders if message in wanted["orders"]][-235:] == wanted["orders"]
    assert account["orders"]["messages"] >= 235
    assert err


@pytest.mark.parametrize("lose", [None, lose_store_meta])
def test_a_folder_with_the_name_of_another_queue_is_not_put_into_that_one(
    salvage, store_path, lose
):
    """Somebody copied queue.meta, or a folder: each folder's name is a hash of its queue's."""
    with qindex.open(store_path) as store:
        store.queue("orders").flush()
    wanted = content(store_path)
    foreign = queue_directory(store_path, "orders")
    shutil.copy(queue_directory(store_path, "mails") / "queue.meta", foreign)
    if lose is not None:
        lose(store_path)
    code, account, held, err = salvage(store_path)
    lost = f"lost-{foreign.name}"
    assert code == 1
    assert f"it is that of queue mails, which has another folder; '{lost}' is taken" in err
    assert held == {"mails": wanted["mails"], lost: wanted["orders"]}
    assert (account[lost]["raw"], account[lost]["damaged"]) == (True, 0)


def test_salvaged_messages_of_a_refused_store_say_redelivered(run, store_path, tmp_path):
    lose_store_meta(store_path)
    run("salvage", store_path, "--out", tmp_path / "new")
    with qindex.open(tmp_path / "new", read_only=True) as store:
        assert all(message.redelivered for message in store.queue("mails").browse())


def test_acks_and_purges_count_without_the_engine(salvage, tmp_path):
    path = tmp_path / "s"
    with qindex.open(path, segment_entries=16, embed_below=8) as store:
        queue = store.queue("q")
        queue.publish_many([b"message %d" % n for n in range(60)])
        queue.flush()
        taken = queue.get_many(20)
        queue.ack_many(taken[5:15])
        queue.flush()
        queue.ack_many(taken[:2])
        queue.publish_many([b"late %d" % n for n in range(10)])
        queue.purge()
        queue.publish(b"last")
    wanted = content(path)
    assert [body for body, *_ in wanted["q"]] == [
        *(b"message %d" % n for n in (2, 3, 4, 15, 16, 17, 18, 19)), b"last",
    ]  # fmt: skip
    lose_store_meta(path)
    assert salvage(path)[2] == wanted


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_delivery_counts_are_copied(run, tmp_path, form, end):
    """Also those of delayed messages, of priorities and of dead letters; and if nobody had one."""
    code = (
        "import os, qindex, sys; store = qindex.open(sys.argv[1], format=int(sys.argv[2]));"
        "queue = store.queue('q', dead_letters=True);"
        "queue.publish_many([b'%d' % n for n in range(5)]);"
        "queue.publish(b'first', priority=9);"
        "[queue.nack_many(queue.get_many(4)) for _ in range(3)];"
        "queue.nack(queue.get(), delay=3600);"
        "queue.nack(queue.get(), requeue=False);"
        "os._exit(0) if sys.argv[3] == 'kill' else store.close()"
    )
    words = [tmp_path / "s", form, end]
    subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True, timeout=60)
    wanted = browsed(tmp_path / "s")  # an open for write knows how the last session ended
    ran = run("salvage", tmp_path / "s", "--out", tmp_path / "new")
    assert (ran.code, ran.err) == (0, "")
    told = [
        sorted((m.body, m.delivery_count, m.redelivered, m.dead, m.priority) for m in found)
        for found in (wanted, browsed(tmp_path / "new"))
    ]
    if (form, end) == (1, "kill"):  # what nobody had says so by a delivery
        told[0] = [(body, count or 1, *rest) for body, count, *rest in told[0]]
    assert told[0] == told[1]
    assert {(m[0], m[1]) for m in told[0]} >= {(b"first", 4), (b"0", 4), (b"1", 3), (b"2", 3)}


def browsed(path):
    with qindex.open(path, expire=False) as store:
        return list(store.queue("q").browse())


@pytest.mark.parametrize("dead_letters", [True, False])
def test_what_was_tried_too_often_is_not_lost_by_its_copy(run, tmp_path, dead_letters):
    """It was taken back for one more try; the settings of the copy would let it leave."""
    with qindex.open(tmp_path / "s", format=2) as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish_many([b"1", b"2"])
        queue.nack_many(queue.get_many(2))
        queue.nack(queue.get(), requeue=False)
        queue.redrive()
        queue.configure(max_deliveries=2, dead_letters=dead_letters)
        assert [m.delivery_count for m in queue.browse()] == [2, 1]
    ran = run("salvage", tmp_path / "s", "--out", tmp_path / "new")
    assert ran.code == 1
    assert "1 message: delivered as often as it may be" in ran.err
    with qindex.open(tmp_path / "new") as store:
        queue = store.queue("q")
        assert queue.settings.max_deliveries == 2
        assert [(m.body, m.delivery_count) for m in queue.get_many(9)] == [(b"1", 2), (b"2", 2)]


def test_what_is_no_damaged_store_is_refused(run, store_path, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = run("salvage", tmp_path / "empty", "--out", tmp_path / "new")
    assert code == 2
    assert "store.meta is not in it" in err
    assert not (tmp_path / "new").exists()
    code, _, err = run("salvage", store_path, "--out", store_path / "new")
    assert code == 2
    run("salvage", store_path, "--out", tmp_path / "new")
    code, _, err = run("salvage", store_path, "--out", tmp_path / "new")
    assert code == 2
    assert "already has the queue" in err


def test_the_account_is_a_table(run, store_path, tmp_path):
    out = run("salvage", store_path, "--out", tmp_path / "new").out
    assert "orders     235  46.8 kB        -  as the engine serves it" in out
    assert "470 messages of 2 queues salvaged" in out


@pytest.mark.slow
def test_nothing_is_made_up_wherever_the_damage_is(run, store_path, tmp_path):
    with qindex.open(store_path) as store:
        store.queue("orders").flush()
    wanted = {name: set(map(str, messages)) for name, messages in content(store_path).items()}
    files = [file for file in store_path.rglob("*") if file.is_file() and file.stat().st_size]
    for number, file in enumerate(files):
        whole = file.read_bytes()
        for at in (0, len(whole) // 3, len(whole) // 2):
            file.write_bytes(whole[:at] + bytes(min(512, len(whole) - at)) + whole[at + 512 :])
            out = tmp_path / f"new-{number}-{at}"
            code, _, err = run("salvage", store_path, "--out", out)
            assert code in (0, 1), err
            for name, messages in content(out).items():
                held = set(map(str, messages))
                known = wanted.get(name) or wanted["orders"] | wanted["mails"]
                if code == 0:
                    assert held == known
                else:
                    assert {message for message in held if "body" not in message} <= known
        file.write_bytes(whole)


def kinds(path):
    """(priority, body) of what a consumer gets, in order; delayed and dead bodies."""
    with qindex.open(path) as store:
        queue = store.queue("q")
        held = {m.body: "dead" if m.dead else "delayed" for m in queue.browse() if m.dead or m.due}
        return [(m.priority, m.body) for m in queue.get_many(100)], held


@pytest.mark.parametrize("lose", [None, lose_store_meta])
def test_priorities_delays_and_dead_letters_stay_what_they_are(run, tmp_path, lose):
    path = tmp_path / "s"
    with qindex.open(path, idle=3600) as store:
        queue = store.queue("q", dead_letters=True)
        queue.publish_many([b"bad 1", b"bad 2"], priority=3)
        queue.nack_many(queue.get_many(2), requeue=False)
        queue.publish(b"acked", priority=9)
        queue.ack(queue.get())
        queue.publish_many([b"plain 1", b"plain 2"])
        queue.publish(b"urgent", priority=9)
        queue.publish(b"later", delay=3600, priority=2)
        queue.flush()
        queue.publish(b"more urgent", priority=200)
    if lose is not None:
        lose(path)
    assert run("salvage", path, "--out", tmp_path / "new").code == (0 if lose is None else 1)
    told, held = kinds(tmp_path / "new")
    assert told == [(200, b"more urgent"), (9, b"urgent"), (0, b"plain 1"), (0, b"plain 2")]
    assert held == {b"bad 1": "dead", b"bad 2": "dead", b"later": "delayed"}


def test_a_dead_letter_whose_expiry_has_passed_stays(run, tmp_path):
    with qindex.open(tmp_path / "s", idle=3600) as store:
        queue = store.queue("q", dead_letters=True)
        expires_at = time.time() + 0.2
        queue.publish(b"bad", expires_at=expires_at)
        queue.nack(queue.get(), requeue=False)
    while time.time() < expires_at:
        time.sleep(0.01)
    assert run("salvage", tmp_path / "s", "--out", tmp_path / "new").code == 0
    assert kinds(tmp_path / "new") == ([], {b"bad": "dead"})


def test_what_a_purge_took_of_a_priority_does_not_come_back(run, tmp_path):
    with qindex.open(tmp_path / "s", idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x"] * 5, priority=7)
        queue.purge()
        queue.publish(b"new", priority=7)
    lose_store_meta(tmp_path / "s")
    assert run("salvage", tmp_path / "s", "--out", tmp_path / "new").code == 1
    assert kinds(tmp_path / "new") == ([(7, b"new")], {})


def test_the_directory_of_another_broker_is_recovered(run, dead_node, tmp_path):
    """With the same account as recover's, and damage passed over."""
    code, out, err = run("salvage", dead_node, "--out", tmp_path / "out", "--json")
    again, other, _ = run("recover", dead_node, "--out", tmp_path / "other", "--json")
    assert (code, err) == (again, "")
    salvaged, recovered = json.loads(out)["recovered"], json.loads(other)["recovered"]
    assert salvaged["messages"] == recovered["messages"] > 0
    with qindex.open(tmp_path / "out") as store:
        assert sum(len(store.queue(name)) for name in store.queues()) == salvaged["messages"]


def busy(path):
    """A store with acks, so that what is salvaged has other ReqIds; and every kind of message."""
    with qindex.open(path, segment_entries=64) as store:
        for name in ("orders", "mails"):
            queue = store.queue(name, dead_letters=True)
            queue.publish_many([b"%s %d" % (name.encode(), n) for n in range(300)])
            queue.publish_many([b"B" * 9000 + b"%d" % n for n in range(20)], headers={"k": name})
            queue.publish_many([b"high %d" % n for n in range(10)], priority=7)
            queue.publish(b"later", delay=3600)
            queue.ack_many(queue.get_many(150))
            for message in queue.get_many(5):
                queue.nack(message, requeue=False)
            queue.flush()
            queue.ack_many(queue.get_many(20))
    return path


def spoil_nothing(path):
    """An undamaged store may be salvaged, too."""


@pytest.mark.parametrize("spoil", [spoil_nothing, lose_store_meta, ruin_store_meta])
def test_the_runbook_verifies_what_was_salvaged(run, tmp_path, spoil):
    """Section 8 of docs/rescue/runbook.rst, on a store in which something was acked and buried."""
    store, hurt, saved = busy(tmp_path / "store"), tmp_path / "hurt", tmp_path / "saved"
    shutil.copytree(store, hurt)
    spoil(hurt)
    damaged = spoil is not spoil_nothing
    assert (run("check", hurt).code != 0) == damaged
    assert run("salvage", hurt, "--out", saved).code == int(damaged)
    code, out, err = run("diff", store, saved, "--ignore-state")
    assert (code, err) == (0, ""), out
    assert "compared by content: A and B are two stores" in out
    assert out.splitlines()[-1] == "322 messages alike; 2 queues without a difference"
    with qindex.open(saved) as target:  # the verification can fail, too
        target.queue("orders").ack(target.queue("orders").get())
    code, out, _ = run("diff", store, saved, "--ignore-state")
    assert code == 1
    assert "321 messages alike" in out


def test_the_runbook_verifies_a_store_with_a_damaged_body(run, tmp_path):
    """What the damage cost is what the comparison shows, and nothing else."""
    store, hurt, saved = busy(tmp_path / "store"), tmp_path / "hurt", tmp_path / "saved"
    shutil.copytree(store, hurt)
    flip(hurt / "messages" / "0.qms", 5000)
    assert run("check", hurt).code == 1
    assert run("salvage", hurt, "--out", saved).code == 1
    code, out, _ = run("diff", store, saved, "--ignore-state")
    assert code == 1
    assert "321 messages alike; 1 queue without a difference" in out
    code, out, err = run("diff", hurt, saved, "--ignore-state")
    assert (code, err.count("1 damaged place")) == (3, 1)
    assert "321 messages alike; 2 queues without a difference" in out


def test_orphans_are_refused_where_there_can_be_none(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"x")
    told = run("salvage", tmp_path / "s", "--orphans", "--out", tmp_path / "t")
    assert told.code == 2
    assert "--orphans is for RabbitMQ nodes" in told.err
    assert not (tmp_path / "t").exists()
