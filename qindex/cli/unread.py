"""Queues of a dead broker that qindex cannot read, as commands show them."""

from __future__ import annotations

from typing import Any, Final

from qindex.brokers.reader import DeadNode
from qindex.look.text import printable

COLUMNS: Final = ["<queue", "<type", "<virtual host", "<where"]
NOT_READ: Final = "not read"  # the kind of the finding that goes with each of these


def unread_rows(node: DeadNode) -> list[list[str]]:
    """Queues that qindex cannot read: what and where they are."""
    return [
        [
            printable(each["queue"]),
            each["kind"],
            printable(each["vhost"]) or "-",
            _place_of(each),
        ]
        for each in node.facts().get("not_read", [])
    ]


def _place_of(unread: dict[str, Any]) -> str:
    if unread["elsewhere"]:
        return "on other nodes of the cluster"
    return "not known for this type" if unread["unknown"] else "its directory is not here"
