"""qindex diff: what two stores or directories have not in common.

Compare the live messages of A and B: stores, copies of stores, directories of
dead brokers, in any combination (such a directory and the store that it was
recovered into). Shows what is only in A, only in B, and what differs.

  --by id        the same queue and ReqId is the same message; it may differ in
                 body, headers or state. The default for two of one format
  --by content   the same queue, body, headers and properties is the same
                 message, as often as it occurs; it may differ in state. What
                 is left is paired by its message_id, if that is the only one.
                 The default for two formats, where ReqIds mean nothing

State is ready, delivered or expired, with the expiry and persistence. "order"
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
from itertools import count as count_from
from itertools import islice
from typing import Any, Final

from qindex.cli.diff_match import Matcher, as_utf8
from qindex.cli.diff_table import Difference, QueueDiff, Table
from qindex.cli.messages import Choice, Found, add_choice, choice_of, positive
from qindex.cli.screen import Progress, Screen
from qindex.cli.sources import Source, open_source, tell_damage, total_of
from qindex.cli.stores import QueueGone
from qindex.cli.text import count, printable, size

COLUMNS: Final = [
    "<queue", ">alike", ">only in A", ">only in B", ">in state", ">in body", ">order",
]  # fmt: skip
SIGNS: Final = {"only in A": "-", "only in B": "+", "differs": "~"}
STYLES: Final = {"only in A": "red", "only in B": "green", "differs": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    for name in ("A", "B"):
        parser.add_argument(
            name.lower(), metavar=name, help="a store, or a dead broker's directory"
        )
    add_choice(parser)
    parser.add_argument("--by", choices=["id", "content"], help="what makes two messages the same")
    parser.add_argument("--ignore-state", action="store_true", help="compare content only")
    parser.add_argument(
        "--lines", type=positive, default=20, metavar="N", help="differences shown (default: 20)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON: the counts per queue")
    how.add_argument("--jsonl", action="store_true", help="all differences, one object a line")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    choice = choice_of(options)
    with (
        open_source(options.a, screen) as a,
        open_source(options.b, screen) as b,
        Table() as table,
    ):
        by = options.by or ("id" if a.format == b.format else "content")
        matcher = Matcher(table, by_id=by == "id", ignore_state=options.ignore_state)
        _read(screen, table, matcher, (a, b), choice)
        table.match(by_id=by == "id")
        queues = table.queues()
        if options.json:
            screen.json(_as_json(a, b, by, queues))
        elif options.jsonl:
            for difference in table.differences():
                screen.json(difference.as_json(), indent=None)
        else:
            _show(screen, table, queues, a, b, options.lines)
        damaged = [tell_damage(screen, source) for source in (a, b)]
        if any(queue.differs for queue in queues):
            return 1
        return 3 if any(damaged) else 0


def _read(
    screen: Screen, table: Table, matcher: Matcher, sides: tuple[Source, Source], choice: Choice
) -> None:
    """Both sides, queue by queue."""
    names = [_there(choice, source, sides) for source in sides]
    for side, there in enumerate(names):
        table.add_queues(side, map(as_utf8, there))
    total = sum(
        total_of(s, replace(choice, queues=n)) for s, n in zip(sides, names, strict=True) if n
    )
    with screen.progress("comparing", "messages") as progress:
        counter = count_from(1)
        for name in sorted({*names[0], *names[1]}):
            a, b = (
                _messages(source, name, choice, counter, progress, total)
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
    for name in choice.queues:
        if all(name not in side.names() for side in sides):
            next(source.messages(name, choice), None)  # raises, with advice
    return tuple(name for name in choice.queues if name in names)


def _messages(
    source: Source,
    name: str,
    choice: Choice,
    counter: Iterator[int],
    progress: Progress,
    total: int,
) -> Iterator[Found]:
    """Of one queue; that it goes while it is read is no error."""
    with suppress(QueueGone):
        for message in islice(source.messages(name, choice), choice.limit):
            progress.at(next(counter), total)
            yield message


def _show(
    screen: Screen, table: Table, queues: list[QueueDiff], a: Source, b: Source, lines: int
) -> None:
    screen.heading(f"A: {printable(a.path)}  B: {printable(b.path)}")
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


def _as_json(a: Source, b: Source, by: str, queues: list[QueueDiff]) -> dict[str, Any]:
    return {
        "a": a.path,
        "b": b.path,
        "by": by,
        "same": not any(queue.differs for queue in queues),
        "damaged": [a.damage(), b.damage()],
        "queues": [queue.as_json() for queue in queues],
    }
