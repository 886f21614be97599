"""qindex replay: a queue's journals, record by record, and its state behind any of them.

Step through what happened to a queue: every record of its journals in order,
and the state behind each. A step is one record, or one frame that holds none
(a manifest, session, mark, purge or close); step 0 is what the segments say
before. Of a store with keep_history this reaches back over the flushes; else to
the last one. Works on a store, also one that is in use, and on a dead RabbitMQ
node's queues of version 1; writes nothing.

  qindex replay DIR QUEUE                  every step, and how many are live then
  qindex replay DIR QUEUE --from 90 --to 99
  qindex replay DIR QUEUE --at 99          the state behind step 99; -1: the last
                                           but one
  qindex replay DIR QUEUE --until 7        behind the first record about ReqId 7
  qindex replay DIR QUEUE --until 7 --verb ack
  qindex replay DIR QUEUE --at 99 --messages   and which messages were live
  qindex replay DIR QUEUE --at 99 --into STORE these, published into a store: what
                                           a purge took, for example
  qindex replay DIR QUEUE --step           forwards and back by hand
  qindex replay DIR --verify               is what the engine serves what the
                                           records say?

--verify reads everything in two independent ways: the engine's recovery in C,
and a replay in Python of the documented format; each MANIFEST on the way is
compared with the state at that point, too. Of RabbitMQ it compares a replay
record by record with what recovery reads. It tells the first difference.

exit codes: 0 shown, or no difference; 1 damage, or a difference; 2 wrong usage,
no such directory, queue or record.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from qindex.cli.messages import positive
from qindex.cli.replay_show import MESSAGES_MAX, Shown, show_state, show_steps
from qindex.cli.screen import CommandError, Screen
from qindex.cli.sources import NodeSource, Source, StoreSource, open_source
from qindex.cli.text import count, printable
from qindex.formats.foreign import Findings, Tree
from qindex.formats.native_journals import CannotReplay
from qindex.formats.native_replay import NativeLog
from qindex.formats.rabbitmq_replay import RabbitMQLog
from qindex.formats.replay import Replay


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a store, or a dead RabbitMQ node's directory")
    parser.add_argument("queues", metavar="QUEUE", nargs="*", help="default: the only one, or all")
    parser.add_argument("--from", dest="first", type=int, metavar="N", help="steps from N on")
    parser.add_argument("--to", dest="last", type=int, metavar="N", help="steps up to N")
    parser.add_argument("--at", type=int, metavar="N", help="the state behind N records")
    parser.add_argument("--until", type=int, metavar="REQID", help="behind a record about it")
    parser.add_argument(
        "--verb", choices=("publish", "deliver", "ack"), help="with --until: what it has to say"
    )
    parser.add_argument("--messages", action="store_true", help="the live messages of that state")
    parser.add_argument(
        "-n", type=positive, metavar="N", help=f"so many messages (default: {MESSAGES_MAX})"
    )
    parser.add_argument("--into", metavar="STORE", help="put the live messages into a store")
    parser.add_argument("--priority", type=int, help="of a RabbitMQ priority queue: which part")
    parser.add_argument("--step", action="store_true", help="ask for each step")
    parser.add_argument("--verify", action="store_true", help="compare two ways to the state")
    parser.add_argument(
        "--json", action="store_true", help="print JSON; of steps one object a line"
    )
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    chosen = [name for name in ("at", "until") if getattr(options, name) is not None]
    if options.into is not None and not chosen:
        raise CommandError("--into needs --at or --until: which state is it to be?")
    if len(chosen) + options.step + options.verify > 1:
        raise CommandError("of --at, --until, --step and --verify choose one")
    if options.verify:
        from qindex.cli.replay_verify import verify

        return verify(options, screen)
    with open_source(options.dir, screen) as source:
        name = _one_queue(source, options.queues)
        try:
            with open_log(source, name, options.priority) as log:
                return _replay(options, screen, Shown(source, name, log))
        except CannotReplay as error:
            raise CommandError(f"{printable(name)} cannot be replayed: {error}", 1) from None


def _replay(options: argparse.Namespace, screen: Screen, shown: Shown) -> int:
    replay = Replay(shown.log)
    if options.step:
        from qindex.cli.replay_step import step

        step(screen, shown, replay)
    elif options.at is not None:
        _go_to(screen, replay, options.at)
        return _use_state(options, screen, shown, replay)
    elif options.until is not None:
        with screen.progress("replaying", "records") as progress:
            progress.at(0)
            found = replay.find(options.until, options.verb)
        if not found:
            what = f"no {options.verb} of" if options.verb else "no record about"
            where = "in the journals: qindex trace shows what segments say"
            raise CommandError(f"{what} ReqId {options.until} {where}")
        return _use_state(options, screen, shown, replay)
    else:
        show_steps(screen, shown, replay, options)
    return shown.tell_findings(screen)


def _use_state(options: argparse.Namespace, screen: Screen, shown: Shown, replay: Replay) -> int:
    code = 0
    if options.into is None:
        show_state(screen, shown, replay, options)
    else:
        from qindex.cli.replay_into import put_into

        code = put_into(screen, shown, replay, options.into)
    return max(code, shown.tell_findings(screen))


def _go_to(screen: Screen, replay: Replay, number: int) -> None:
    """A negative number counts from the end."""
    with screen.progress("replaying", "records") as progress:
        progress.at(0)
        if number < 0:
            replay.go_to_end()
            number += replay.number
        if number < 0 or not replay.go_to(number):
            replay.go_to_end()
            records = count(replay.number, "record")
            raise CommandError(f"there is no step {number}: the journals have {records}")


def _one_queue(source: Source, names: list[str]) -> str:
    known = source.names()
    if len(names) == 1 and names[0] in known:
        return names[0]
    if not names and len(known) == 1:
        return known[0]
    queues = f"{source.path!r} has {count(len(known), 'queue')}: see qindex ls"
    if len(names) != 1:
        raise CommandError(f"name one QUEUE; {queues}")
    raise CommandError(f"no queue {printable(names[0])!r}; {queues}")


@contextmanager
def open_log(
    source: Source, name: str, priority: int | None = None
) -> Iterator[NativeLog | RabbitMQLog]:
    """What happened to a queue. CommandError, or CannotReplay if its journals do not say."""
    if isinstance(source, StoreSource):
        tree = Tree(source.root, Findings())
        try:
            entries = source.store.stats().segment_entries
            yield NativeLog(tree, source.store.queue_directory(name), entries)
        finally:
            tree.close()
    elif isinstance(source, NodeSource):
        yield log_of_node(source, name, priority)
    else:
        raise CommandError(f"{source.format} directories keep no journal: qindex cat reads them")


def log_of_node(source: NodeSource, name: str, priority: int | None = None) -> RabbitMQLog:
    """One directory of a queue. CommandError if `priority` has to say which, or it has no log."""
    queue = source.queues[name]
    parts = [part for part in queue.parts if priority in (None, part.priority)]
    if len(parts) != 1:
        known = ", ".join(str(part.priority) for part in queue.parts)
        raise CommandError(f"{printable(name)} has the priorities {known}: choose --priority")
    if parts[0].index_version != 1:
        raise CommandError(
            f"{printable(name)} has an index of version 2, which keeps no journal: qindex"
            " trace and cat read it"
        )
    node = source.node
    slots = queue.vhost.segment_entry_count
    return RabbitMQLog(node.tree, parts[0].where, slots, Findings())
