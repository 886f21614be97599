"""The records of NSQ, gmq and beanstalkd about one message, in the order in which they stand.

A message of gmq, of beanstalkd and of nsqd has an id, which leads to all records about it; one that
somebody else put into a diskqueue has its place alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from qindex.brokers.beanstalkd import file as beanstalkd_file
from qindex.brokers.gmq import file as gmq_file
from qindex.brokers.nsq import file as nsq_file
from qindex.brokers.nsq.directory import split_nsqd
from qindex.brokers.reader import DeadMessage
from qindex.brokers.tree import Findings, Source
from qindex.look.sources import DeadSource
from qindex.look.text import size
from qindex.look.traces import Record, Trace
from qindex.moments import utc

_GMQ: Final = ("new", "reading", "delivered", "acked", "timed out")
_BEANSTALKD: Final = ("deleted", "ready", "reserved", "buried", "delayed")
_NSQD_BYTES: Final = 26
_NUMBER: Final = re.compile(r"([0-9]+)")


def trace(source: DeadSource, name: str, req_id: int) -> Iterator[Trace]:
    """One trace of a live message, by its place among those; none if there are not so many."""
    for number, message in enumerate(source.dead_messages(name)):
        if number == req_id:
            message_id = message.headers.get("id")
            records = list(_records(source, str(message_id))) if message_id is not None else []
            if not any(_is_at(record, message) for record in records):
                text = f"body of {size(len(message.body))}"
                records.append(Record(message.file, message.offset, "message", text))
            yield Trace(name, number, records, f"live, {_state(message)}")
            return


def trace_id(source: DeadSource, message_id: str) -> Iterator[Trace]:
    """A trace per live message of that id; else what records say of it."""
    known = False
    for name in source.names():
        for number, message in enumerate(source.dead_messages(name)):
            if str(message.headers.get("id")) == message_id:
                known = True
                yield from trace(source, name, number)
    if not known and (records := list(_records(source, message_id))):
        yield Trace("", None, records, f"not live any more: {records[-1].verb}")


def _is_at(record: Record, message: DeadMessage) -> bool:
    """A beanstalkd message tells where its body is, not where its record begins."""
    return record.file == message.file and record.offset <= message.offset


def _state(message: DeadMessage) -> str:
    return "unacked" if message.redelivered else "ready"


def _records(source: DeadSource, message_id: str) -> Iterator[Record]:
    read = {"nsq": _nsq, "gmq": _gmq, "beanstalkd": _beanstalkd}[source.format]
    pattern = {"nsq": ".dat", "gmq": ".queue", "beanstalkd": "binlog."}[source.format]
    for where in sorted(source.tree.files(), key=_in_order):
        file = source.tree.try_open(where) if pattern in where else None
        if file is not None:
            with file:
                yield from read(file, message_id)


def _in_order(where: str) -> list[str | int]:
    """binlog.10 comes behind binlog.9."""
    return [int(part) if part.isdecimal() else part for part in _NUMBER.split(where)]


def _nsq(file: Source, message_id: str) -> Iterator[Record]:
    if file.where.endswith(".meta.dat"):
        return
    for offset, length in nsq_file.read_records(file, Findings(), 0):
        headers, _ = split_nsqd(file.read(offset, min(length, _NSQD_BYTES)))
        if headers.get("id") == message_id:
            text = f"body of {size(length - _NSQD_BYTES)}, attempts {headers['attempts']}"
            put = f", put {utc(headers['timestamp_ns'] // 10**9)}"
            yield Record(file.where, offset - 4, "record", text + put)


def _gmq(file: Source, message_id: str) -> Iterator[Record]:
    for record in gmq_file.read_records(file, Findings()):
        if str(record.msg_id) == message_id:
            expires = f", times out {utc(record.expire)}" if record.expire else ""
            text = f"body of {size(record.size)}, retry {record.retry}{expires}"
            yield Record(file.where, record.offset, _GMQ[record.status], text)


def _beanstalkd(file: Source, message_id: str) -> Iterator[Record]:
    end = 4
    for record in beanstalkd_file.read_records(file, Findings()):
        if str(record.job_id) == message_id:
            put = f"put, body of {size(record.body_size)}, " if record.tube else ""
            due = f", due {utc(int(record.due_ns // 10**9))}" if record.due_ns else ""
            text = f"{put}priority {record.pri}{due}"
            yield Record(file.where, end, _BEANSTALKD[record.state], text)
        end = record.end
