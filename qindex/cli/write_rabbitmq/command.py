"""qindex write-rabbitmq: write messages as the files of a RabbitMQ 3.10 node.

Write the chosen messages of a store, or of a dead broker's directory, as the
queue directories and the message store of one virtual host (index version 1),
which a RabbitMQ 3.10 node opens and serves: the same messages, in the same
order, with the same properties (tried with 3.10.8). No broker need run
meanwhile, and no message passes an exchange. NEW appears when all of it is
durable; DIR is never changed.

  --vhost V           the virtual host that NEW is for (default: /)
  --strip-prefix P    take the prefix off the queues' names: 'shop/' of a queue
                      that was recovered from the virtual host shop
  --max-priority Q=N  the node's queue Q has x-max-priority N: its messages go to
                      a directory for each priority, the only place where the
                      node looks; of a dead RabbitMQ node this is known

To serve NEW:

  1. The node must know the queues: it deletes directories of queues that it does
     not know. On a new node: rabbitmqctl import_definitions NEW/definitions.json,
     which has the arguments of queues, exchanges, bindings and policies, too, if
     DIR is a dead RabbitMQ node
  2. Stop the node. In its data directory move msg_stores/vhosts/VH away, which
     holds whatever the node itself has in this virtual host. VH is the directory
     of that name in NEW; the account tells it.
  3. Copy NEW/msg_stores/vhosts/VH in its place; give it to the node's user.
  4. Start the node. It reads the directory as after a crash: every message says
     redelivered.

Messages that were not published by way of RabbitMQ get the default exchange, the
queue's name as routing key, and their headers as AMQP headers. All are written
as persistent, since a node drops the others when it starts; delivery_mode stays
as it is. What has expired is left out, and so are dead letters (--state says
what is taken); what expires later keeps its time; what is delayed is not delayed
there. A body that was in several queues is written for each.

Of a dead RabbitMQ node, what has expired in a queue with a dead-letter exchange
is written, too: the node passes it on when it starts, by the exchanges, bindings
and policies in definitions.json. What it would drop on that way is written
without an expiry, and a limit of a queue's length by which it would drop messages
is left out of definitions.json; both are printed.

exit codes: 0 all is written; 1 something in DIR is damaged: what could be read
is written; 2 refused, or the disk is full: the text says why; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from qindex.apart import refuse_inside
from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.brokers.rabbitmq.message import Content, text
from qindex.brokers.rabbitmq.write import VhostWriter, new_msg_id
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.write_rabbitmq.deaths import Plan
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import FOR_CONSUMERS, Found, add_choice, choice_of
from qindex.look.screen import CommandError, Progress, Screen
from qindex.look.sources import (
    NodeSource,
    Source,
    chosen_names,
    open_source,
    total_of,
)
from qindex.look.stores import stripped
from qindex.look.telling import tell_damage
from qindex.look.text import count, duration, printable, rate, size
from qindex.names import as_bytes, is_unicode
from qindex.private import FOLDER_MODE, open_private

COLUMNS: Final = ["<queue", ">messages", ">bytes", ">embedded", ">stored"]
NAME_BYTES_MAX: Final = 255
PRIORITY_MAX: Final = 255


@dataclass(slots=True)
class Written:
    """`name` is the queue's in the node; messages = embedded + stored."""

    queue: str
    name: str
    messages: int = 0
    body_bytes: int = 0
    stored: int = 0
    priority: int = 0  # the highest that was met in what is written as a plain queue
    damaged: int = 0  # messages left out: what came with them is no property list

    @property
    def embedded(self) -> int:
        return self.messages - self.stored


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_choice(parser, states=FOR_CONSUMERS)
    parser.add_argument("--out", metavar="NEW", required=True, help="the directory to make")
    parser.add_argument("--vhost", metavar="V", default="/", help="the virtual host (default: /)")
    parser.add_argument(
        "--strip-prefix", metavar="P", default="", help="prefix that is taken off the queues' names"
    )
    parser.add_argument(
        "--max-priority",
        type=_priority,
        action="append",
        default=[],
        metavar="Q=N",
        help="of a priority queue, by its name in the node; may be given again",
    )
    add_output(parser, "JSON: the account")


