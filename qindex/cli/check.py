"""qindex check: is this store sound?

Read everything, recount every counter, verify every checksum. Changes nothing;
damage is reported, not repaired. Works beside a process that writes.

What was lost stays lost, so every check reports it: messages, with damaged
journals of queues; settings and data, with a damaged commit log or catalog. When
you know what is missing, have looked at what the queues do (qindex configure) and
have set that anew, --accept-losses ends it. It changes the store, which no process
may have open, and then checks it.

A note is not damage: it explains what recovery met and settled by itself, such
as the torn last record that a power cut leaves.

In a dead broker's directory check reads every record and every body. A format may
have no checksums; then a changed byte inside a body looks sound.

In a directory of qindex serve the stores are DIR/node and each DIR/vhosts/N.

exit codes: 0 clean; 1 damage; 2 cannot be opened, or neither a store nor a dead
broker's directory.
"""

from __future__ import annotations

import argparse
import time

import qindex
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.dead import check, dead_node
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import (
    UNREADABLE,
    damage_count,
    finding_as_json,
    open_to_look,
    open_to_write,
    queue_names,
)
from qindex.look.text import count, duration, printable, size


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_output(parser, "JSON: counts and all findings")
    parser.add_argument(
        "--accept-losses",
        action="store_true",
        help="first note that what was lost is known: no check reports it then",
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    node = dead_node(options.dir, screen, options.member, options.at_time)
    if node is not None:
        if options.accept_losses:
            raise CommandError("--accept-losses is for stores: this is a dead broker's directory")
        with node:
            return check(node, screen, options.dir, options.at_time, as_json=options.json)
    if options.accept_losses:
        with open_to_write(options.dir) as store:
            store.queues()  # else folders that are missing may not be missed
            store.accept_losses()
    started = time.monotonic()
    with open_to_look(options.dir) as store:
        with screen.progress(f"reading {printable(store.path)}") as progress:
            progress.at(0)
            findings = store.check()
        figures = store.stats()
        names = queue_names(store)
        messages = sum(_depth(store, name) for name in names.values())
    seconds = time.monotonic() - started
    damage = damage_count(findings)
    if options.json:
        screen.json(
            {
                "path": store.path,
                "clean": damage == 0,
                "damage": damage,
                "notes": len(findings) - damage,
                "findings": [finding_as_json(finding) for finding in findings],
                "queue_count": figures.queues,
                "messages": messages,
                "message_files": figures.message_files,
                "message_bytes": figures.message_bytes,
                "seconds": round(seconds, 6),
            }
        )
    else:
        screen.findings(findings)
        read = f"{count(figures.queues, 'queue')}, {count(messages, 'message')},"
        read += f" {count(figures.message_files, 'message file')} ({size(figures.message_bytes)}),"
        read += f" read in {duration(seconds)}"
        verdict = count(damage, "damaged place") if damage else "clean"
        verdict = screen.paint(verdict, "red" if damage else "green")
        screen.line(f"{printable(store.path)}: {verdict}; {read}")
    return 1 if damage else 0


def _depth(store: qindex.Store, name: str) -> int:
    try:
        return len(store.queue(name, create=False))
    except (*UNREADABLE, qindex.QueueMissing):
        return 0
