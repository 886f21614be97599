"""A binlog directory of beanstalkd: the jobs that were not deleted, tube by tube.

::

    binlog.7  binlog.8 ...     see beanstalkd_file; a job's whole record, then its changes of state

A job is what its last record says. It is live unless it was deleted; jobs in the hands of a worker
are ready again, as beanstalkd has it. A tube becomes up to three queues: TUBE has the ready jobs by
priority and age, TUBE.delayed those that are not due, TUBE.buried those that wait for a kick. That
a job was reserved is not always written, so each may have been delivered: `redelivered`. Headers:
id (decimal), pri, ttr and created (seconds), and how often it was reserved, released and so on;
delayed ones also due (unix seconds).

Memory holds a little about each live job, since any later file may delete it: about 300 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from qindex.formats.beanstalkd_file import (
    BURIED,
    DELAYED,
    DELETED,
    READY,
    Record,
    read_records,
)
from qindex.formats.foreign import Findings, Tree
from qindex.formats.reader import Account, Message, Node, names_in

_NAME: Final = re.compile(r"binlog\.([1-9][0-9]{0,8})")
_COUNTS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")
_SUFFIXES: Final = {READY: "", DELAYED: ".delayed", BURIED: ".buried"}
BODY_BYTES_MAX: Final = 128 << 20
_NANO: Final = 10**9


class Job(NamedTuple):
    """A live job: its last state, and the file that has its body."""

    file: str
    body_offset: int
    body_size: int
    last: Record
    tube: bytes


@dataclass(slots=True)
class Queue:
    """The jobs of one tube that are in one state."""

    name: str
    tree: Tree
    log: Findings
    jobs: list[Job] = field(default_factory=list)
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
                text = f"job {job.last.job_id}: {job.body_size} bytes cannot be read"
                self.log.damage("message lost", job.file, job.body_offset, text)
                continue
            body = source.read(job.body_offset, job.body_size)
            yield Message(body, _headers(job.last), True, job.file, job.body_offset)

    def add(self, job: Job) -> None:
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
        headers["due"] = record.deadline_ns / _NANO
    return headers


def is_here(folder: Path) -> bool:
    return any(_NAME.fullmatch(name) for name in names_in(folder))


def open_at(folder: Path) -> Node:
    """Reads all records of all files once, without bodies."""
    log = Findings()
    tree = Tree(folder, log)
    try:
        numbers = sorted(int(found[1]) for name in tree.files() if (found := _NAME.fullmatch(name)))
        jobs: dict[int, Job] = {}
        deleted: dict[bytes, int] = {}
        bodiless: set[int] = set()
        for number in numbers:
            _read_file(tree, f"binlog.{number}", log, jobs, deleted, bodiless)
        if bodiless:
            text = f"{len(bodiless)} jobs, {min(bodiless)} first, whose whole record is in no file"
            log.damage("body missing", f"binlog.{numbers[0]}", 0, text)
        queues = _queues(tree, log, jobs, deleted)
    except BaseException:
        tree.close()
        raise
    return Node("beanstalkd binlog", folder.name, tree, log, list(queues))


def _read_file(
    tree: Tree,
    name: str,
    log: Findings,
    jobs: dict[int, Job],
    deleted: dict[bytes, int],
    bodiless: set[int],
) -> None:
    source = tree.try_open(name)
    if source is None:
        return
    with source:
        for record in read_records(source, log):
            job = jobs.get(record.job_id)
            if record.state == DELETED:
                bodiless.discard(record.job_id)
                tube = record.tube if job is None else job.tube
                if jobs.pop(record.job_id, None) is not None or tube:
                    deleted[tube] = deleted.get(tube, 0) + 1
            elif record.tube:
                bodiless.discard(record.job_id)
                place = (name, record.body_offset, record.body_size)
                jobs[record.job_id] = Job(*place, record, record.tube)
            elif job is not None:
                jobs[record.job_id] = job._replace(last=record)
            else:
                bodiless.add(record.job_id)


def _queues(
    tree: Tree, log: Findings, jobs: dict[int, Job], deleted: dict[bytes, int]
) -> Iterator[Queue]:
    queues: dict[tuple[bytes, int], Queue] = {}

    def queue(tube: bytes, state: int) -> Queue:
        found = queues.get((tube, state))
        if found is None:
            account = Account(gone={"deleted": 0}, marks={"redelivered": 0})
            name = tube.decode("ascii") + _SUFFIXES[state]
            found = queues[tube, state] = Queue(name, tree, log, account=account)
        return found

    for tube, count in deleted.items():
        account = queue(tube, READY).account
        account.found += count
        account.gone["deleted"] += count
    for job in jobs.values():
        state = job.last.state
        queue(job.tube, state if state in (DELAYED, BURIED) else READY).add(job)
    for (_, state), each in sorted(queues.items()):
        if state == DELAYED:
            each.jobs.sort(key=lambda job: (job.last.deadline_ns, job.last.job_id))
        elif state == READY:
            each.jobs.sort(key=lambda job: (job.last.pri, job.last.job_id))
        yield each
