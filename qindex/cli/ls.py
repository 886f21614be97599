"""qindex ls: list the queues, with the number of messages in each.

Messages count whatever their state is: ready, delayed, unacked, dead letters
(qindex stats tells these apart). Their bodies are not read: a message counts
also if the message file with its body is lost or damaged, and only qindex check
says so. The command only reads, also beside a process that writes. In a dead
broker's directory it lists the queues that qindex recover would bring back,
with their live messages.

exit codes: 0 listed; 1 a queue, or its name, is damaged beyond reading, or has
no folder any more (--json: a row whose "queue" is null); damage was met while
messages were counted, so there were more, or in message files as the store was
opened (check reads everything and says more); settings and data are lost; a
dead broker's directory has damage; 2 DIR is neither a store nor a dead broker's
directory.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

import qindex
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.dead import dead_node, ls
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.screen import Screen
from qindex.look.stores import (
    UNREADABLE,
    QueueGone,
    missing_queues,
    open_queue,
    open_to_look,
    unlisted,
)
from qindex.look.text import count, queue_text
from qindex.names import written


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_output(parser, "JSON: a list of objects", progress=False)


def run(options: argparse.Namespace, screen: Screen) -> int:
    node = dead_node(options.dir, screen, options.member, options.at_time)
    if node is not None:
        with node:
            return ls(node, screen, options.at_time, as_json=options.json)
    rows: list[tuple[str, int | None]] = []
    errors: dict[str, str] = {}
    refused: set[str] = set()  # only a newer qindex understands it, or the disk does not read it
    with open_to_look(options.dir) as store:
        for name in store.queues():
            try:
                rows.append((name, len(open_queue(store, name))))
            except QueueGone:
                continue
            except UNREADABLE as error:
                rows.append((name, None))
                errors[name] = str(error)
                if not isinstance(error, qindex.StoreCorrupt):
                    refused.add(name)
                    screen.error(str(error))
        missing = missing_queues(store)
        told = unlisted(store) + _damage_met(store, errors) + _damaged_bodies(store)
    if options.json:
        listed: list[dict[str, Any]] = [
            {"queue": name, "messages": n, "error": errors.get(name, "")} for name, n in rows
        ]
        listed += [{"queue": None, "messages": each.lost, "error": each.text} for each in missing]
        screen.json(listed)
    elif rows:
        cells = [
            (queue_text(written(n)), f"{depth:,}" if depth is not None else _why_not(n, refused))
            for n, depth in rows
        ]
        screen.table(["<queue", ">messages"], cells)
    elif screen.is_terminal:
        screen.line("  no queues yet")
    for text in told:
        screen.error(text) if options.json else screen.line(f"  {text}")
    return 1 if told or any(depth is None for _, depth in rows) else 0


def _damage_met(store: qindex.Store, beyond_reading: Collection[str]) -> list[str]:
    """In words: what was found in the files of queues that are listed with a number."""
    met = sum(
        found.severity != "note" and found.queue not in beyond_reading
        for found in store.findings
        if found.where.startswith("queues/")
    )
    places = count(met, "damaged place")
    return [f"{places}: messages may be missing in these numbers: see qindex check"] if met else []


def _damaged_bodies(store: qindex.Store) -> list[str]:
    met = sum(
        found.severity != "note" and found.where.startswith("messages/") for found in store.findings
    )
    places = count(met, "damaged place")
    return [f"message files: {places}: see qindex check"] if met else []


def _why_not(name: str, refused: set[str]) -> str:
    return "refused" if name in refused else "damaged"
