"""qindex diff: show in what two stores or directories differ.

Compare the live messages of A and B: stores, copies of stores, directories of
dead brokers, in any combination (such a directory and the store that it was
recovered into). Shows what is only in A, only in B, and what differs.

  --by id        the same queue and ReqId is the same message; it may differ in
                 body, headers or state. Of a quorum queue the index of its
                 entry counts as ReqId, of a stream the offset; of a cluster's
                 members they are the same. The default for a store and its copy,
                 and for two directories of one other format in which most
                 messages of a sample that have one number have one body, too:
                 copies of one node, or members of one cluster
  --by content   the same queue, body, headers and properties is the same
                 message, as often as it occurs; it may differ in state. What
                 is left is paired by its message_id, if that is the only one.
                 The default for two formats, for two nodes, and for two stores
                 that are not copies of each other (a salvaged one, for example):
                 each store and each node gives numbers of its own

The output says which of the two was used, and why.

State is ready, unacked or expired, with the expiry and persistence. By content
"redelivered" stands for unacked, as copies keep that and not who had it. "order"
counts the places where messages that both have do not follow each other alike.

A store may be in use: what changes while it is read may show as a difference.
Needs disk for about 150 B per message that differs in the system's temporary
directory (TMPDIR), little memory.

exit codes: 0 no difference; 1 differences; 2 not to be compared (the text says
why); 3 no difference, but something is damaged and was not compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from itertools import count as count_from
from typing import Any, Final

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.cli.arguments import STORE_OR_BROKER, add_progress
from qindex.cli.diff.match import Matcher
from qindex.cli.diff.sample import numbers_agree
from qindex.cli.diff.table import Difference, QueueDiff, Table
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import Choice, Found, add_choice, choice_of, positive
from qindex.look.screen import CommandError, Progress, Quiet, Screen
from qindex.look.sources import Source, StoreSource, open_source, total_of
from qindex.look.stores import QueueGone, as_named
from qindex.look.telling import tell_damage
from qindex.look.text import count, printable, size
from qindex.native.messages import store_identity

LINES: Final = 20
COLUMNS: Final = [
    "<queue", ">alike", ">only in A", ">only in B", ">in state", ">in body", ">order",
]  # fmt: skip
SIGNS: Final = {"only in A": "-", "only in B": "+", "differs": "~"}
STYLES: Final = {"only in A": "red", "only in B": "green", "differs": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    for name in ("A", "B"):
        parser.add_argument(name.lower(), metavar=name, help=STORE_OR_BROKER)
    add_members(parser, "--member", "A's RabbitMQ")
    add_members(parser, "--member-b", "B's RabbitMQ")
    add_at_time(parser)
    add_choice(parser)
    parser.add_argument(
        "--by", choices=["id", "content"], help="compare messages by ReqId or by content"
    )
    parser.add_argument(
        "--ignore-state",
        action="store_true",
        help="do not compare states: ready, unacked, expired",
    )
    parser.add_argument(
        "--lines", type=positive, metavar="N", help=f"differences shown (default: {LINES})"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON: the counts per queue")
    how.add_argument("--jsonl", action="store_true", help="all differences, one object a line")
    add_progress(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    choice = choice_of(options)
    if options.lines is not None and (options.json or options.jsonl):
        raise CommandError("--lines is for people: --jsonl prints all differences, --json counts")
    with (
        open_source(options.a, screen, options.member, options.at_time) as a,
        open_source(options.b, screen, options.member_b, options.at_time) as b,
        Table() as table,
    ):
        by, why = _what_is_the_same(options.by, a, b)
        matcher = Matcher(table, by_id=by == "id", ignore_state=options.ignore_state)
        _read(screen, table, matcher, (a, b), _parts(choice, by))
        table.match(by_id=by == "id")
        queues = table.queues()
        if options.json:
            screen.json(_as_json(a, b, (by, why), queues))
        elif options.jsonl:
            for difference in table.differences():
                screen.json(difference.as_json(), indent=None)
        else:
            _show(screen, table, queues, (a, b), (by, why), options.lines or LINES)
        damaged = [tell_damage(screen, source) for source in (a, b)]
        if any(queue.differs for queue in queues):
            return 1
        return 3 if any(damaged) else 0


def _what_is_the_same(asked: str | None, a: Source, b: Source) -> tuple[str, str]:
    """("id" or "content", why it is that one). A store's ReqIds mean nothing in another store."""
    if asked is not None:
        return asked, "as --by says"
    if a.format != b.format:
        return "content", "A and B have different formats: their ReqIds have nothing in common"
    if isinstance(a, StoreSource) and isinstance(b, StoreSource):
        if _identity(a) != _identity(b):
            return "content", "A and B are two stores: each gave ReqIds of its own"
        return "id", "A and B are copies"
    if numbers_agree(a, b):
        return "id", "messages of one number are the same in A and B"
    return "content", "A and B number their messages differently"


def _identity(source: StoreSource) -> bytes:
    """The same in a store and its copies, another in every other store."""
    tree = Tree(source.root, Findings())
    try:
        return store_identity(tree)
    finally:
        tree.close()


