"""A queue of one page that keeps what it promises, and the ways to break it, one class each."""

import json
import zlib

from qindex.testing import Delivery, MemoryAdapter, Promise


class Toy(MemoryAdapter):
    """A log of JSON lines with checksums. Right, and slow."""

    promise = Promise(redelivered=True, barrier=True, refuses=True)

    def open(self, directory):
        self.waiting, self.out, self.had, self.next_id = {}, {}, set(), 1
        clean = True
        for line in self.records():
            record = self.parse(line)
            clean = record[0] == "close"
            self.play(*record)
        if not clean:
            self.had |= set(self.waiting)
        self.write(
            "open", self.next_id + 1000, sorted(self.had)
        )  # ids below may be given before the next sync
        self.limit = self.next_id + 1000
        self.files.sync("log")
        self.files.sync_names()

    def records(self, name="log"):
        """The good lines of the log; what follows them is cut."""
        end = 0
        for line in self.files.read(name).splitlines(keepends=True):
            if self.parse(line) is None:
                break
            end += len(line)
            yield line
        self.files.resize(name, end)

    def parse(self, line):
        crc, space, text = line.partition(b" ")
        good = space and line.endswith(b"\n") and crc == b"%08x" % zlib.crc32(text)
        return json.loads(text) if good else None

    def play(self, kind, *rest):
        if kind == "publish":
            for id_, body in rest[0]:
                self.waiting[id_] = body.encode("latin-1")
                self.next_id = max(self.next_id, id_ + 1)
        elif kind == "ack":
            self.waiting.pop(rest[0], None)
        elif kind == "get":
            self.had.add(rest[0])
        elif kind == "open":
            self.next_id, self.had = rest[0], set(rest[1])

    def write(self, *record):
        text = json.dumps(record).encode() + b"\n"
        self.files.append("log", b"%08x " % zlib.crc32(text) + text)

    def new_id(self):
        self.next_id += 1
        if self.next_id == self.limit:
            raise RuntimeError("a toy gives a thousand ids a life")
        return self.next_id - 1

    def publish(self, body):
        return self.publish_many([body])[0]

    def publish_many(self, bodies):
        batch = [(self.new_id(), body) for body in bodies]
        self.write("publish", [(id_, body.decode("latin-1")) for id_, body in batch])
        self.waiting.update(batch)
        return [id_ for id_, _ in batch]

    def choose(self):
        return min(self.waiting, default=None)

    def get(self):
        id_ = self.choose()
        if id_ is None:
            return None
        self.write("get", id_)
        body = self.out[id_] = self.waiting.pop(id_)
        again = id_ in self.had
        self.had.add(id_)
        return Delivery(body, token=id_, id=id_, redelivered=again)

    def ack(self, id_):
        if id_ not in self.out:
            raise KeyError(id_)
        self.write("ack", id_)
        del self.out[id_]

    def nack(self, id_):
        self.waiting[id_] = self.out.pop(id_)

    def count(self):
        return len(self.waiting) + len(self.out)

    def sync(self):
        self.files.sync("log")

    def close(self):
        self.write("close")
        self.sync()


class ForgetsTheLastPublish(Toy):
    """It keeps one record in the process, to write two at a time."""

    held = ()

    def write(self, *record):
        if self.held:
            super().write(*self.held)
        self.held = ()
        if record[0] == "publish":
            self.held = record
        else:
            super().write(*record)


class ForgetsAcks(Toy):
    def ack(self, id_):
        del self.out[id_]


class SyncsNothing(Toy):
    def sync(self):
        pass


class SyncsNoName(Toy):
    def open(self, directory):
        self.files.sync_names = lambda: None
        super().open(directory)


class Invents(Toy):
    def open(self, directory):
        super().open(directory)
        if self.waiting:
            self.waiting[self.new_id()] = b"hello"


class TrustsTornRecords(Toy):
    """Lengths without checksums: what was not written reads as zeros."""

    def open(self, directory):
        super().open(directory)
        self.waiting = {
            id_: body[:50] + bytes(len(body) - 50) if len(body) > 50 and id_ in self.had else body
            for id_, body in self.waiting.items()
        }


class Doubles(Toy):
    """When nothing is waiting, it delivers once more what is delivered."""

    def get(self):
        self.waiting |= {} if self.waiting else dict(list(self.out.items())[:1])
        return super().get()


class TakesTheNewest(Toy):
    def choose(self):
        return max(self.waiting, default=None)


class UsesTwoFiles(Toy):
    """Every second publish goes to a file of its own, which may be on the disk before the other."""

    odd = False

    def write(self, *record):
        self.odd = not self.odd and record[0] == "publish"
        text = json.dumps(record).encode() + b"\n"
        line = b"%08x " % zlib.crc32(text) + text
        self.files.append("side" if self.odd else "log", line)

    def records(self):
        yield from super().records("side")
        yield from super().records("log")

    def sync(self):
        super().sync()
        if self.files.read("side"):
            self.files.sync("side")
            self.files.sync_names()


class WritesBatchesOneByOne(Toy):
    def publish_many(self, bodies):
        return [Toy.publish_many(self, [body])[0] for body in bodies]


class CountsIdsFromWhatIsThere(Toy):
    def open(self, directory):
        super().open(directory)
        self.next_id = max(self.waiting, default=0) + 1


class HidesRedelivery(Toy):
    def get(self):
        got = super().get()
        return got and Delivery(got.body, got.token, got.id, redelivered=False)


class CountsOnlyTheWaiting(Toy):
    def count(self):
        return len(self.waiting)


class TakesAnyAck(Toy):
    def ack(self, id_):
        if id_ in self.out:
            super().ack(id_)


class FailsOnBigBodies(Toy):
    def publish(self, body):
        if len(body) > 4096:
            raise ValueError("too big")
        return super().publish(body)


class TrustsItsLog(Toy):
    """What cannot be read is somebody else's problem."""

    def parse(self, line):
        record = super().parse(line)
        if record is None:
            raise ValueError("what is this?")
        return record


# The kind of violation that each must be reported for. (Without its name the whole log is gone,
# and with it the ids that were given.)
BROKEN = {
    ForgetsTheLastPublish: "lost",
    ForgetsAcks: "back from the dead",
    SyncsNothing: "lost",
    SyncsNoName: "reused id",
    Invents: "phantom",
    TrustsTornRecords: "wrong bytes",
    Doubles: "doubled",
    TakesTheNewest: "out of order",
    UsesTwoFiles: "gap",
    WritesBatchesOneByOne: "torn batch",
    CountsIdsFromWhatIsThere: "reused id",
    HidesRedelivery: "not marked",
    CountsOnlyTheWaiting: "wrong count",
    TakesAnyAck: "not refused",
    FailsOnBigBodies: "failed",
    TrustsItsLog: "unreadable",
}
