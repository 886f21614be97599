"""du: bytes per file and queue, what is alive in them, and what keeps them."""

import json

import pytest

import qindex
from qindex.brokers.rabbitmq.directory import open_node

KNOBS = {"embed_below": 0, "message_file_size": 16384, "segment_entries": 64, "idle": 3600}


@pytest.fixture
def used(run):
    """What `du --json` says, with files by name and queues by name."""

    def used(path, code=0):
        ran = run("du", path, "--json")
        assert ran.code == code, ran.err
        told = json.loads(ran.out)
        files = {file["file"]: file for file in told["files"]}
        return files, {queue["queue"]: queue for queue in told["queues"]}

    return used


def held_by(file, name):
    return next(queue for queue in file["queues"] if queue["queue"] == name)


def message_files(files):
    return {where: file for where, file in files.items() if file["kind"] == "messages"}


def test_files_add_up_to_what_is_on_disk(used, tmp_path):
    with qindex.open(tmp_path / "s", **KNOBS) as store:
        queue = store.queue("q")
        queue.publish_many([b"x" * 500] * 200)
        queue.ack_many(queue.get_many(150))
    files, queues = used(tmp_path / "s")
    on_disk = {
        str(file.relative_to(tmp_path / "s")): file.stat().st_size
        for file in (tmp_path / "s").rglob("*.*")
        if file.is_file() and file.name != "store.meta"
    }
    assert {where: file["bytes"] for where, file in files.items()} == on_disk
    for file in message_files(files).values():
        assert file["bytes"] == file["live_bytes"] + file["garbage_bytes"] + file["room_bytes"]
    assert queues["q"]["messages"] == 50
    assert queues["q"]["body_bytes"] == 50 * 525


def test_the_live_bytes_are_those_that_the_store_counts(used, tmp_path):
    with qindex.open(tmp_path / "s", **KNOBS) as store:
        queue = store.queue("q")
        queue.publish_many([b"x" * n for n in range(300)])
        queue.ack_many([m for m in queue.get_many(300) if m.req_id % 7 == 0])
    files, queues = used(tmp_path / "s")
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").peek()
        store.compact()  # counts all queues
        assert store.stats().live_bytes == queues["q"]["body_bytes"]
    headers = 64 * len(message_files(files))
    assert (
        sum(f["live_bytes"] for f in message_files(files).values())
        == queues["q"]["body_bytes"] + headers
    )


def test_a_shared_body_is_alive_until_the_last_queue_has_acked_it(used, tmp_path):
    with qindex.open(tmp_path / "s", **KNOBS) as store:
        for _ in range(10):
            store.publish(["a", "b"], b"x" * 975, create=True)
        store.queue("a").ack_many(store.queue("a").get_many(9))
    files, queues = used(tmp_path / "s")
    assert sum(f["live_bytes"] - 64 for f in message_files(files).values()) == 10 * 1000
    assert (queues["a"]["body_bytes"], queues["b"]["body_bytes"]) == (500, 5000)
    first = files["messages/0.qms"]
    assert held_by(first, "b")["req_ids"] == ["0", "1", "2", "3"]


def test_acking_what_keeps_a_file_frees_it(used, run, tmp_path):
    with qindex.open(tmp_path / "s", **KNOBS) as store:
        queue = store.queue("q")
        queue.publish_many([b"x" * 1000] * 60)
        # Less than half of the first file is garbage: the worker leaves it as it is.
        queue.ack_many([m for m in queue.get_many(60) if m.req_id >= 8])
        files, _ = used(tmp_path / "s")
        held = files["messages/0.qms"]
        assert held_by(held, "q")["messages"] == 8
        assert (held["live_bytes"], held["garbage_bytes"]) == (64 + 8 * 1025, 7 * 1025)
        out = run("du", tmp_path / "s", "--explain").out
        assert "To free messages/0.qms (15.4 kB), ack 8 messages: q: 8 messages (0, 1, " in out
        queue.ack_many(range(8))
        queue.flush()
        store.compact()
    assert "messages/0.qms" not in used(tmp_path / "s")[0]


