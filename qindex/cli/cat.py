"""qindex cat: write the bodies of messages to stdout.

Write the bodies of the chosen messages to stdout, in order, each followed by a
newline. Takes and changes nothing; works beside a process that writes, and on a
dead broker's directory.

  --separator TEXT   follows each body; \\n, \\t, \\0 and \\\\ are understood, ''
                     is nothing
  --lengths          instead, 4 bytes before each body: its length, big-endian
  --jsonl            one JSON object a line: queue, req_id, priority, state, dead,
                     due_at, redelivered, delivery_count, persistent,
                     expires_at, headers, properties, and body (if it is UTF-8)
                     or body_base64

In a pipe the bytes are written as they are. On a terminal what could steer it
is shown as backslash escapes.

exit codes: 0 written (also if there was nothing); 1 something is damaged, the
rest is written, or the one message of --req-id N is not there; 2 no such
directory or queue; 141 the reader of the pipe went.
"""

from __future__ import annotations

import argparse
import re
from typing import Final

from qindex.cli.arguments import add_directory
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import add_choice, choice_of
from qindex.look.screen import Screen
from qindex.look.sources import chosen, open_source
from qindex.look.telling import tell_damage

_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_choice(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--separator", type=_unescaped, default=b"\n", metavar="TEXT", help=r"default: \n"
    )
    how.add_argument(
        "--lengths", action="store_true", help="write 4 bytes with its length before each body"
    )
    how.add_argument("--jsonl", action="store_true", help="one JSON object per message")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        for message in chosen(source, choice_of(options)):
            if options.jsonl:
                screen.json(message.as_json(), indent=None)
            elif options.lengths:
                screen.raw(len(message.body).to_bytes(4, "big") + message.body)
            else:
                screen.raw(message.body + options.separator)
        return tell_damage(screen, source)


def _unescaped(text: str) -> bytes:
    try:
        return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], text).encode()
    except KeyError as error:
        raise argparse.ArgumentTypeError(
            rf"\{error.args[0]} is none of \n, \t, \0 and \\"
        ) from None
