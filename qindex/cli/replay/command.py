"""qindex replay: a queue's journals, record by record, and its state behind any of them.

Step through what happened to a queue: every record of its journals in order,
and the state behind each. A step is one record, or one frame that holds none
(a manifest, session, mark, purge or close); step 0 is what the segments say
before. Of a store with keep_history this reaches back over the flushes; else to
the last one. Works on a store, also one that is in use, and on a dead RabbitMQ
node's classic queues of version 1; writes nothing. Of a quorum queue a step is
an entry of its Raft log and N its index; REQID is the index of a message's
entry. --at shows what was delivered to whom, and --messages what the node would
give back if it had ended behind that entry. --step goes back by playing the log
from its beginning.

  qindex replay DIR QUEUE                  every step, and how many are live then
  qindex replay DIR QUEUE --from 90 --to 99
  qindex replay DIR QUEUE --at 99          the state behind step 99; -1: the last
                                           but one
  qindex replay DIR QUEUE --until 7        behind the first record about ReqId 7
  qindex replay DIR QUEUE --until 7 --verb ack
  qindex replay DIR QUEUE --at 99 --messages   and which messages were live
  qindex replay DIR QUEUE --at 99 --out STORE these, published into a store: what
                                           a purge took, for example
  qindex replay DIR QUEUE --step           forwards and back by hand
  qindex replay DIR --verify               is what the engine serves what the
                                           records say?

--out of a store makes all of these messages ready, with their priorities,
expiries and delivery counts; delays, dead letters, leases of their own,
published_at and deaths are not carried over (salvage carries the first three).
A new STORE has the format of DIR.

--verify reads everything in two independent ways: the engine's recovery in C,
and a replay in Python of the documented format; each MANIFEST on the way is
compared with the state at that point, too. Of RabbitMQ it compares a replay
record by record with what recovery reads, and of quorum queues the scan of
entries in C with a decoder in Python. It tells the first difference.

exit codes: 0 shown, or no difference; 1 damage (of a store also elsewhere: a
queue without a name or a folder), or a difference; 2 wrong usage, no such
directory, queue or record, or the disk is full (--out); 130 interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext

from qindex.brokers.rabbitmq.log import RabbitMQLog
from qindex.brokers.rabbitmq.quorum.queues import QuorumQueue
from qindex.brokers.tree import Findings, Tree
from qindex.cli.arguments import add_directory, add_output, add_target
from qindex.cli.replay.show import MESSAGES_MAX, Shown, show_state, show_steps
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import positive
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import NodeSource, Source, StoreSource, open_source
from qindex.look.stores import as_named
from qindex.look.telling import tell_unlisted
from qindex.look.text import count, printable, read_id
from qindex.native.frames import CannotReplay
from qindex.native.log import NativeLog
from qindex.native.replay import Replay


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "a store, or a dead RabbitMQ node's directory")
    add_members(parser)
    add_at_time(parser)
    parser.add_argument(
        "queues",
        metavar="QUEUE",
        nargs="*",
        help="the queue to replay (default: the only one; with --verify all)",
    )
    parser.add_argument(
        "--from", dest="first", type=int, metavar="N", help="show the steps from step N on"
    )
    parser.add_argument(
        "--to", dest="last", type=int, metavar="N", help="show the steps up to step N"
    )
    parser.add_argument("--at", type=int, metavar="N", help="show the state behind step N")
    parser.add_argument(
        "--until", type=read_id, metavar="REQID", help="show the state behind a record about it"
    )
    parser.add_argument(
        "--verb",
        choices=("publish", "deliver", "ack"),
        help="with --until: the kind of that record",
    )
    parser.add_argument(
        "--messages", action="store_true", help="show the live messages of that state, too"
    )
    parser.add_argument(
        "-n", type=positive, metavar="N", help=f"so many messages (default: {MESSAGES_MAX})"
    )
    add_target(
        parser,
        "--into",
        metavar="STORE",
        help="publish the live messages of that state into a store",
    )
    parser.add_argument(
        "--priority", type=int, metavar="N", help="replay only this priority of a RabbitMQ queue"
    )
    parser.add_argument(
        "--step", action="store_true", help="go forwards and back by hand, step by step"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare the engine's state with a replay of the records",
    )
    add_output(parser, "JSON; of steps one object a line")


def run(options: argparse.Namespace, screen: Screen) -> int:
    chosen = [name for name in ("at", "until") if getattr(options, name) is not None]
    if options.out is not None and not chosen:
        raise CommandError("--out needs --at or --until: which state is it to be?")
    if len(chosen) + options.step + options.verify > 1:
        raise CommandError("of --at, --until, --step and --verify choose one")
    _refuse_ignored(options, bool(chosen))
    if options.verify:
        from qindex.cli.replay.verify import verify

        return verify(options, screen)
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        name = _one_queue(source, options.queues)
        missing = tell_unlisted(screen, source.unlisted())
        queue = source.replicated.get(name) if isinstance(source, NodeSource) else None
        if isinstance(queue, QuorumQueue):
            from qindex.cli.replay.quorum import replay_quorum

            return replay_quorum(options, screen, source, name, queue)
        if options.at_time is not None:
            raise CommandError("--at-time is for quorum queues: other logs keep no such state")
        try:
            with open_log(source, name, options.priority) as log:
                return max(missing, _replay(options, screen, Shown(source, name, log)))
        except CannotReplay as error:
            raise CommandError(f"{printable(name)} cannot be replayed: {error}", 1) from None


def _refuse_ignored(options: argparse.Namespace, has_state: bool) -> None:
    """CommandError for options that would say nothing in this combination."""
    steps = not (has_state or options.step or options.verify)
    given = {
        "--from and --to are for the list of steps": (
            not steps and (options.first is not None or options.last is not None)
        ),
        "--verb is for --until": options.verb is not None and options.until is None,
        "--messages is for --at or --until": options.messages and not has_state,
        "-n is for --messages": options.n is not None and not options.messages,
        "--messages shows a state: leave it out with --out": (
            options.messages and options.out is not None
        ),
        "--at-time is for --messages and --out": (
            options.at_time is not None and not options.messages and options.out is None
        ),
        "--step is for people: leave out --json": options.step and options.json,
        "--verify reads all parts: leave out --priority": (
            options.verify and options.priority is not None
        ),
    }
    for text, is_wrong in given.items():
        if is_wrong:
            raise CommandError(text)


def _replay(options: argparse.Namespace, screen: Screen, shown: Shown) -> int:
    replay = Replay(shown.log)
    if options.step:
        from qindex.cli.replay.step import JournalSteps, step

        step(screen, JournalSteps(shown, replay))
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
    if options.out is None:
        show_state(screen, shown, replay, options)
    else:
        from qindex.cli.replay.into import put_into

        code = put_into(screen, shown, replay, options.out, as_json=options.json)
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
    if len(names) == 1 and (named := as_named(names[0], known)) in known:
        return named
    if not names and len(known) == 1:
        return known[0]
    queues = f"{source.path!r} has {count(len(known), 'queue')}: see qindex ls"
    if len(names) != 1:
        raise CommandError(f"name one QUEUE; {queues}")
    raise CommandError(f"no queue {printable(names[0])!r}; {queues}")


@contextmanager
def open_log(
    source: Source, name: str, priority: int | None = None, tree: Tree | None = None
) -> Iterator[NativeLog | RabbitMQLog]:
    """What happened to a queue. CommandError, or CannotReplay if its journals do not say.

    `tree`: the store's, by which its other queues were read; its commit logs are read once then.
    """
    if isinstance(source, StoreSource):
        if priority is not None:
            raise CommandError("--priority is for RabbitMQ: a store has one log for a queue")
        with closing(Tree(source.root, Findings())) if tree is None else nullcontext(tree) as own:
            entries = source.store.stats().segment_entries
            yield NativeLog(own, source.store.queue_directory(name), entries)
    elif isinstance(source, NodeSource):
        yield log_of_node(source, name, priority)
    else:
        raise CommandError(f"{source.format} directories keep no journal: qindex cat reads them")


def log_of_node(source: NodeSource, name: str, priority: int | None = None) -> RabbitMQLog:
    """One directory of a queue. CommandError if `priority` has to say which, or it has no log."""
    if name in source.replicated:
        raise CommandError(f"{printable(name)} keeps no journal: try qindex cat")
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
