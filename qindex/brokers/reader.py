"""What every reader of a dead broker's directory offers, and which reader a directory needs.

    with open_node(path) as node:
        for queue in node.queues:
            for message in queue.messages():
                ...

A format is a folder beside this file whose module `directory` has two functions. `is_here(folder)`
looks at names only. `open_at(folder)` reads all records once, without bodies, for the accounts and
the findings. Bodies are read
while iterating. Nothing is ever written; damage never raises but becomes a finding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from qindex.brokers.tree import Finding, Findings, Tree, UnknownFormat

FORMATS: Final = {  # module: what its directories are called
    "rabbitmq": "RabbitMQ node",
    "nsq": "NSQ data directory",
    "gmq": "gmq data directory",
    "beanstalkd": "beanstalkd binlog",
}
_INNER: Final = ("quorum", "stream", "coordination")  # folders of a RabbitMQ node
_DEPTH_MAX: Final = 3  # /var/lib/rabbitmq/mnesia/rabbit@host is found from /var/lib
_FOLDERS_MAX: Final = 10_000


@dataclass(slots=True)
class Account:
    """What became of the messages that the files tell of: found = live + all gone + all lost."""

    found: int = 0
    live: int = 0
    live_body_bytes: int = 0
    gone: dict[str, int] = field(default_factory=dict)  # as it should be: acked, read ...
    lost: dict[str, int] = field(default_factory=dict)  # by damage: without a body ...
    marks: dict[str, int] = field(default_factory=dict)  # of the live ones: redelivered ...
    lost_is_known: bool = True  # False: `lost` is what can be told, at most or at least

    def add(self, other: Account) -> None:
        self.found += other.found
        self.live += other.live
        self.live_body_bytes += other.live_body_bytes
        self.lost_is_known &= other.lost_is_known
        for mine, its in (
            (self.gone, other.gone),
            (self.lost, other.lost),
            (self.marks, other.marks),
        ):
            for state, count in its.items():
                mine[state] = mine.get(state, 0) + count

    @property
    def adds_up(self) -> bool:
        return self.found == self.live + sum(self.gone.values()) + sum(self.lost.values())


def total(queues: Sequence[DeadQueue]) -> Account:
    """The account of several queues together."""
    account = Account()
    for queue in queues:
        account.add(queue.account)
    return account


def expired_by(queue: DeadQueue, now_us: float) -> int:
    """How many of the queue's live messages have expired by then (microseconds since 1970).

    Cost: one reading of its messages, if any of them ever expires.
    """
    if not queue.account.marks.get("expiring"):
        return 0
    return sum(1 for each in queue.messages() if 0 < (each.expiry_us or 0) <= now_us)


class DeadMessage(Protocol):
    """A live message. `file` and `offset` tell where it is."""

    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> dict[str, Any]:
        """What else it carries; fit for publish(headers=)."""

    @property
    def redelivered(self) -> bool: ...
    @property
    def expiry_us(self) -> int | None:
        """Microseconds since 1970; settable."""

    @expiry_us.setter
    def expiry_us(self, value: int | None) -> None: ...
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...


class DeadQueue(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str:
        """What the queue's name is unique in: a virtual host; empty where a format has none."""

    @property
    def vanishes(self) -> bool:
        """The broker itself would not have the queue again."""

    @property
    def account(self) -> Account: ...
    @property
    def unreadable(self) -> int:
        """Live messages that the last iteration could not read; each became a finding."""

    def messages(self) -> Iterator[DeadMessage]:
        """The live messages, in the order in which consumers would get them."""


@dataclass(slots=True)
class Arrival:
    """A message that its broker would pass on: where it ends."""

    queue: DeadQueue
    headers: dict[str, Any]
    expiry_us: int | None
    may_die: bool  # see QueueDeaths
    kept: str  # why it is there, though the broker would not leave it there


class QueueDeaths(Protocol):
    """What becomes of messages that die in one queue. Ask about them in their order."""

    @property
    def may_die(self) -> bool:
        """The broker passes on what dies in the queue, or nobody knows. False: it drops it."""

    @property
    def is_too_long(self) -> bool:
        """is_over() would say so of some of the messages that are still to come."""

    def is_over(self, message: DeadMessage) -> bool:
        """The queue holds too many: the broker would take this one out when it starts."""

    def send(self, message: DeadMessage, reason: str) -> list[Arrival] | str:
        """Where a message ends that died of `reason` ("expired", "maxlen"); or why it stays."""


