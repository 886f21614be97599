"""Queues of a dead broker that qindex cannot read, as commands show them."""

from __future__ import annotations

from typing import Any, Final

from qindex.brokers.reader import DeadNode
from qindex.look.text import printable, size

COLUMNS: Final = ["<queue", "<type", "<virtual host", ">bytes", "<where"]
NOT_READ: Final = "not read"  # the kind of the finding that goes with each of these


def unread_rows(node: DeadNode) -> list[list[str]]:
    """Queues that qindex cannot read: what and where they are."""
    return [
        [
            printable(each["queue"]),
            each["kind"],
            printable(each["vhost"]) or "-",
            size(each["bytes"]),
            _place_of_unread(each),
        ]
        for each in node.facts().get("not_read", [])
    ]


def _place_of_unread(each: dict[str, Any]) -> str:
    if each["elsewhere"]:
        return "on other nodes of the cluster"
    place = printable(each["directory"]) or "its directory is not here"
    if each["shared"]:
        shared = f"its part of {size(each['shared_bytes'])} in {printable(each['shared'])}"
        place += f", and {shared}"
    return place