def test_compaction_frees_about_what_was_told(used, run, tmp_path):
    with qindex.open(tmp_path / "s", **KNOBS) as store:
        queue = store.queue("q")
        queue.publish_many([b"%4d" % n * 250 for n in range(200)])
        # A third: enough for compact(), too little for the worker to do it at any moment.
        queue.ack_many([m for m in queue.get_many(200) if m.req_id % 3 == 0])
        queue.flush()
        files, before = used(tmp_path / "s")
        garbage = sum(
            f["garbage_bytes"] for f in message_files(files).values() if not f["is_newest"]
        )
        assert "Store.compact() would free about" in run("du", tmp_path / "s", "--explain").out
        freed = store.compact()
    assert garbage * 0.7 < freed < garbage * 1.3
    old = set(files)
    files, after = used(tmp_path / "s")
    compacted = [file for where, file in message_files(files).items() if where not in old]
    assert compacted
    assert after["q"]["body_bytes"] == before["q"]["body_bytes"]
    held = [held_by(f, "q")["messages"] for f in message_files(files).values() if f["queues"]]
    assert sum(held) == 133
    assert all(f["garbage_bytes"] < f["bytes"] / 5 for f in compacted)


def test_a_segment_that_a_few_messages_keep_is_explained(run, tmp_path):
    with qindex.open(tmp_path / "s", segment_entries=64, idle=3600) as store:
        queue = store.queue("q")
        queue.publish_many([b"x" * 100] * 200)
        queue.flush()
        queue.ack_many([m for m in queue.get_many(200) if m.req_id != 70])
        queue.flush()
        out = run("du", tmp_path / "s", "--explain").out
    assert "1.idx" in out
    assert "q: 1 message (70)" in out


def test_a_body_that_is_missing_is_counted(run, used, tmp_path):
    with qindex.open(tmp_path / "s", **KNOBS) as store:
        store.queue("q").publish_many([b"x" * 1000] * 60)
    (tmp_path / "s" / "messages" / "1.qms").unlink()
    _, queues = used(tmp_path / "s", code=1)
    missing = queues["q"]["missing"]
    assert 0 < missing < 60
    assert queues["q"]["body_bytes"] == (60 - missing) * 1025
    ran = run("du", tmp_path / "s")
    assert f"{missing} messages whose body is in no file" in ran.out
    assert "damaged place" in ran.err


def test_a_rabbitmq_node_is_explained(used, run, dead_node):
    files, queues = used(dead_node)
    with open_node(dead_node) as node:
        for vhost in node.vhosts:
            stored = {
                place: place.size + 25
                for queue in vhost.queues
                for part in queue.parts
                for *_, entry in vhost.live(part)
                if not entry[3]
                for place in [vhost.store.find(entry[0])]
            }
            live = sum(files[where]["live_bytes"] for where in vhost.store.files)
            assert live == sum(stored.values())
        counts = node.counts
    assert sum(queue["messages"] for queue in queues.values()) == counts.live
    out = run("du", dead_node, "--explain").out
    assert "vh-два/q.small: 5 messages" in out
    assert "RabbitMQ frees a message file when its last message is acked" in out
    for file in files.values():
        assert file["live_bytes"] <= file["bytes"]


def test_the_table_of_queues_ends_with_a_total(run, store_path):
    code, out, err = run("du", store_path)
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[:4]] == [
        ["queue", "messages"], ["mails", "235"], ["orders", "235"], ["all", "queues"],
    ]  # fmt: skip


def test_history_is_an_account_of_its_own(run, tmp_path):
    for keep in (0, 1 << 20):
        path = tmp_path / str(keep)
        with qindex.open(path, keep_history=keep) as store:
            store.queue("q").publish_many([b"x" * 1000] * 50)
            store.queue("q").flush()
    without, kept = run("du", tmp_path / "0").out, run("du", tmp_path / str(1 << 20)).out
    assert "history" not in without
    assert "kB of history, for qindex replay" in kept
    files = json.loads(run("du", tmp_path / str(1 << 20), "--json").out)["files"]
    (past,) = [file for file in files if file["kind"] == "history"]
    assert past["file"].endswith("/past.2.jif")
    assert past["bytes"] > 50_000