class DeadNode(Protocol):
    """Close it, or use it in `with`, to give its files back."""

    format: str  # its key in FORMATS
    group_kind: str  # "virtual host"; empty if queues have no groups
    name: str
    tree: Tree

    @property
    def kind(self) -> str:
        """What FORMATS calls it: "RabbitMQ node", for example."""

    @property
    def queues(self) -> Sequence[DeadQueue]: ...
    @property
    def findings(self) -> list[Finding]: ...
    @property
    def remarks(self) -> Sequence[str]:
        """Whole sentences about the directory."""

    def facts(self) -> dict[str, Any]:
        """What only this format has, as plain values."""

    def deaths(
        self, queues: Sequence[DeadQueue], now_us: int
    ) -> Callable[[DeadQueue], QueueDeaths] | None:
        """What the broker would do with messages that have died by `now_us`, by queue; None: it
        drops what has expired. `queues` can be put into."""

    def close(self) -> None: ...
    def __enter__(self) -> DeadNode: ...
    def __exit__(self, *_: object) -> None: ...


@dataclass(slots=True)
class Message:
    """A live message of a format that has no more to say about it."""

    body: bytes
    headers: dict[str, Any]
    redelivered: bool
    file: str
    offset: int
    expiry_us: int | None = None


@dataclass(slots=True)
class Node:
    """A directory of a format that has nothing but queues."""

    format: str
    name: str
    tree: Tree
    log: Findings
    queues: list[DeadQueue] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    group_kind: str = ""

    @property
    def kind(self) -> str:
        return FORMATS[self.format]

    @property
    def findings(self) -> list[Finding]:
        return self.log.kept

    def facts(self) -> dict[str, Any]:
        return {}

    def deaths(self, queues: Sequence[DeadQueue], now_us: int) -> None:
        return None

    def close(self) -> None:
        self.tree.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_node(
    path: str | os.PathLike[str],
    *,
    members: Sequence[str | os.PathLike[str]] = (),
) -> DeadNode:
    """Reads what is at `path`, or in the one place below it that has a known format.

    `members` are directories of other nodes of a RabbitMQ cluster: of a quorum queue the best of
    all its members' logs is taken. UnknownFormat: there is none, or more than one, or `members` of
    something else. Cost: one reading of all records, without the bodies where the format allows it.
    """
    folder, name = find_folder(path, list(FORMATS))
    if name != "rabbitmq":
        if members:
            raise UnknownFormat(f"{folder}: a {FORMATS[name]} has no other members")
        node: DeadNode = _module(name).open_at(folder)
        return node
    others = [find_folder(each, ["rabbitmq"])[0] for each in members]
    if len({folder, *others}) != 1 + len(others):
        raise UnknownFormat("the same node is given twice")
    cluster: DeadNode = _module(name).open_at(folder, others)
    return cluster


def _around(folder: Path) -> Path:
    """The RabbitMQ node that has the folder as one of its own; else the folder itself."""
    for above in (folder.parent, folder.parent.parent):
        inner = folder.relative_to(above).parts[0] if above != folder else ""
        if inner in _INNER and formats_in(above, ["rabbitmq"]):
            return above
    return folder


def find_folder(path: str | os.PathLike[str], formats: Sequence[str]) -> tuple[Path, str]:
    """The one directory with files of one of these formats: `path`, or one not far below it."""
    start = Path(path).resolve()
    if not start.is_dir():
        raise UnknownFormat(f"{start}: no such directory")
    if start.name == "vhosts":  # inside a RabbitMQ node
        start = start.parent
    if start.name == "msg_stores":
        start = start.parent
    start = _around(start)
    found: list[tuple[Path, str]] = []
    level = [start]
    for _ in range(_DEPTH_MAX + 1):
        found = [(folder, name) for folder in level for name in formats_in(folder, formats)]
        if found:
            break
        level = [below for folder in level for below in _folders_below(folder)][:_FOLDERS_MAX]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(f"{FORMATS[name]} {folder.name}" for folder, name in found[:9]))
        raise UnknownFormat(f"{start}: several at once ({names}): choose one")
    raise UnknownFormat(f"{start}: no {' and no '.join(FORMATS[name] for name in formats)}")


def formats_in(folder: Path, formats: Sequence[str] = tuple(FORMATS)) -> list[str]:
    """The names of the formats whose files are in this very directory: one, if any."""
    return [name for name in formats if _module(name).is_here(folder)]


def _module(name: str) -> Any:
    return import_module(f"qindex.brokers.{name}.directory")


def is_folder(path: Path) -> bool:
    """A directory; neither it nor the one it is in is a link."""
    try:
        return path.is_dir() and not path.is_symlink() and not path.parent.is_symlink()
    except OSError:
        return False


def _folders_below(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def names_in(folder: Path) -> list[str]:
    """The regular files in a directory, without links; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
