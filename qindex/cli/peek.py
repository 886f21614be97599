"""qindex peek: show messages, without taking them.

Show the first messages of some queues, or of every queue: ReqId, size, flags,
headers and body. Nothing is delivered or changed; works beside a process that
writes, and on a dead broker's directory. Messages that came from
RabbitMQ show their properties decoded.

Bodies: 'text' shows what is UTF-8 as text and the rest as hex, cut to a few
lines; 'hex' shows all bytes; 'raw' writes the bodies alone, end to end.

exit codes: 0 shown (also if the queue is empty); 1 a message or a queue is
damaged, the others are shown; 2 not a store, no such queue, or no such message.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any, Final

from qindex.cli.arguments import add_directory, add_output
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import Choice, Found, add_choice, choice_of, properties_of
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import Source, chosen_names, open_source
from qindex.look.stores import QueueGone
from qindex.look.telling import tell_damage, why_missing
from qindex.look.text import count, printable, shorten, size
from qindex.moments import utc, utc_of

TEXT_LINES_MAX: Final = 8
TEXT_COLUMNS_MAX: Final = 160
HEX_BYTES_MAX: Final = 64
HEX_BYTES_PER_LINE: Final = 16
INDENT: Final = "      "


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_choice(parser, limit=5)
    parser.add_argument(
        "--bodies",
        choices=["text", "hex", "raw"],
        default="text",
        help="how bodies are shown (default: text)",
    )
    add_output(parser, "JSON Lines: one object each", progress=False)


def run(options: argparse.Namespace, screen: Screen) -> int:
    choice = choice_of(options)
    if options.json and options.bodies != "text":
        raise CommandError("--bodies is for people: JSON has each body as a whole")
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        shown = 0
        for name in chosen_names(source, choice):
            try:
                _peek(screen, source, name, choice, options, is_first=not shown)
                shown += 1
            except QueueGone:
                if choice.queues:
                    raise
        return tell_damage(screen, source)


def _peek(
    screen: Screen,
    source: Source,
    name: str,
    choice: Choice,
    options: argparse.Namespace,
    *,
    is_first: bool,
) -> None:
    messages = _first(source, name, choice)
    if choice.one is not None:
        messages = _the_one(source, name, choice.one, messages)
    if options.json:
        for message in messages:
            screen.json(message.as_json(), indent=None)
    elif options.bodies == "raw":
        for message in messages:
            screen.raw(message.body)
    else:
        first = next(messages, None)  # the queue may turn out to be gone: no heading then
        if not is_first:
            screen.line()
        screen.heading(f"{printable(name)}  ({count(source.depth(name), 'message')})")
        for message in chain([] if first is None else [first], messages):
            _show(screen, message, options.bodies)


def _first(source: Source, name: str, choice: Choice) -> Iterator[Found]:
    """Up to the limit; one that is damaged is told and counts as one of them."""
    before = source.damaged
    for shown, message in enumerate(source.messages(name, choice)):
        if choice.limit is not None and shown + source.damaged - before >= choice.limit:
            return
        yield message


def _the_one(source: Source, name: str, req_id: int, messages: Iterator[Found]) -> Iterator[Found]:
    """A single message that was asked for and is not there is an error, not an empty answer."""
    found = list(messages)
    if not found and not source.damaged:
        raise CommandError(why_missing(source, name, req_id))
    return iter(found)


def _show(screen: Screen, message: Found, bodies: str) -> None:
    facts = [size(len(message.body)), *flags_of(message)]
    screen.line(f"{message.req_id:>5}  {', '.join(facts)}")
    headers = message.headers
    properties = properties_of(headers)
    if properties:
        del headers["properties"]
    for values in (headers, properties):
        if values:
            screen.line(f"{INDENT} {_pairs(screen, values)}")
    for line in body_lines(message.body, bodies):
        screen.line(f"{INDENT} {line}")


def flags_of(message: Found) -> Iterator[str]:
    """What is special about it, in words."""
    if message.priority is not None:
        yield f"priority {message.priority}"
    if message.dead is not None:
        yield f"dead letter: {message.dead}"
    if message.state == "expired":
        yield "expired"
    if message.state == "delayed" and message.due_at is not None:
        yield f"due {utc(int(message.due_at))}"
    if message.redelivered:
        yield "redelivered"
    if message.delivery_count > 1:
        yield f"delivered {count(message.delivery_count, 'time')}"
    if not message.persistent:
        yield "transient"
    if message.expires_at is not None:
        yield f"expires {utc(int(message.expires_at))}"


def _pairs(screen: Screen, values: dict[str, Any]) -> str:
    """`name=value` for each; what is long is cut."""
    return "  ".join(
        f"{screen.paint(printable(name), 'dim')}={shorten(value_as_text(value), TEXT_COLUMNS_MAX)}"
        for name, value in values.items()
    )


def value_as_text(value: Any) -> str:
    """A header's value, fit for a terminal."""
    if isinstance(value, datetime):
        return utc_of(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and value.isprintable() and value and " " not in value:
        return value
    return printable(repr(value))


def body_lines(body: bytes, how: str) -> Iterator[str]:
    """The body as lines for a terminal: its first ones if `how` is "text", all if "hex"."""
    if how == "hex":
        yield from _hex_lines(body)
        return
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        yield from _hex_lines(body[:HEX_BYTES_MAX])
        if len(body) > HEX_BYTES_MAX:
            yield f"… {count(len(body) - HEX_BYTES_MAX, 'more byte')}: --bodies hex, or raw"
        return
    for line in lines[:TEXT_LINES_MAX]:
        yield shorten(printable(line), TEXT_COLUMNS_MAX)
    if len(lines) > TEXT_LINES_MAX:
        yield f"… {count(len(lines) - TEXT_LINES_MAX, 'more line')}: --bodies raw"


def _hex_lines(body: bytes) -> Iterator[str]:
    for offset in range(0, len(body), HEX_BYTES_PER_LINE):
        piece = body[offset : offset + HEX_BYTES_PER_LINE]
        letters = "".join(chr(c) if 32 <= c < 127 else "." for c in piece)
        yield f"{offset:08x}  {piece.hex(' '):<{3 * HEX_BYTES_PER_LINE}} {letters}"
