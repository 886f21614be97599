"""Opening stores to look at them: read-only, also while another process writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import qindex
from qindex.cli.screen import CommandError, Screen
from qindex.cli.text import count, printable
from qindex.formats.reader import FORMATS, formats_in


class QueueGone(CommandError):
    """There is no such queue, or not any more: another process may have deleted it."""


@contextmanager
def open_to_look(path: str) -> Iterator[qindex.Store]:
    """The store at `path`, read-only. CommandError with advice if there is none."""
    try:
        store = qindex.open(path, read_only=True, create=False)
    except qindex.StoreMissing:
        raise CommandError(f"there is no store at {path!r}{advice(path)}") from None
    except (qindex.FormatError, qindex.StoreCorrupt) as error:
        raise CommandError(f"{path!r} cannot be opened: {error}") from None
    with store:
        yield store


def advice(asked: str) -> str:
    """What may have been meant by a path that is no store, as the end of a sentence."""
    path = Path(asked)
    for above in (path, *path.parents[:3]):
        if (above / "store.meta").is_file():
            return f": the store is {str(above)!r}"
    if found := broker_at(path):
        return f": that is {with_article(FORMATS[found])}; qindex recover reads it"
    if path.is_dir():
        inner = sorted(str(found.parent) for found in path.glob("*/store.meta"))
        return f": perhaps you mean {inner[0]!r}" if inner else ": store.meta is not in it"
    return ": no such directory" if not path.exists() else ": that is not a directory"


def broker_at(path: Path) -> str | None:
    """The format of a dead broker's directory that is there, or one level below."""
    for folder in (path, *path.glob("*")):
        if found := formats_in(folder):
            return found[0]
    return None


def with_article(kind: str) -> str:
    """Of what reader.FORMATS calls a format."""
    return f"{'an' if kind.startswith('NSQ') else 'a'} {kind}"


def open_queue(store: qindex.Store, name: str) -> qindex.Queue:
    """A queue that must be there already. Raises QueueGone."""
    try:
        return store.queue(name, create=False)
    except qindex.QueueMissing:
        names = count(len(store.queues()), "queue")
        raise QueueGone(
            f"no queue {printable(name)!r} in {store.path!r}, which has {names}: see qindex ls"
        ) from None


def nameless_queue_count(store: qindex.Store) -> int:
    """Queues that are there, but whose names are damaged, so that queues() leaves them out."""
    names = len(store.queues())
    return max(0, store.stats().queues - names)


def queue_names(store: qindex.Store) -> dict[str, str]:
    """The queues' names by their directories."""
    return {store.queue_directory(name): name for name in store.queues()}


def show_findings(screen: Screen, findings: Sequence[Any], names: dict[str, str]) -> None:
    """The store's findings, with the names of the queues that they are about."""
    shown = []
    for finding in findings:
        directory = "/".join(finding.where.split("/")[:2])
        if directory in names:
            where = f"queue {names[directory]}: {finding.where}"
            finding = dataclasses.replace(finding, where=where)
        shown.append(finding)
    screen.findings(shown)


def finding_as_json(finding: Any) -> dict[str, Any]:
    """A finding of the engine or of a reader."""
    kind = {"kind": finding.kind} if hasattr(finding, "kind") else {}
    return {
        "severity": finding.severity,
        **kind,
        "where": finding.where,
        "offset": finding.offset,
        "text": finding.text,
    }


def damage_count(findings: list[Any]) -> int:
    return sum(finding.severity == "damage" for finding in findings)