def _read_part(source: Source, name: str, choice: Choice, *, last: bool) -> Iterator[Found]:
    """One of _parts(). The first reads the queue once more: only if it has dead letters, and the
    damage that it meets is reported by the last."""
    if last:
        return source.messages(name, choice)
    with suppress(qindex.StoreCorrupt, qindex.QueueMissing):
        if (
            isinstance(source, StoreSource)
            and source.store.queue(name, create=False).stats().dead > 0
        ):
            return StoreSource(source.store, Quiet()).messages(name, choice)
    return iter(())


def _parts(choice: Choice, by: str) -> list[Choice]:
    """What is read of a queue, in this order.

    By content, dead letters come first: they are in nobody's order, and a salvage publishes them
    first.
    """
    if by == "id" or "dead" not in choice.states or len(choice.states) == 1:
        return [choice]
    return [
        replace(choice, states=frozenset({"dead"})),
        replace(choice, states=choice.states - {"dead"}),
    ]


def _read(
    screen: Screen,
    table: Table,
    matcher: Matcher,
    sides: tuple[Source, Source],
    parts: list[Choice],
) -> None:
    """Both sides, queue by queue."""
    choice = parts[-1]
    names = [_there(choice, source, sides) for source in sides]
    for side, there in enumerate(names):
        table.add_queues(side, there)
    total = sum(
        total_of(s, replace(choice, queues=n)) for s, n in zip(sides, names, strict=True) if n
    )
    with screen.progress("comparing", "messages") as progress:
        counter = count_from(1)
        for name in sorted({*names[0], *names[1]}):
            a, b = (
                _messages(source, name, parts, counter, progress, total)
                if name in there
                else iter(())
                for source, there in zip(sides, names, strict=True)
            )
            matcher.queue(name, a, b)


def _there(choice: Choice, source: Source, sides: tuple[Source, Source]) -> tuple[str, ...]:
    """A queue that was asked for may be on one side only; on neither it is an error."""
    names = source.names()
    if not choice.queues:
        return tuple(names)
    everywhere = {name for side in sides for name in side.names()}
    queues = [as_named(name, everywhere) for name in choice.queues]
    for name in queues:
        if name not in everywhere:
            next(source.messages(name, choice), None)  # raises, with advice
    return tuple(dict.fromkeys(name for name in queues if name in names))


def _messages(
    source: Source,
    name: str,
    parts: list[Choice],
    counter: Iterator[int],
    progress: Progress,
    total: int,
) -> Iterator[Found]:
    """Of one queue; that it goes while it is read is no error."""
    with suppress(QueueGone):
        found = chain.from_iterable(
            _read_part(source, name, choice, last=choice is parts[-1]) for choice in parts
        )
        for message in islice(found, parts[-1].limit):
            progress.at(next(counter), total)
            if message.entry is not None:  # which stays the same while others are settled
                message.req_id = message.entry
            yield message


def _show(
    screen: Screen,
    table: Table,
    queues: list[QueueDiff],
    sides: tuple[Source, Source],
    how: tuple[str, str],
    lines: int,
) -> None:
    a, b = sides
    by, why = how
    screen.heading(f"A: {printable(a.path)}  B: {printable(b.path)}")
    screen.line(f"compared by {'ReqId' if by == 'id' else 'content'}: {why}")
    rows = [_row(queue) for queue in queues if queue.differs]
    alike = sum(queue.alike for queue in queues)
    if rows:
        screen.table(COLUMNS, rows)
        screen.line()
    for number, difference in enumerate(table.differences()):
        if number == lines:
            screen.line("  … and more: --jsonl has all, --lines N shows more")
            break
        sign = screen.paint(SIGNS[difference.what], STYLES[difference.what])
        screen.line(f"  {sign} {_line(difference)}")
    same = len(queues) - len(rows)
    moved = {a.format, b.format} == {"rabbitmq", "qindex"}
    if moved and any(q.only_a for q in queues) and any(q.only_b for q in queues):
        screen.line(
            "Dead letters are in other queues in a store that was recovered without --keep-expired:"
            " only in A where they died, only in B where they arrived"
        )
    if by == "id" and any(queue.body for queue in queues):
        screen.line("If the ReqIds of A and B do not belong together: --by content")
    screen.line(f"{count(alike, 'message')} alike; {count(same, 'queue')} without a difference")


def _row(queue: QueueDiff) -> list[str]:
    name = printable(queue.name) + (f" (only in {queue.only_in})" if queue.only_in else "")
    numbers = (queue.alike, queue.only_a, queue.only_b, queue.state, queue.body, queue.order)
    return [name, *(f"{number:,}" if number else "-" for number in numbers)]


def _line(difference: Difference) -> str:
    where = f"{printable(difference.queue)} {difference.req_id}"
    if difference.other is not None and difference.other != difference.req_id:
        where += f" (in B {difference.other})"
    return f"{where}: {size(difference.size)}, {difference.detail}"


def _as_json(a: Source, b: Source, how: tuple[str, str], queues: list[QueueDiff]) -> dict[str, Any]:
    return {
        "a": a.path,
        "b": b.path,
        "by": how[0],
        "why": how[1],
        "same": not any(queue.differs for queue in queues),
        "damage_a": a.damage(),
        "damage_b": b.damage(),
        "queues": [queue.as_json() for queue in queues],
    }
