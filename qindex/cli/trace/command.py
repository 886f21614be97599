"""qindex trace: show every record about one message.

Show every record about one message, in order: the file, the offset in it, what
the record says, and in the end the state that follows from all of them. Works
on a store, also one that is in use, and on a dead broker's directory. WHAT is
one of

  QUEUE:REQID   a message's place (RabbitMQ: its sequence number in the queue;
                NSQ, gmq, beanstalkd, quorum queues and streams: the place that
                qindex peek shows)
  QUEUE@INDEX   a quorum queue's message by the Raft index of its entry
  32 hex digits the MsgId by which the index refers to a stored body
  other text    the AMQP property message_id of live messages; of nsqd, gmq and
                beanstalkd the message's id, whether it is live or not

Segments come first, then journals, then message files with all copies of the
body. A MsgId is searched for in all queues: that reads the whole index.

exit codes: 0 shown; 1 damage: its body is missing or damaged, records are lost
in the files where it should be, or something that was searched cannot be read;
or there are more matches than are shown; 2 nothing is known of it, or no such
directory.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from qindex.cli.arguments import add_directory, add_output
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import Choice, properties_of
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import Source, chosen, open_source, total_of
from qindex.look.stores import as_named
from qindex.look.text import count, printable, written_id
from qindex.look.traces import Trace

COLUMNS: Final = ["<file", ">offset", "<record", "<what it says"]
MATCHES_MAX: Final = 100
MODULES: Final = {"qindex": "qindex.look.trace_store", "rabbitmq": "qindex.cli.trace.rabbitmq"}
OTHERS: Final = "qindex.cli.trace.other_brokers"
_HEX: Final = re.compile(r"[0-9a-fA-F]{32}")
_ENTRY: Final = re.compile(r"(.*)@([0-9]{1,19})", re.DOTALL)
_PLACE: Final = re.compile(r"(.*):([0-9]{1,19})", re.DOTALL)


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    parser.add_argument("what", metavar="WHAT", help="QUEUE:REQID, MSGID or a message_id")
    add_output(parser, "JSON: a list of traces")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        traces: list[Trace] = []
        left_out = False
        for trace in _traces(screen, source, options.what):
            if len(traces) == MATCHES_MAX:
                screen.error(f"more than {MATCHES_MAX} messages: the rest is not shown")
                left_out = True
                break
            traces.append(trace)
        damage = source.damaged
    if not traces and damage:
        raise CommandError(
            f"nothing about {options.what!r} in what can be read of {options.dir!r}, but"
            f" {count(damage, 'damaged place')} cannot: it may be there",
            1,
        )
    if not traces:
        raise CommandError(f"nothing about {options.what!r} in {options.dir!r}")
    if options.json:
        screen.json([_as_json(trace) for trace in traces])
    else:
        for number, trace in enumerate(traces):
            if number:
                screen.line()
            _show(screen, trace)
    return 1 if left_out or damage or any(trace.damaged for trace in traces) else 0


def _traces(screen: Screen, source: Source, what: str) -> Iterator[Trace]:
    module = MODULES.get(source.format, OTHERS)
    of_kind: Any = import_module(module)
    place = _PLACE.fullmatch(what)
    names = source.names()
    entry = _ENTRY.fullmatch(what)
    if entry and (queue := as_named(entry[1], names)) in names and what not in names:
        from qindex.cli.trace.quorum import trace_entry

        yield from trace_entry(source, queue, int(entry[2]))
        return
    if place and (queue := as_named(place[1], names)) in names:
        yield from of_kind.trace(source, queue, int(place[2]))
        return
    for text in source.unlisted():  # all queues are searched
        source.tell(text)
    if module == OTHERS:
        with screen.progress(f"looking for {printable(what)}") as progress:
            progress.at(0)
            yield from of_kind.trace_id(source, what)
    elif _HEX.fullmatch(what):
        with screen.progress(f"looking for {what}") as progress:
            progress.at(0)
            yield from of_kind.trace_msg_id(source, bytes.fromhex(what))
    else:
        for name, req_id in _with_message_id(screen, source, what):
            yield from of_kind.trace(source, name, req_id)


def _with_message_id(screen: Screen, source: Source, what: str) -> Iterator[tuple[str, int]]:
    with screen.progress(f"looking for message_id {printable(what)}", "messages") as progress:
        total = total_of(source, Choice())
        for number, message in enumerate(chosen(source, Choice())):
            progress.at(number, total)
            if properties_of(message.headers).get("message_id") == what:
                yield message.queue, message.req_id


def _as_json(trace: Trace) -> dict[str, Any]:
    told = dataclasses.asdict(trace)
    told["is_damaged"], told["summary"] = told.pop("damaged"), told.pop("state")
    told["req_id"] = written_id(trace.req_id)
    return told


def _below(folder: str, file: str) -> str:
    return file.removeprefix(f"{folder}/") if folder else file


def _show(screen: Screen, trace: Trace) -> None:
    title = f"message {trace.req_id} of {printable(trace.queue)}"
    if trace.priority is not None:
        title += f", priority {trace.priority}"
    screen.heading("a body that no index names" if trace.req_id is None else title)
    if trace.records:
        folder = ""
        if screen.is_terminal:  # so that the files' names have room
            folder = os.path.commonpath([r.file.rpartition("/")[0] for r in trace.records])
            if folder:
                screen.line(f"  in {folder}")
        rows = [[_below(folder, r.file), f"{r.offset:,}", r.verb, r.text] for r in trace.records]
        screen.table(COLUMNS, rows)
    state = screen.paint(trace.state, "red" if trace.damaged else "green")
    screen.line(f"  so it is: {state}")
