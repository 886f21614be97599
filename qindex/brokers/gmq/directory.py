"""A data directory of gmq v2: its queues, and the delayed messages of its topics.

::

    TOPIC_BINDKEY.queue   records, see file.py; dead letters are in TOPIC_BINDKEY_dead.queue
    TOPIC.meta            JSON: how far each queue was written; only after an orderly stop
    gmq.db                bbolt: a bucket for each topic, due:64 id:64 -> JSON

What a message is worth is told by its status alone, since gmq forgets every queue when it was not
stopped in order. New ones are live; so are those that were delivered and not acked, as redelivered.
One that timed out was written again behind the others: it counts there. Where gmq died, or forgot,
before it did so, it is live where it stands.

Delayed messages come as a queue of their own, TOPIC.delayed, in the order in which they are due, so
that nobody gets them too early. Headers: id (decimal) and retry; delayed ones also due (unix
seconds), delay and bind_keys. A message that was on its way from there to a queue may be in both.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, Final

from qindex.brokers.gmq.bbolt import Bolt, Bucket, Pair
from qindex.brokers.gmq.file import ACKED, NEW, TIMED_OUT, Record, read_records
from qindex.brokers.reader import Account, Message, Node, names_in
from qindex.brokers.tree import BODY_BYTES_MAX, Findings, Source, Tree
from qindex.names import written

_DELAYED: Final = "gmq.db"
_QUEUE_NAME: Final = re.compile(r"(.+_.*)\.queue", re.DOTALL)
_META_NAME: Final = re.compile(r".+\.meta", re.DOTALL)
_META_BYTES_MAX: Final = 1 << 20
_KEY: Final = Struct(">QQ")
_WAITING_MAX: Final = 100_000


@dataclass(slots=True)
class Queue:
    """One queue file."""

    name: str
    tree: Tree
    log: Findings
    written: int | None = None  # bytes, as gmq's metadata have it
    not_repeated: dict[int, int] = field(default_factory=dict)
    """Timed out and not written again: id, offset. At most 100,000 are looked after."""
    account: Account = field(default_factory=Account)
    unreadable: int = 0

    group: str = ""
    vanishes: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.queue"

    def count(self) -> None:
        """Reads all records once."""
        source = self.tree.try_open(self.file)
        if source is None:
            return
        end = 0
        with source:
            for record in read_records(source, self.log):
                end = record.end
                self.not_repeated.pop(record.msg_id, None)
                if record.status == TIMED_OUT and len(self.not_repeated) < _WAITING_MAX:
                    self.not_repeated[record.msg_id] = record.offset
        if self.written is not None and end < self.written:
            text = f"the last message ends here, gmq had written up to {self.written}"
            self.log.damage("cut", self.file, end, text)
        elif self.written is not None and end > self.written:
            text = "gmq had not written what follows when it was stopped in order"
            self.log.note("other life", self.file, self.written, text)

    def forget_repeated(self, dead_letters: Queue) -> None:
        """What timed out for good was written again in another queue."""
        source = self.tree.try_open(dead_letters.file)
        if source is not None and self.not_repeated:
            with source:
                for record in read_records(source, self.log):
                    self.not_repeated.pop(record.msg_id, None)

    def make_account(self) -> None:
        for _ in self._live():
            pass

    def messages(self) -> Iterator[Message]:
        """The live messages, in the order in which they were written."""
        self.unreadable = 0
        for source, record in self._live():
            if record.size > BODY_BYTES_MAX:
                self.unreadable += 1
                text = f"a message of {record.size} bytes is more than {BODY_BYTES_MAX}"
                self.log.damage("message lost", self.file, record.offset, text)
                continue
            body = source.read(record.body_offset, record.size)
            headers = {"id": str(record.msg_id), "retry": record.retry}
            yield Message(body, headers, _was_delivered(record), self.file, record.offset)

    def _live(self) -> Iterator[tuple[Source, Record]]:
        """Makes the account, which is complete when all are had."""
        account = Account(gone={"acked": 0, "timed out": 0}, marks={"redelivered": 0})
        source = self.tree.try_open(self.file)
        if source is not None:
            with source:
                for record in read_records(source, self.log):
                    account.found += 1
                    if record.status == ACKED:
                        account.gone["acked"] += 1
                    elif (
                        record.status == TIMED_OUT
                        and self.not_repeated.get(record.msg_id) != record.offset
                    ):
                        account.gone["timed out"] += 1
                    else:
                        account.live += 1
                        account.live_body_bytes += record.size
                        account.marks["redelivered"] += _was_delivered(record)
                        yield source, record
        self.account = account


def _was_delivered(record: Record) -> bool:
    return record.status != NEW or record.retry > 0


@dataclass(slots=True)
class DelayedQueue:
    """The delayed messages of one topic."""

    name: str
    tree: Tree
    log: Findings
    bolt: Bolt
    bucket: Bucket
    cost: int = 0
    """Bytes of pages that were read to count it; reading it again may take no more."""
    account: Account = field(default_factory=Account)

    group: str = ""
    vanishes: bool = False
    unreadable: int = 0

    def count(self) -> None:
        before = self.bolt.bytes_left
        for _ in self._live():
            pass
        self.cost = before - self.bolt.bytes_left

    def messages(self) -> Iterator[Message]:
        """The messages, the one that is due first first."""
        self.bolt.bytes_left = self.cost
        yield from self._live()

    def _live(self) -> Iterator[Message]:
        """Makes the account, which is complete when all are had."""
        account = Account(lost={"damaged": 0}, marks={"delayed": 0, "redelivered": 0})
        for pair in self.bolt.pairs(self.bucket):
            account.found += 1
            message = None if pair.is_bucket else self._message(pair)
            if message is None:
                account.lost["damaged"] += 1
                continue
            account.live += 1
            account.live_body_bytes += len(message.body)
            account.marks["delayed"] += 1
            account.marks["redelivered"] += message.redelivered
            yield message
        self.account = account

    def _message(self, pair: Pair) -> Message | None:
        try:
            headers, body = decode_delayed(pair.value)
        except ValueError as error:
            text = f"a delayed message makes no sense: {error}"
            self.log.damage("message lost", _DELAYED, pair.offset, text)
            return None
        if pair.key != _KEY.pack(headers["due"], int(headers["id"])):
            text = f"message {headers['id']}: the key is not the one of its value"
            self.log.damage("mismatch", _DELAYED, pair.offset, text)
        return Message(body, headers, headers["retry"] > 0, _DELAYED, pair.offset)


def decode_delayed(value: bytes) -> tuple[dict[str, Any], bytes]:
    """Headers and body of a delayed message. ValueError if it is none."""
    if len(value) > BODY_BYTES_MAX:
        raise ValueError(f"{len(value)} bytes are more than {BODY_BYTES_MAX}")
    found = _json(value)
    message = found.get("msg") if isinstance(found, dict) else None
    if not isinstance(message, dict):
        raise ValueError("there is no msg in it")
    numbers = {}
    for name in ("id", "retry", "delay", "expire"):
        number = message.get(name)
        if type(number) is not int or not 0 <= number < 1 << 64:
            raise ValueError(f"{name} is no number")
        numbers[name] = number
    body, bind_keys = message.get("body"), found.get("bind_key")
    if not isinstance(bind_keys, list) or not all(isinstance(key, str) for key in bind_keys):
        raise ValueError("bind_key is no list of names")
    if numbers["expire"] >= 1 << 63 or numbers["delay"] >= 1 << 32 or numbers["retry"] >= 1 << 16:
        raise ValueError("a number is too big")
    try:
        decoded = binascii.a2b_base64(body or "", strict_mode=True)
    except (TypeError, ValueError):
        raise ValueError("the body is not base64") from None
    bind_keys = [written(key) for key in bind_keys]
    headers = {
        "id": str(numbers["id"]),
        "retry": numbers["retry"],
        "due": numbers["expire"],
        "delay": numbers["delay"],
        "bind_keys": bind_keys,
    }
    return headers, decoded


def _json(raw: bytes) -> Any:
    """json.loads() that raises nothing but ValueError."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def is_here(folder: Path) -> bool:
    return any(name == _DELAYED or _QUEUE_NAME.fullmatch(name) for name in names_in(folder))