def _priority(text: str) -> tuple[str, int]:
    name, sign, number = text.rpartition("=")
    if not sign or not name or not number.isdecimal() or not 1 <= int(number) <= PRIORITY_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not QUEUE=N with N from 1 to {PRIORITY_MAX}")
    return name, int(number)


def run(options: argparse.Namespace, screen: Screen) -> int:
    choice = choice_of(options)
    if not is_unicode(options.vhost) or set(options.vhost) & set("\r\n\0"):
        raise CommandError(f"RabbitMQ has no virtual host {printable(options.vhost)!r}")
    started = time.monotonic()
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        out = Path(options.out).absolute()
        refuse_inside(out, source.root)
        names = _names(source, chosen_names(source, choice), options.strip_prefix)
        arguments = _arguments(source, names)
        for name, priority in options.max_priority:
            if name not in arguments:
                raise CommandError(f"--max-priority: no queue {printable(name)!r} is written")
            arguments[name]["x-max-priority"] = priority
        with _new_directory(out) as part:
            writer = VhostWriter(part, options.vhost.encode())
            plan = Plan(source, names)
            job = _Job(writer, names, arguments, screen)
            with screen.progress("writing", "messages") as bar:
                job.write(plan.messages(source, choice), bar, total_of(source, choice))
            limited = plan.limited_by_policy(arguments)
            definitions = {
                **_definitions(options.vhost, arguments),
                **plan.definitions(options.vhost),
            }
            with open_private(part / "definitions.json", "w") as file:
                file.write(json.dumps(definitions, indent=2) + "\n")
            writer.close()
        _show(
            screen,
            options,
            (job, plan),
            out / writer.where.relative_to(part),
            time.monotonic() - started,
        )
        for name in limited:
            screen.error(
                f"a policy limits {printable(name)}: the node drops"
                f" {count(plan.too_long[name], 'message')} when it starts, unless you raise it"
            )
        _tell_priorities(screen, job.done.values())
        damaged = bool(limited) or any(written.damaged for written in job.done.values())
        return max(tell_damage(screen, source), 1 if damaged else 0)


def _names(source: Source, queues: list[str], prefix: str) -> dict[str, str]:
    """What each queue is called in the node. CommandError for what cannot be declared there."""
    names: dict[str, str] = {}
    for queue, name in stripped(queues, prefix).items():
        shown = printable(name)
        if not name or len(as_bytes(name)) > NAME_BYTES_MAX or set(name) & set("\r\n\0"):
            raise CommandError(
                f"RabbitMQ has no queue {shown!r}: a name has 1 to {NAME_BYTES_MAX} bytes and no"
                " line breaks; name the QUEUEs to write"
            )
        if not is_unicode(name):
            raise CommandError(
                f"{shown!r} is not UTF-8, so definitions.json cannot declare it: name the QUEUEs to"
                " write"
            )
        names[queue] = name
    return names


