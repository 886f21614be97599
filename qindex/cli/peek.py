"""qindex peek: messages, without taking them.

Show the first messages of a queue, or of every queue: ReqId, size, flags,
headers and body. Nothing is delivered or changed; works beside a process that
writes. Messages that came from RabbitMQ show their properties decoded.

Bodies: 'text' shows what is UTF-8 as text and the rest as hex, cut to a few
lines; 'hex' shows all bytes; 'raw' writes the bodies alone, end to end.

exit codes: 0 shown (also if the queue is empty); 1 a message or a queue is
damaged, the others are shown; 2 not a store, no such queue, or no such message.
"""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import qindex
from qindex.cli.screen import CommandError, Screen
from qindex.cli.stores import QueueGone, open_queue, open_to_look
from qindex.cli.text import count, printable, shorten, size

TEXT_LINES_MAX: Final = 8
TEXT_COLUMNS_MAX: Final = 160
HEX_BYTES_MAX: Final = 64
HEX_BYTES_PER_LINE: Final = 16
INDENT: Final = "      "


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="the store's directory")
    parser.add_argument("queue", metavar="QUEUE", nargs="?", help="default: every queue")
    parser.add_argument(
        "-n", type=_positive, default=5, metavar="N", help="messages per queue (default: 5)"
    )
    parser.add_argument("--req-id", type=int, metavar="N", help="only this message of QUEUE")
    parser.add_argument(
        "--bodies", choices=["text", "hex", "raw"], default="text", help="default: text"
    )
    parser.add_argument("--json", action="store_true", help="print JSON Lines: one object each")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.req_id is not None and options.queue is None:
        raise CommandError("--req-id needs a QUEUE: ReqIds are counted per queue")
    code = 0
    with open_to_look(options.store) as store:
        names = store.queues() if options.queue is None else [options.queue]
        for number, name in enumerate(names):
            if number and not options.json and options.bodies != "raw":
                screen.line()
            try:
                code = max(code, _peek(screen, open_queue(store, name), options))
            except QueueGone:
                if options.queue is not None:
                    raise
            except qindex.StoreCorrupt as error:
                screen.error(f"{printable(name)}: {error} (see qindex check)")
                code = 1
    return code


def _peek(screen: Screen, queue: qindex.Queue, options: argparse.Namespace) -> int:
    damaged: list[int] = []
    messages = _chosen(screen, queue, options, damaged)
    if options.json:
        for message in messages:
            screen.json(_as_json(message), indent=None)
    elif options.bodies == "raw":
        for message in messages:
            screen.raw(message.body)
    else:
        _show_queue(screen, queue, messages, options)
    return 1 if damaged else 0


def _first(
    screen: Screen, queue: qindex.Queue, wanted: int, damaged: list[int]
) -> Iterator[qindex.Message]:
    """The first messages; one that is damaged is told, noted and counts as one of them."""
    start = shown = 0
    while shown + len(damaged) < wanted:
        try:
            for message in islice(queue.browse(start), wanted - shown - len(damaged)):
                shown += 1
                yield message
            return
        except qindex.StoreCorrupt as error:
            if error.req_id is None:
                raise
            screen.error(f"{printable(queue.name)}: {error} (see qindex check)")
            damaged.append(error.req_id)
            start = error.req_id + 1


def _chosen(
    screen: Screen, queue: qindex.Queue, options: argparse.Namespace, damaged: list[int]
) -> Iterator[qindex.Message]:
    if options.req_id is None:
        return _first(screen, queue, options.n, damaged)
    if options.req_id < 0:
        raise CommandError(f"--req-id {options.req_id}: ReqIds are 0 or more")
    found = next(queue.browse(options.req_id, options.req_id + 1), None)
    if found is None:
        was_given = options.req_id < queue.stats().next_req_id
        state = "it was acked, or expired" if was_given else "it is not published yet"
        raise CommandError(f"no message {options.req_id} in {printable(queue.name)!r}: {state}")
    return iter([found])


def _show_queue(
    screen: Screen,
    queue: qindex.Queue,
    messages: Iterator[qindex.Message],
    options: argparse.Namespace,
) -> None:
    screen.heading(f"{printable(queue.name)}  ({count(len(queue), 'message')})")
    for message in messages:
        facts = [size(len(message.body)), *_flags(message)]
        screen.line(f"{message.req_id:>5}  {', '.join(facts)}")
        headers, properties = message.headers, _properties(message)
        if properties:
            del headers["properties"]
        for values in (headers, properties):
            if values:
                screen.line(f"{INDENT} {_pairs(screen, values)}")
        for line in _body_lines(message.body, options.bodies):
            screen.line(f"{INDENT} {line}")


def _flags(message: qindex.Message) -> Iterator[str]:
    if message.redelivered:
        yield "redelivered"
    if message.delivery_count > 1:
        yield f"delivered {count(message.delivery_count, 'time')}"
    if not message.persistent:
        yield "transient"
    if message.expires_at is not None:
        yield f"expires {_moment(message.expires_at)}"


def _moment(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):
        return f"{seconds:.0f} seconds after 1970"


def _properties(message: qindex.Message) -> dict[str, Any]:
    """The AMQP properties of a message that was recovered from RabbitMQ, decoded."""
    raw = message.headers.get("properties")
    if not isinstance(raw, bytes):
        return {}
    from qindex.formats.amqp import PROPERTY_NAMES, AmqpError, decode_properties

    try:
        properties = decode_properties(raw)
    except AmqpError:
        return {}
    values = ((name, getattr(properties, name)) for name in PROPERTY_NAMES)
    return {name: value for name, value in values if value is not None}


def _pairs(screen: Screen, values: dict[str, Any]) -> str:
    """`name=value` for each; what is long is cut."""
    return "  ".join(
        f"{screen.paint(printable(name), 'dim')}={shorten(_value(value), TEXT_COLUMNS_MAX)}"
        for name, value in values.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and value.isprintable() and value and " " not in value:
        return value
    return printable(repr(value))


def _body_lines(body: bytes, how: str) -> Iterator[str]:
    if how == "hex":
        yield from _hex_lines(body)
        return
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        yield from _hex_lines(body[:HEX_BYTES_MAX])
        if len(body) > HEX_BYTES_MAX:
            yield f"… {len(body) - HEX_BYTES_MAX:,} more bytes: --bodies hex, or raw"
        return
    for line in lines[:TEXT_LINES_MAX]:
        yield shorten(printable(line), TEXT_COLUMNS_MAX)
    if len(lines) > TEXT_LINES_MAX:
        yield f"… {len(lines) - TEXT_LINES_MAX:,} more lines: --bodies raw"


def _hex_lines(body: bytes) -> Iterator[str]:
    for offset in range(0, len(body), HEX_BYTES_PER_LINE):
        piece = body[offset : offset + HEX_BYTES_PER_LINE]
        letters = "".join(chr(c) if 32 <= c < 127 else "." for c in piece)
        yield f"{offset:08x}  {piece.hex(' '):<{3 * HEX_BYTES_PER_LINE}} {letters}"


def _as_json(message: qindex.Message) -> dict[str, Any]:
    body: dict[str, str]
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    return {
        "queue": message.queue,
        "req_id": message.req_id,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "persistent": message.persistent,
        "expires_at": message.expires_at,
        "headers": message.headers,
        "properties": _properties(message) or None,
        **body,
    }
