"""An audit of a dead broker's directory, through the one interface of qindex.brokers.reader."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Final

from qindex.brokers.reader import DeadNode, DeadQueue, open_node
from qindex.look.messages import deliveries_of
from qindex.spark.broker_rows import state_of
from qindex.spark.examine import Examination, Limits

# What readers call what they find: the rest of their damage is "damaged file".
_KINDS: Final = {
    "message lost": "damaged body",
    "mismatch": "damaged body",
    "chunk damaged": "damaged body",
    "count": "account",
    "not read": "not read",
}
UNCOMMITTED: Final = "not known to be committed"
_MARKS: Final = {
    "uncertain": "messages of damaged places: they may be changed or not whole",
    "doubtful": "messages whose checksum does not match",
    UNCOMMITTED: "messages that perhaps no other member has",
}
# Each of these is told for its queue, with how many messages it is about.
_TOLD_ELSEWHERE: Final = ("body missing", "ack without publish")


def examine_node(examination: Examination, limits: Limits) -> None:
    """One queue after the other, all bodies read; then what the reader itself has found."""
    started = time.monotonic()
    unit = examination.unit
    with open_node(unit.folder, members=unit.members) as node:
        opened_us = int((time.monotonic() - started) * 1e6)
        counts = _counts(node)
        for queue in node.queues:
            _examine_queue(examination, limits, queue, counts.get((queue.group, queue.name), {}))
        places = {
            where: {"vhost": queue.group or None, "queue": queue.name}
            for queue in node.queues
            if (where := getattr(queue, "where", ""))
        }
        for row in examination.queues:  # the reader opens all queues at once
            row["recovery_us"] = opened_us // max(1, len(examination.queues))
        _orphans(examination, node)
        for found in node.findings:
            if found.kind not in _TOLD_ELSEWHERE:
                kind = _KINDS.get(found.kind, "damaged file")
                kind = {"note": "note", "suspected": "suspected"}.get(found.severity, kind)
                text = f"{found.about}: {found.text}" if found.about else found.text
                at = {"file": found.where, "offset": found.offset}
                examination.find(kind, text, **at, **_queue_at(places, found.where))
        _files(examination, node)


def _queue_at(places: dict[str, dict[str, Any]], file: str) -> dict[str, Any]:
    """The queue whose directory the file is in, where each queue has one."""
    while file:
        if file in places:
            return places[file]
        file = file.rpartition("/")[0]
    return {}


def _counts(node: DeadNode) -> dict[tuple[str, str], dict[str, Any]]:
    """What only RabbitMQ's reader counts, by virtual host and queue."""
    return {
        (vhost["vhost"], queue["queue"]): queue
        for vhost in node.facts().get("vhosts", [])
        for queue in vhost["queues"]
    }


def _examine_queue(
    examination: Examination, limits: Limits, queue: DeadQueue, counts: dict[str, Any]
) -> None:
    where = {"vhost": queue.group or None, "queue": queue.name}
    expired, poison, seen = 0, 0, Counter[bytes]()
    delivered = 0
    if limits.check_bodies:
        for message in queue.messages():
            expired += state_of(message, limits.now_us) == "expired"
            delivered += message.redelivered
            poison += (deliveries_of(message.headers) or 0) >= limits.poison_deliveries
            if msg_id := getattr(message, "msg_id", b""):
                seen[msg_id] += 1
    account = queue.account
    lost = sum(account.lost.values())
    examination.queues.append(
        {
            **where,
            "found": account.found,
            "live": account.live,
            "gone": sum(account.gone.values()),
            "lost": lost,
            "live_bytes": account.live_body_bytes,
            "unacked": delivered if limits.check_bodies else None,
            "segments": counts.get("segments", getattr(queue, "segments", None)),
        }
    )
    for count, kind, text in (
        (lost, "lost", f"messages are lost: {_told(account.lost)}"),
        (counts.get("orphan_marks", 0), "ack without publish", "in the journal or a segment"),
        (sum(n - 1 for n in seen.values()), "duplicate", "the same message id again"),
        *((_suspected(queue, mark), "suspected", text) for mark, text in _MARKS.items()),
        (expired, "expired", "past their expiry"),
        (poison, "poison", f"delivered {limits.poison_deliveries} times or more"),
    ):
        if count:
            examination.find(kind, text, count=count, **where)
    if not account.adds_up:
        examination.find("account", "found is not live + gone + lost", **where)


def _suspected(queue: DeadQueue, mark: str) -> int:
    """What a majority of the members has comes back, though nobody got a confirm for it."""
    is_sure = mark == UNCOMMITTED and getattr(queue, "has_majority", False)
    return 0 if is_sure else queue.account.marks.get(mark, 0)


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)


def _orphans(examination: Examination, node: DeadNode) -> None:
    for vhost in node.facts().get("vhosts", []):
        if count := vhost["orphan_bodies"]:
            text = f"{vhost['orphan_bytes']:,} bytes"
            examination.find("orphan bodies", text, vhost=vhost["vhost"], count=count)


def _files(examination: Examination, node: DeadNode) -> None:
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            names, below = node.tree.files(folder), node.tree.folders(folder)
        except OSError:
            continue
        prefix = f"{folder}/" if folder else ""
        folders += [prefix + name for name in below]
        for name in names:
            kind = _file_kind(name)
            if kind is not None:
                size = node.tree.size(prefix + name)
                examination.files.append({"file": prefix + name, "kind": kind, "bytes": size})


def _file_kind(name: str) -> str | None:
    """None: the broker keeps something else in it."""
    ending = name.rpartition(".")[2]
    kinds = {"jif": "journal", "idx": "segment", "qi": "segment", "rdq": "messages"}
    kinds |= {"qs": "messages", "dat": "messages", "queue": "messages", "wal": "journal"}
    if name == "snapshot.dat":
        return "snapshot"
    return {**kinds, "segment": "segment"}.get(ending)
