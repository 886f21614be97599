"""Which stream a directory belongs to: the names that its own files do not hold.

A directory is called after virtual host, queue and time. Every byte that is not plain stands there
as ``_``, so a name cannot be read back from it. Best source first: the queue's record in Mnesia or
Khepri, whose type_state has the directory's name; the stream coordinator's log, which every node of
a cluster has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.ra.system import Server, System
from qindex.brokers.tree import Findings

COORDINATOR: Final = "rabbit_stream_coordinator"
_VALUES_MAX: Final = 1_000_000

Names = dict[str, tuple[bytes, bytes]]  # directory: (virtual host, queue)


def directory_of(record: Any) -> str | None:
    """The directory in a stream's amqqueue record, in any of its versions."""
    match record:
        case ("amqqueue", *rest):
            for value in reversed(rest):
                match value:
                    case {"name": [*letters]} if all(isinstance(each, int) for each in letters):
                        return _text(letters)
                    case {"name": bytes(name)}:
                        return name.decode("latin-1")
    return None


def names_of(records: Iterable[Any]) -> Names:
    """By directory, of queues' records."""
    found: Names = {}
    for record in records:
        match record:
            case ("amqqueue", ("resource", bytes(vhost), "queue", bytes(name)), *_):
                directory = directory_of(record)
                if directory is not None:
                    found[directory] = (vhost, name)
    return found


def find_coordinator(system: System) -> Server | None:
    for server in system.servers.values():
        if server.name == COORDINATOR:
            return server
    return None


def coordinator_names(server: Server, findings: Findings) -> Names:
    """The streams that the coordinator was told of. A deleted one may be among them."""
    found: Names = {}
    for snapshot in server.snapshots:
        try:
            found |= names_of(_records(erlang.decode(snapshot.state())))
            break
        except erlang.ErlangError as error:
            findings.damage("snapshot", snapshot.where, 0, f"stream coordinator: {error}")
    for entry in server.log.entries(0):
        try:
            found |= names_of(_records(erlang.decode(entry.data)))
        except erlang.ErlangError as error:
            text = f"entry {entry.index} of the stream coordinator: {error}"
            findings.damage("entry", entry.where, entry.offset, text)
    return found


def _records(value: Any) -> Iterator[Any]:
    """Every amqqueue record in a value. Iterative."""
    left, seen = [value], 0
    while left and seen < _VALUES_MAX:
        seen += 1
        match left.pop():
            case ("amqqueue", *_) as record:
                yield record
            case tuple(items) | list(items):
                left += items
            case dict(pairs):
                left += pairs.values()


def _text(letters: list[Any]) -> str:
    return "".join(chr(letter) for letter in letters if 0 <= letter < 0x110000)