def open_at(folder: Path) -> Node:
    """Finds the queues by the names of their files and reads all records once, without bodies."""
    log = Findings()
    tree = Tree(folder, log)
    node = Node("gmq", folder.name, tree, log)
    try:
        files = tree.files()
        written = _read_metas(tree, files, log)
        queues = {}
        for file in files:
            found = _QUEUE_NAME.fullmatch(file)
            if found is None:
                continue
            name = found[1]
            if name.endswith(".temp") and f"{name[:-5]}.queue" in files:
                log.note("rewrite", file, 0, "a rewrite was cut short; the queue itself is whole")
                continue
            queues[name] = Queue(name, tree, log, written.get(name))
        for name, queue in queues.items():
            queue.count()
            if dead_letters := queues.get(f"{name}_dead"):
                queue.forget_repeated(dead_letters)
            queue.make_account()
        node.queues.extend(queues.values())
        node.queues.extend(_delayed_queues(tree, log))
    except BaseException:
        tree.close()
        raise
    return node


def _read_metas(tree: Tree, files: list[str], log: Findings) -> dict[str, int]:
    """How far each queue was written, by its name, when its topic was stopped in order."""
    written = {}
    for file in filter(_META_NAME.fullmatch, files):
        try:
            meta = _json(tree.read(file, _META_BYTES_MAX) or b"")
            for kind in ("queues", "dead_queues"):
                for queue in meta[kind] or ():
                    if not isinstance(queue["queue_name"], str):
                        raise TypeError
                    written[queue["queue_name"]] = int(queue["write_offset"])
        except (KeyError, TypeError, ValueError, OverflowError):
            log.damage("metadata", file, 0, "no sense in them; all that counts is in the queues")
    return written


def _delayed_queues(tree: Tree, log: Findings) -> Iterator[DelayedQueue]:
    source = tree.kept_open(_DELAYED)
    if source is None:
        return
    bolt = Bolt(source, log)
    for bucket in bolt.buckets():
        topic = bucket.name.decode("utf-8", "surrogateescape")
        queue = DelayedQueue(f"{topic}.delayed", tree, log, bolt, bucket)
        queue.count()
        if queue.account.found:
            yield queue
