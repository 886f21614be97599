"""What ls, stats and check say of a dead broker's directory, in which there is no store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qindex.brokers.reader import DeadNode, open_node, total
from qindex.brokers.recover import names_in_store
from qindex.brokers.storable import Changes, unfit
from qindex.brokers.tree import UnknownFormat
from qindex.cli.recover.command import (
    account_as_json,
    expired_at,
    found_as_json,
    is_incomplete,
    show_found,
)
from qindex.cli.unread import NOT_READ, unread_rows
from qindex.look.at_time import now_us
from qindex.look.members import refuse_members
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import damage_count, finding_as_json, places, suspected_count
from qindex.look.text import count, duration, printable, size
from qindex.moments import utc


def dead_node(
    path: str, screen: Screen, members: Sequence[str] = (), at_time: float | None = None
) -> DeadNode | None:
    """Close it. None: there is a store, or nothing known; whoever asked tells which.

    CommandError: members or a moment were given, which say nothing there.
    """
    folder = Path(path)
    if not folder.is_dir() or (folder / "store.meta").exists():
        refuse_members(members, path)
        if at_time is not None:
            raise CommandError(f"--at-time is for dead brokers' directories: {path!r} is none")
        return None
    try:
        with screen.progress(f"reading {printable(path)}") as progress:
            progress.at(0)
            return open_node(path, members=members)
    except UnknownFormat as error:
        if members or "several" in str(error):
            raise CommandError(str(error)) from None
        return None


def ls(node: DeadNode, screen: Screen, at_time: float | None, *, as_json: bool) -> int:
    named = names_in_store(node)
    rows = [(name, queue.account.live) for queue, name in named]
    expired = expired_at(node, at_time) or {}
    by_name = {name: expired[id(queue)] for queue, name in named if expired}
    unread = node.facts().get("not_read", [])
    if as_json:
        told: list[dict[str, Any]] = [
            {"queue": name, "messages": live, "error": ""}
            | ({} if at_time is None else {"expired": by_name[name]})
            for name, live in rows
        ]
        told += [
            {"queue": each["queue"], "messages": None, "error": "not read", "not_read": each}
            for each in unread
        ]
        screen.json(told)
    else:
        cells = [[printable(name), f"{live:,}", ""] for name, live in rows]
        if at_time is not None:
            cells = [
                [printable(name), f"{live:,}", f"{by_name[name]:,} expired"] for name, live in rows
            ]
        for name, kind, vhost, place in unread_rows(node):
            where = f"{kind} in {vhost}, {place}"
            cells.append([name, "?", f"not read: {where}"])
        width = 3 if unread or at_time is not None else 2
        screen.table(["<queue", ">messages", "<"][:width], [row[:width] for row in cells])
    return 1 if is_incomplete(node) else 0


def stats(
    node: DeadNode, screen: Screen, path: str, at_time: float | None, *, as_json: bool
) -> int:
    if as_json:
        screen.json(found_as_json(node, at_time=at_time))
    else:
        show_found(screen, node, path, at_time)
    return 1 if is_incomplete(node) else 0


def check(
    node: DeadNode, screen: Screen, path: str, at_time: float | None, *, as_json: bool
) -> int:
    """Reads every body, too. What a recovery would have to change is no clean directory either."""
    started = time.monotonic()
    messages = unreadable = expired = 0
    changes = Changes()
    live = total(node.queues).live
    with screen.progress("reading bodies", "messages") as progress:
        for queue in node.queues:
            for message in queue.messages():
                messages += 1
                changes.add(unfit(message.headers, message.expiry_us))
                expired += 0 < (message.expiry_us or 0) <= now_us(at_time)
                progress.at(messages, live)
            unreadable += queue.unreadable
    seconds = time.monotonic() - started
    account = total(node.queues)
    damage = damage_count(node.findings)
    clean = not unreadable and not changes.changed and not is_incomplete(node)
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
            "changed": changes.changed,
            "changes": dict(changes.kinds),
            **({} if at_time is None else {"as_of": utc(at_time), "expired": expired}),
            "account": account_as_json(account),
            "seconds": round(seconds, 6),
        }
        screen.json(told)
        return 0 if clean else 1
    screen.findings(node.findings)
    unread = sum(finding.kind == NOT_READ for finding in node.findings)
    suspected = suspected_count(node.findings)
    wrong = places(damage - unread, suspected) if damage > unread else "nothing damaged"
    verdict = "clean" if clean else wrong
    lost = {"unreadable": unreadable, **account.lost}
    parts = [f"{number:,} {what}" for what, number in lost.items() if number]
    parts += ["how many are lost is an estimate"] * (not account.lost_is_known)
    parts += [f"{count(unread, 'queue')} not read"] * bool(unread)
    for kind, number in changes.kinds.items():
        line = f"a recovery has to change {count(number, 'message')}: {printable(kind)}"
        screen.line(screen.paint(line, "red"))
    if changes.changed:
        parts.append(f"{count(changes.changed, 'message')} to be changed")
    read = f"{node.kind}, {count(len(node.queues), 'queue')}, {count(messages, 'live message')}"
    if at_time is not None:
        read += f", {expired:,} of them expired by {utc(at_time)}"
    read += f" ({size(account.live_body_bytes)}), read in {duration(seconds)}"
    verdict = screen.paint("; ".join([verdict, *parts]), "green" if clean else "red")
    screen.line(f"{printable(path)}: {verdict}; {read}")
    return 0 if clean else 1
