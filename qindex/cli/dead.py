"""What ls, stats and check say of a dead broker's directory, in which there is no store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qindex.brokers.reader import DeadNode, open_node, total
from qindex.brokers.recover import names_in_store
from qindex.brokers.tree import UnknownFormat
from qindex.cli.recover.command import account_as_json, found_as_json, is_incomplete, show_found
from qindex.cli.unread import NOT_READ, unread_rows
from qindex.look.members import refuse_members
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import damage_count, finding_as_json
from qindex.look.text import count, duration, printable, size


def dead_node(path: str, screen: Screen, members: Sequence[str] = ()) -> DeadNode | None:
    """Close it. None: there is a store, or nothing known; whoever asked tells which."""
    folder = Path(path)
    if not folder.is_dir() or (folder / "store.meta").exists():
        refuse_members(members, path)
        return None
    try:
        with screen.progress(f"reading {printable(path)}") as progress:
            progress.at(0)
            return open_node(path, members=members)
    except UnknownFormat as error:
        if members:
            raise CommandError(str(error)) from None
        return None


def ls(node: DeadNode, screen: Screen, *, as_json: bool) -> int:
    rows = [(name, queue.account.live) for queue, name in names_in_store(node)]
    unread = node.facts().get("not_read", [])
    if as_json:
        told: list[dict[str, Any]] = [
            {"queue": name, "messages": live, "error": ""} for name, live in rows
        ]
        told += [
            {"queue": each["queue"], "messages": None, "error": "not read", "not_read": each}
            for each in unread
        ]
        screen.json(told)
    else:
        cells = [[printable(name), f"{live:,}", ""] for name, live in rows]
        for name, kind, vhost, byte_count, place in unread_rows(node):
            where = f"{kind} in {vhost}, {byte_count}, {place}"
            cells.append([name, "?", f"not read: {where}"])
        columns = ["<queue", ">messages", "<" if unread else ""]
        screen.table(columns[: 3 if unread else 2], [row[: 3 if unread else 2] for row in cells])
    return 1 if is_incomplete(node) else 0


def stats(node: DeadNode, screen: Screen, path: str, *, as_json: bool) -> int:
    if as_json:
        screen.json(found_as_json(node))
    else:
        show_found(screen, node, path)
    return 1 if is_incomplete(node) else 0


def check(node: DeadNode, screen: Screen, path: str, *, as_json: bool) -> int:
    """Reads every body, too."""
    started = time.monotonic()
    messages = unreadable = 0
    live = total(node.queues).live
    with screen.progress("reading bodies", "messages") as progress:
        for queue in node.queues:
            for _ in queue.messages():
                messages += 1
                progress.at(messages, live)
            unreadable += queue.unreadable
    seconds = time.monotonic() - started
    account = total(node.queues)
    damage = damage_count(node.findings)
    clean = not unreadable and not is_incomplete(node)
    if as_json:
        told: dict[str, Any] = {
            "path": path,
            "format": node.format,
            "clean": clean,
            "damage": damage,
            "notes": len(node.findings) - damage,
            "findings": [finding_as_json(finding) for finding in node.findings],
            "not_read": node.facts().get("not_read", []),
            "queue_count": len(node.queues),
            "messages": messages,
            "unreadable": unreadable,
            "account": account_as_json(account),
            "seconds": round(seconds, 6),
        }
        screen.json(told)
        return 0 if clean else 1
    screen.findings(node.findings)
    unread = sum(finding.kind == NOT_READ for finding in node.findings)
    places = count(damage - unread, "damaged place") if damage > unread else "nothing damaged"
    verdict = "clean" if clean else places
    lost = {"unreadable": unreadable, **account.lost}
    parts = [f"{number:,} {what}" for what, number in lost.items() if number]
    parts += [f"{count(unread, 'queue')} not read"] * bool(unread)
    read = f"{node.kind}, {count(len(node.queues), 'queue')}, {count(messages, 'live message')}"
    read += f" ({size(account.live_body_bytes)}), read in {duration(seconds)}"
    verdict = screen.paint("; ".join([verdict, *parts]), "green" if clean else "red")
    screen.line(f"{printable(path)}: {verdict}; {read}")
    return 0 if clean else 1
