"""Makes tests/compat/data/format_1.tar.xz: stores that qindex wrote when there was only format 1.

Run once, with a checkout of commit 49331c7 that was built (python setup.py build_ext --inplace):

    cd tests/compat; PYTHONPATH=that/checkout python make_format_1.py data/format_1.tar.xz

Beside each store lies NAME.json, the truth: what this program published and did not ack, not what
the engine reads. The stores: `clean` was closed, `unclean` was left by a process that was killed,
`index` is an index alone.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import qindex

FAR = 4102444800.0  # the year 2100: nothing expires and nothing is due before
OPTIONS = {
    "segment_entries": 16,
    "max_journal_entries": 60,
    "max_journal_bytes": 32768,
    "embed_below": 200,
    "message_file_size": 8192,
    "keep_history": 1 << 20,
    "sync": "never",
}


class Maker:
    """A store, and what is in it."""

    def __init__(self, path):
        self.store = qindex.open(path, **OPTIONS)
        self.truth = {}

    def queue(self, name, **rules):
        self.truth[name] = {}
        return self.store.queue(name, **rules)

    def publish(self, queue, body, **options):
        self.note(queue.name, queue.publish(body, **options), body, **options)

    def note(self, name, req_id, body, headers=None, **options):
        self.truth[name][str(req_id)] = {
            "sha256": hashlib.sha256(body).hexdigest(),
            "headers": headers or {},
            "persistent": options.get("persistent", True),
            "priority": options.get("priority", 0),
            "expires_at": options.get("expires_at"),
            "due": options.get("due"),
            "redelivered": options.get("redelivered", False),
            "dead": None,
        }

    def gone(self, queue, req_id):
        del self.truth[queue.name][str(req_id)]

    def change(self, queue, req_id, **what):
        self.truth[queue.name][str(req_id)].update(what)


def fill_plain(maker):
    """Many segments; deliveries, acks, nacks; small and stored bodies; headers; transients."""
    plain = maker.queue("plain")
    for number in range(150):
        body = b"%d" % number if number % 7 else b"%d " % number * 100
        headers = {"x-number": number, "name": f"n{number}"} if number % 5 == 0 else None
        maker.publish(plain, body, headers=headers, persistent=number % 11 != 3)
    for message in plain.get_many(40):
        if message.req_id % 3 == 0:
            plain.nack(message)
            maker.change(plain, message.req_id, redelivered=True)
        else:
            plain.ack(message)
            maker.gone(plain, message.req_id)
    maker.store.sync()


def fill_lanes(maker):
    """Priorities, delays, and what was given back with a delay or another time."""
    lanes = maker.queue("lanes")
    for number in range(60):
        maker.publish(lanes, b"p%d" % number, priority=number * 37 % 256)
    for number in range(30):
        maker.publish(lanes, b"d%d" % number, due=FAR + number * 997, priority=number % 4)
    for message in lanes.get_many(6):
        lanes.nack(message, due=FAR + 5)
        maker.change(lanes, message.req_id, redelivered=True, due=FAR + 5)


def fill_rules(maker):
    """Expiry and dead letters for three reasons."""
    rules = maker.queue("rules", dead_letters=True, max_deliveries=2)
    for number in range(25):
        maker.publish(rules, b"e%d" % number, expires_at=FAR + number)
    for message in rules.get_many(4):
        rules.nack(message, requeue=False)
        maker.change(rules, message.req_id, redelivered=True, dead="rejected")
    for _ in range(3):  # twice the same one; whoever would get it a third time gets the next one
        message = rules.get()
        rules.nack(message)
        maker.change(rules, message.req_id, redelivered=True)
    maker.change(rules, message.req_id - 1, dead="deliveries")
    req_id = rules.publish(b"late", ttl=0.001)
    maker.note("rules", req_id, b"late")
    expires = next(m.expires_at for m in rules.browse() if m.req_id == req_id)
    while maker.store._now_us() / 1e6 < expires:
        pass
    rules.expire()
    maker.change(rules, req_id, dead="expired", expires_at=expires)


def fill_shared(maker):
    """One stored body in three queues; leases; a purge; a name that needs escaping."""
    names = ["a", "b/ü\n", "c"]
    queues = [maker.queue(name) for name in names]
    for number in range(6):
        body = b"%d shared " % number * 60
        for name, req_id in zip(names, maker.store.publish(names, body), strict=True):
            maker.note(name, req_id, body)
    for message in queues[0].get_many(2, lease=3600):
        maker.change(queues[0], message.req_id, redelivered=True)
    queues[1].purge()
    maker.truth[names[1]].clear()
    maker.publish(queues[1], b"behind the purge")
    queues[2].ack(queues[2].get())
    maker.gone(queues[2], min(map(int, maker.truth["c"])))
    maker.queue("empty")


def fill(maker):
    for part in (fill_plain, fill_lanes, fill_rules, fill_shared):
        part(maker)
    maker.store.sync()
    tail = maker.queue("tail")
    for number in range(20):
        maker.publish(tail, b"tail %d" % number)
    for message in tail.get_many(3):
        maker.change(tail, message.req_id, redelivered=True)


def make(folder, name, closes):
    """In a child of its own, which ends in the middle unless it `closes`."""
    child = os.fork()
    if child == 0:
        maker = Maker(folder / name)
        fill(maker)
        if closes:
            maker.store.close()
        text = json.dumps({"clean": closes, "queues": maker.truth}, indent=0, sort_keys=True)
        (folder / f"{name}.json").write_text(text)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{name} was not made")


def make_index(folder):
    entries = {}
    with qindex.QueueIndex(folder / "index", segment_entries=16, max_journal_entries=60) as index:
        msg_ids = [hashlib.md5(b"%d" % i, usedforsecurity=False).digest() for i in range(100)]
        req_ids = list(index.publish_many(msg_ids, [10 * i for i in range(100)]))
        index.deliver(req_ids[:30])
        index.ack(req_ids[:20])
        for place in range(20, 100):
            entries[req_ids[place]] = [msg_ids[place].hex(), 10 * place, place < 30]
    (folder / "index.json").write_text(json.dumps(entries, indent=0))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, "clean", closes=True)
        make(folder, "unclean", closes=False)
        make_index(folder)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:xz", preset=9) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=without_owner)
    Path(sys.argv[1]).write_bytes(data.getvalue())
    print(f"{len(data.getvalue()):,} bytes")


def without_owner(info):
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
