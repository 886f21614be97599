"""What ls, stats and check say of a dead broker's directory, in which there is no store."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from qindex.cli.recover import found_as_json, is_incomplete, show_found
from qindex.cli.screen import Screen
from qindex.cli.stores import damage_count, finding_as_json
from qindex.cli.text import count, duration, printable, size
from qindex.formats.foreign import UnknownFormat
from qindex.formats.reader import DeadNode, open_node, total
from qindex.formats.recover import names_in_store


def dead_node(path: str, screen: Screen) -> DeadNode | None:
    """Close it. None: there is a store, or nothing known; whoever asked tells which."""
    folder = Path(path)
    if not folder.is_dir() or (folder / "store.meta").exists():
        return None
    try:
        with screen.progress(f"reading {printable(path)}") as progress:
            progress.at(0)
            return open_node(path)
    except UnknownFormat:
        return None


def ls(node: DeadNode, screen: Screen, *, as_json: bool) -> int:
    rows = [(name, queue.account.live) for queue, name in names_in_store(node)]
    if as_json:
        screen.json([{"queue": name, "messages": live} for name, live in rows])
    else:
        screen.table(["<queue", ">messages"], [[printable(n), f"{live:,}"] for n, live in rows])
    return 1 if is_incomplete(node) else 0


def stats(node: DeadNode, screen: Screen, *, as_json: bool) -> int:
    if as_json:
        screen.json(found_as_json(node))
    else:
        show_found(screen, node)
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
            "queues": len(node.queues),
            "messages": messages,
            "unreadable": unreadable,
            "account": dataclasses.asdict(account),
            "seconds": round(seconds, 6),
        }
        screen.json(told)
        return 0 if clean else 1
    screen.findings(node.findings)
    verdict = "clean" if clean else count(damage, "damaged place")
    lost = {"unreadable": unreadable, **account.lost}
    parts = [f"{number:,} {what}" for what, number in lost.items() if number]
    read = f"{node.kind}, {count(len(node.queues), 'queue')}, {count(messages, 'live message')}"
    read += f" ({size(account.live_body_bytes)}), read in {duration(seconds)}"
    verdict = screen.paint("; ".join([verdict, *parts]), "green" if clean else "red")
    screen.line(f"{printable(path)}: {verdict}; {read}")
    return 0 if clean else 1
