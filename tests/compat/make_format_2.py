"""Makes tests/compat/data/format_2.tar.xz: stores of format 2, when that became a promise.

Run once, with the library of that commit:

    python tests/compat/make_format_2.py tests/compat/data/format_2.tar.xz

It is never made anew: each later version has to read these. Beside each store lies NAME.json, the
truth: what this program published, moved and did not ack, not what the engine reads. The stores:
`clean` was closed, `unclean` was left by a process that was killed; of `cut` a power cut took what
the journals got last, which the commit log has.
"""

import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import make_format_1
from make_format_1 import FAR, OPTIONS, fill_lanes, fill_plain, fill_rules, fill_shared

import qindex

CLOCK = 0.011  # so much earlier a message may say that it was published
MANY = [f"many {number}" for number in range(8)]


class Maker(make_format_1.Maker):
    """A store of format 2, and what is in it."""

    def __init__(self, path):
        self.store = qindex.open(path, format=2, **OPTIONS)
        self.truth = {}
        self.data = {"store": {}}
        self.settings = {}

    def publish(self, queue, body, **options):
        before = time.time() - CLOCK
        super().publish(queue, body, **options)
        last = list(self.truth[queue.name].values())[-1]
        last["published"] = [before, time.time()]

    def note(self, name, req_id, body, headers=None, **options):
        super().note(name, req_id, body, headers, **options)
        known = self.truth[name][str(req_id)]
        known |= {"published": [0, FAR], "lease": options.get("lease"), "deaths": []}

    def moved(self, message, source, to, req_id, **changes):
        """What is known of it goes along; a consumer may have had it."""
        known = self.truth[source].pop(str(message.req_id))
        self.truth[to][str(req_id)] = known | {"dead": None, "due": None} | changes


def fill_leases(maker):
    leases = maker.queue("leases", lease=40)
    maker.settings["leases"] = {"lease": 40.0}
    for number in range(12):
        maker.publish(leases, b"l%d" % number, lease=30 + number if number % 2 else None)
    for message in leases.get_many(3):  # they are given back, and nobody has looked at them
        leases.nack(message, count=False)
        maker.change(leases, message.req_id, redelivered=True)


def fill_data(maker):
    """Keys of the store and of a queue; one is removed again, one changes."""
    store, queue = maker.store, maker.queue("data")
    store.data[b"color"] = b"red"
    store.data[b"gone"] = b"soon"
    store.data[b"color"] = b"green"
    del store.data[b"gone"]
    queue.data[b"position"] = b"17"
    maker.data["store"]["color"] = "green"
    maker.data["data"] = {"position": "17"}


def fill_moves(maker):
    """Moves of embedded and stored bodies; a rejected message that moves to a queue of the dead."""
    grave = maker.queue("grave")
    work, done = maker.queue("work", dead_letters="grave"), maker.queue("done")
    maker.settings["work"] = {"dead_letters": "grave"}
    for number in range(10):
        maker.publish(work, b"w%d" % number * (90 if number % 3 == 0 else 1), headers={"n": number})
    for message in work.get_many(4):
        (new,) = maker.store.move([message], to="done")
        maker.moved(message, "work", "done", new, redelivered=True)
    rejected = work.get()
    work.nack(rejected, requeue=False)
    deadline = time.monotonic() + 30
    while len(grave) == 0:
        if time.monotonic() > deadline:
            raise SystemExit("the dead letter did not move")
        time.sleep(0.01)
    buried = grave.peek()
    deaths = [["work", "rejected", 1]]
    maker.moved(rejected, "work", "grave", buried.req_id, redelivered=True, deaths=deaths)
    done.sync()


def fill_transactions(maker):
    """Publishes, an ack and a key together; one of nothing but a move."""
    orders, stock = maker.queue("orders"), maker.queue("stock")
    for number in range(6):
        maker.publish(orders, b"order %d" % number)
    taken = orders.get()
    with maker.store.transaction() as t:
        t.publish("stock", b"from a transaction", headers={"of": taken.req_id}, priority=3)
        t.ack(taken)
        t.change({b"orders": b"1"})
    maker.gone(orders, taken.req_id)
    (there,) = stock.browse()
    maker.note("stock", there.req_id, b"from a transaction", {"of": taken.req_id}, priority=3)
    maker.data["store"]["orders"] = "1"


def fill_many(maker):
    """So many queues are dirty at once that they share a commit; one was deleted."""
    queues = [maker.queue(name) for name in MANY]
    maker.store.queue("deleted").publish(b"nobody sees it")
    for number, queue in enumerate(queues * 4):
        maker.publish(queue, b"m%d" % number)
    maker.store.sync()
    maker.store.delete_queue("deleted")
    maker.store.sync()


def fill_rewritten(maker):
    """Segments in files, one of them written anew as most of it was acked."""
    queue = maker.queue("rewritten")
    for number in range(40):
        maker.publish(queue, b"r%d" % number, priority=number % 3)
    queue.flush()
    for message in queue.get_many(40):
        if int(message.body[1:]) % 7:
            queue.ack(message)
            maker.gone(queue, message.req_id)
        else:
            maker.change(queue, message.req_id, redelivered=True)
    maker.store.compact()


def fill(maker):
    for part in (fill_plain, fill_lanes, fill_rules, fill_shared):
        part(maker)
    for part in (fill_leases, fill_data, fill_moves, fill_transactions, fill_many, fill_rewritten):
        part(maker)
    maker.store.sync()


def fill_last(maker):
    for number, name in enumerate(MANY):
        maker.publish(maker.store.queue(name), b"last %d" % number)
    maker.store.sync()


def take_last_bytes(path, before):
    """Of the journals that got them last: they are as they were before."""
    cut = 0
    for name in before:
        if (path / name).read_bytes() != before[name]:
            (path / name).write_bytes(before[name])
            cut += 1
    if cut < len(MANY):
        raise SystemExit(f"only {cut} journals had got something")


def play(folder, name):
    maker = Maker(folder / name)
    fill(maker)
    path = folder / name
    before = {file: file.read_bytes() for file in path.glob("queues/*/journal.*")}
    before = {str(file.relative_to(path)): data for file, data in before.items()}
    fill_last(maker)
    if name == "clean":
        maker.store.close()
    told = {
        "clean": name == "clean",
        "queues": maker.truth,
        "data": maker.data,
        "settings": maker.settings,
    }
    (folder / f"{name}.json").write_text(json.dumps(told, indent=0, sort_keys=True))
    if name == "cut":
        copy = folder / "copy"
        shutil.copytree(path, copy)
        take_last_bytes(copy, before)
    os._exit(0)


def make(folder, name):
    """In a child of its own, which ends in the middle unless it closes the store."""
    child = os.fork()
    if child == 0:
        play(folder, name)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{name} was not made")
    if name == "cut":
        shutil.rmtree(folder / "cut")
        (folder / "copy").rename(folder / "cut")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("clean", "unclean", "cut"):
            make(folder, kind)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:xz", preset=9) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=make_format_1.without_owner)
    Path(sys.argv[1]).write_bytes(data.getvalue())
    print(f"{len(data.getvalue()):,} bytes")


if __name__ == "__main__":
    main()