def _arguments(source: Source, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What each queue was declared with, by its name in the node, as far as DIR tells."""
    dead = source.queues if isinstance(source, NodeSource) else {}
    return {
        name: {
            key: value
            for key, value in (dead[queue].arguments if queue in dead else {}).items()
            if isinstance(value, (bool, int, str))
        }
        for queue, name in names.items()
    }


@contextmanager
def _new_directory(out: Path) -> Iterator[Path]:
    """A directory that gets its name when all is in it; removed if that does not come about."""
    part = out.with_name(out.name + ".part")
    if out.exists():
        raise CommandError(f"{str(out)!r} is there already: name a new directory")
    try:
        part.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        raise CommandError(
            f"{str(part)!r} is there already: another command writes it, or one was killed; delete"
            " it then"
        ) from None
    try:
        yield part
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


class _Job:
    """From messages to a virtual host's files, with an account by queue."""

    def __init__(
        self,
        writer: VhostWriter,
        names: dict[str, str],
        arguments: dict[str, dict[str, Any]],
        screen: Screen,
    ) -> None:
        self.done = {queue: Written(queue, name) for queue, name in names.items()}
        self._writer = writer
        self._arguments = arguments
        self._screen = screen

    def write(self, messages: Iterator[Found], bar: Progress, total: int) -> None:
        for number, found in enumerate(messages):
            written = self.done[found.queue]
            try:
                content, wanted = _content(found, written.name)
            except (TypeError, ValueError) as error:
                written.damaged += 1
                where = f"message {found.req_id} of {printable(found.queue)}"
                self._screen.error(f"{where}: damaged properties: {error}")
                continue
            most = self._arguments[written.name].get("x-max-priority")
            level = min(wanted, most, PRIORITY_MAX) if isinstance(most, int) else None
            if level is None:
                written.priority = max(written.priority, wanted)
            queue = self._writer.queue(as_bytes(written.name), level)
            written.stored += queue.publish(content, found.expiry_us)
            written.messages += 1
            written.body_bytes += len(found.body)
            bar.at(number, total)


def _content(found: Found, name: str) -> tuple[Content, int]:
    """The message as RabbitMQ would have it, and its priority. ValueError: damaged properties."""
    headers = found.headers
    properties = headers.get("properties")
    keys = headers.get("routing_keys")
    exchange = headers.get("exchange", "")
    priority = found.priority or 0
    if isinstance(properties, bytes):
        told = decode_properties(properties).priority  # the node's consumers go by this one
        priority = priority if told is None else told
    else:
        own = Properties(
            headers=headers or None,
            delivery_mode=2 if found.persistent else 1,
            priority=found.priority,
        )
        properties = encode_properties(own)
        keys, exchange = None, ""
    content = Content(
        exchange=_text(exchange),
        routing_keys=[_text(key) for key in keys] if isinstance(keys, list) else [name],
        properties=properties,
        body=found.body,
        msg_id=new_msg_id(as_bytes(name), found.part, found.req_id),
        persistent=True,
    )
    return content, priority


def _text(value: Any) -> str:
    return text(value) if isinstance(value, bytes) else str(value)


def _as_json(written: Written) -> dict[str, Any]:
    told = asdict(written)
    told["target_queue"] = told.pop("name")
    return {**told, "embedded": written.embedded}


def _definitions(vhost: str, arguments: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What `rabbitmqctl import_definitions` takes."""
    queues = [
        {
            "name": name,
            "vhost": vhost,
            "durable": True,
            "auto_delete": False,
            "arguments": arguments[name],
        }
        for name in arguments
    ]
    return {"vhosts": [{"name": vhost}], "queues": queues}


def _tell_priorities(screen: Screen, done: Iterable[Written]) -> None:
    for written in done:
        if written.priority:
            screen.error(
                f"{printable(written.name)} has messages with priorities up to {written.priority}:"
                " if the node's queue has x-max-priority, write it with --max-priority, else the"
                " node does not find them"
            )


def _show(
    screen: Screen,
    options: argparse.Namespace,
    did: tuple[_Job, Plan],
    where: Path,
    seconds: float,
) -> None:
    job, plan = did
    done = list(job.done.values())
    messages = sum(written.messages for written in done)
    if options.json:
        screen.json(
            {
                "path": options.dir,
                "out": options.out,
                "vhost": options.vhost,
                "vhost_directory": str(where),
                "messages": messages,
                "queues": [_as_json(written) for written in done],
                "dead_letters": plan.counts,
                "seconds": round(seconds, 6),
            }
        )
        return
    rows = [
        [
            printable(written.name),
            f"{written.messages:,}",
            size(written.body_bytes),
            f"{written.embedded:,}" if written.embedded else "-",
            f"{written.stored:,}" if written.stored else "-",
        ]
        for written in done
    ]
    if rows:
        screen.table(COLUMNS, rows)
        screen.line()
    told = screen.paint(f"{count(messages, 'message')}", "bold")
    speed = f"{duration(seconds)} ({rate(messages, seconds)} messages/s)"
    screen.line(f"{told} of {count(len(done), 'queue')} written in {speed}, synced")
    screen.line(f"virtual host {printable(options.vhost)}: {where}")
    if plan.passed_on:
        screen.line(
            f"{count(plan.passed_on, 'message')} died before now: the node passes them on to"
            " dead-letter exchanges when it starts, which definitions.json has"
        )
    for reason, number in plan.kept.items():
        screen.line(printable(f"{count(number, 'message')} kept in the queue: {reason}"))
    for name in plan.too_long:
        screen.line(f"{printable(name)} has more than its limit, which definitions.json leaves out")
    screen.line("How a node takes it: qindex write-rabbitmq --help")
