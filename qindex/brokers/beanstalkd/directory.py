"""A binlog directory of beanstalkd: the jobs that were not deleted, tube by tube.

::

    binlog.7  binlog.8 ...     see file.py; a job's whole record, then its changes of state

A job is what its last record says. It is live unless it was deleted; jobs in the hands of a worker
are ready again, as beanstalkd has it. A tube becomes up to three queues: TUBE has the ready jobs by
priority and age, TUBE.delayed those that are not due, TUBE.buried those that wait for a kick. That
a job was reserved is not always written, so each may have been delivered: `redelivered`. Headers:
id (decimal), pri, ttr and created (seconds), and how often it was reserved, released and so on;
delayed ones also due (unix seconds).

Memory holds a little about each live job, since any later file may delete it: about 500 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from qindex.brokers.beanstalkd.file import (
    BURIED,
    DELAYED,
    DELETED,
    READY,
    RESERVED,
    Record,
    read_records,
)
from qindex.brokers.reader import Account, DeadQueue, Message, Node, names_in
from qindex.brokers.tree import BODY_BYTES_MAX, Findings, Tree
from qindex.words import many

_NAME: Final = re.compile(r"binlog\.([1-9][0-9]{0,8})")
_COUNTS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")
_SUFFIXES: Final = {READY: "", DELAYED: ".delayed", BURIED: ".buried"}
_NANO: Final = 10**9


@dataclass(slots=True)
class Queue:
    """The jobs of one tube that are in one state."""

    name: str
    tree: Tree
    log: Findings
    jobs: list[Record] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    unreadable: int = 0

    group: str = ""
    vanishes: bool = False

    def messages(self) -> Iterator[Message]:
        """Ready ones as beanstalkd would give them; delayed ones by their time."""
        self.unreadable = 0
        for job in self.jobs:
            source = self.tree.kept_open(job.file)
            if source is None or job.body_size > BODY_BYTES_MAX:
                self.unreadable += 1
                text = f"job {job.job_id}: {many(job.body_size, 'byte')} cannot be read"
                self.log.damage("message lost", job.file, job.body_offset, text)
                continue
            body = source.read(job.body_offset, job.body_size)
            yield Message(body, _headers(job), True, job.file, job.body_offset)

    def add(self, job: Record) -> None:
        self.jobs.append(job)
        self.account.found += 1
        self.account.live += 1
        self.account.live_body_bytes += job.body_size
        self.account.marks["redelivered"] += 1


def _headers(record: Record) -> dict[str, Any]:
    headers: dict[str, Any] = {
        "id": str(record.job_id),
        "pri": record.pri,
        "ttr": record.ttr_ns / _NANO,
        "created": record.created_ns / _NANO,
        **dict(zip(_COUNTS, record.counts, strict=True)),
    }
    if record.state == DELAYED:
        headers["due"] = record.due_ns / _NANO
    return headers


@dataclass(slots=True)
class _Jobs:
    """What the records so far say."""

    live: dict[int, Record] = field(default_factory=dict)
    deleted: dict[bytes, int] = field(default_factory=dict)  # how many, by tube
    bodiless: set[int] = field(default_factory=set)
    """Jobs that changed and whose whole record was nowhere. Fine, if they are deleted later."""
    _alike: dict[Any, Any] = field(default_factory=dict)
    """What many jobs have in common is in memory once."""

    def apply(self, record: Record) -> None:
        job_id = record.job_id
        known = self.live.pop(job_id, None)
        if known is not None and not record.tube:  # the body and the tube stay what they were
            record = record._replace(
                file=known.file,
                tube=known.tube,
                body_offset=known.body_offset,
                body_size=known.body_size,
            )
        self.bodiless.discard(job_id)
        if record.state == DELETED:
            if record.tube:
                self.deleted[record.tube] = self.deleted.get(record.tube, 0) + 1
        elif record.tube:
            tube = self._alike.setdefault(record.tube, record.tube)
            counts = self._alike.setdefault(record.counts, record.counts)
            self.live[job_id] = record._replace(tube=tube, counts=counts)
        else:
            self.bodiless.add(job_id)


def is_here(folder: Path) -> bool:
    return any(_NAME.fullmatch(name) for name in names_in(folder))


def open_at(folder: Path) -> Node:
    """Reads all records of all files once, without bodies."""
    log = Findings()
    tree = Tree(folder, log)
    jobs = _Jobs()
    try:
        numbers = sorted(int(found[1]) for name in tree.files() if (found := _NAME.fullmatch(name)))
        for number in numbers:
            source = tree.try_open(f"binlog.{number}")
            if source is not None:
                with source:
                    for record in read_records(source, log):
                        jobs.apply(record)
    except BaseException:
        tree.close()
        raise
    if jobs.bodiless:
        text = f"{len(jobs.bodiless)} jobs whose whole record is in no file,"
        text += f" {min(jobs.bodiless)} first"
        log.damage("body missing", f"binlog.{numbers[0]}", 0, text)
    return Node("beanstalkd", folder.name, tree, log, _queues(tree, log, jobs))


def _queues(tree: Tree, log: Findings, jobs: _Jobs) -> list[DeadQueue]:
    queues: dict[tuple[bytes, int], Queue] = {}

    def queue(tube: bytes, state: int) -> Queue:
        found = queues.get((tube, state))
        if found is None:
            account = Account(gone={"deleted": 0}, marks={"redelivered": 0})
            name = tube.decode("ascii") + _SUFFIXES[state]
            found = queues[tube, state] = Queue(name, tree, log, account=account)
        return found

    for tube, count in jobs.deleted.items():
        account = queue(tube, READY).account
        account.found += count
        account.gone["deleted"] += count
    for job in jobs.live.values():
        queue(job.tube, READY if job.state == RESERVED else job.state).add(job)
    for (_, state), each in queues.items():
        if state == DELAYED:
            each.jobs.sort(key=lambda job: (job.due_ns, job.job_id))
        elif state == READY:
            each.jobs.sort(key=lambda job: (job.pri, job.job_id))
    return [queues[key] for key in sorted(queues)]
