"""Opening stores to look at them: read-only, also while another process writes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import qindex
from qindex._core import ffi, lib
from qindex.brokers.reader import FORMATS, formats_in
from qindex.handle import directory_of
from qindex.look.screen import CommandError
from qindex.look.text import count, printable
from qindex.names import unwritten

UNREADABLE: Final = (qindex.StoreCorrupt, qindex.FormatError, qindex.DiskError)  # one queue of many
LOOKS: Final = 3  # before a queue without a name is damage
NAME_ROOM: Final = 65536
NAME_SHOWN: Final = 200  # characters of one that was asked for
FOLDER: Final = re.compile(r"[0-9a-f]{32}")  # of a queue
MISSING: Final = "queues"  # where a finding is of queues without a folder
_TOLD_WITH_MESSAGES: Final = ("queues/", "messages/")  # where such a finding is


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


@contextmanager
def open_to_write(path: str, **options: Any) -> Iterator[qindex.Store]:
    """The store at `path`, as it is. CommandError if it cannot be opened: nothing was changed."""
    try:
        store = qindex.open(path, create=False, expire=False, **options)
    except (qindex.FormatError, qindex.StoreCorrupt) as error:
        raise CommandError(f"{path!r} cannot be opened: {error}") from None
    with store:
        yield store


def advice(asked: str) -> str:
    """What may have been meant by a path that is no store, as the end of a sentence."""
    if ours := store_at(asked):
        return ours
    path = Path(asked)
    if found := broker_at(path):
        return f": that is {with_article(FORMATS[found])}; qindex recover reads it"
    if path.is_dir():
        inner = sorted(str(found.parent) for found in path.glob("*/store.meta"))
        return f": perhaps you mean {inner[0]!r}" if inner else ": store.meta is not in it"
    return ": no such directory" if not path.exists() else ": that is not a directory"


def store_at(asked: str) -> str:
    """Of advice(), what says that a store is there, or a directory of qindex serve; "": neither."""
    path = Path(asked)
    for above in (path, *path.parents[:3]):
        if (above / "store.meta").is_file():
            return f": the store is {str(above)!r}"
    served = sorted(str(found.parent) for found in path.glob("vhosts/*/store.meta"))
    if not served:
        return ""
    named = ", ".join(repr(each) for each in served[:5]) + (" ..." if len(served) > 5 else "")
    return f": that is a directory of qindex serve; its stores are {named}"


def places(damage: int, suspected: int) -> str:
    """For people: so many of `damage` findings are only suspected."""
    parts = [count(damage - suspected, "damaged place")] if damage > suspected else []
    parts += [count(suspected, "suspected loss", "suspected losses")] if suspected else []
    return " and ".join(parts)


def suspected_count(findings: Iterable[Any]) -> int:
    """How many of these are no proof of damage."""
    return sum(finding.severity == "suspected" for finding in findings)


def broker_at(path: Path) -> str | None:
    """The format of a dead broker's directory that is there, or one level below."""
    for folder in (path, *path.glob("*")):
        if found := formats_in(folder):
            return found[0]
    return None


def with_article(kind: str) -> str:
    """Of what reader.FORMATS calls a format."""
    return f"{'an' if kind.startswith('NSQ') else 'a'} {kind}"


def as_named(asked: str, names: Collection[str]) -> str:
    """The queue that is meant: by the written form of its name (names.written), or by the name.

    The written form goes first: else a queue whose name looks like it would hide another one.
    """
    name = unwritten(asked)
    return name if name in names else asked


def stripped(names: Sequence[str], prefix: str) -> dict[str, str]:
    """Each queue's name without the prefix. CommandError if no name has it, or two become one."""
    if prefix and names and not any(name.startswith(prefix) for name in names):
        raise CommandError(f"--strip-prefix: no queue's name begins with {printable(prefix)!r}")
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        found[name] = name.removeprefix(prefix)
        if found[name] in taken:
            shown = printable(found[name])
            raise CommandError(f"two queues would become {shown!r}: name the QUEUEs to take")
        taken.add(found[name])
    return found


def open_queue(store: qindex.Store, name: str) -> qindex.Queue:
    """A queue that must be there already. Raises QueueGone."""
    try:
        return store.queue(name, create=False)
    except (qindex.QueueMissing, ValueError):  # or no queue can have that name
        names = count(len(store.queues()), "queue")
        raise QueueGone(
            f"no queue {printable(name[:NAME_SHOWN])!r} in {store.path!r}, which has {names}: see"
            " qindex ls"
        ) from None


def nameless_queue_count(store: qindex.Store) -> int:
    """Queues that are there, but whose names are damaged, so that queues() leaves them out.

    One that its writer deletes while it is looked at is none: so a nameless one is looked at again.
    """
    found = _nameless(store)
    for _ in range(LOOKS):
        if not found:
            break
        store.queues()  # reads their names again
        found &= _nameless(store)
    return len(found)


def _nameless(store: qindex.Store) -> set[str]:
    """The folders that are there, of queues without a name; also if a file is in its place."""
    code = lib.qi_store_queues(store._open_handle())
    name, directory = ffi.new("char[]", NAME_ROOM), ffi.new("char[33]")
    found = set()
    for index in range(max(0, code)):
        size = lib.qi_store_queue_name(store._open_handle(), index, name, NAME_ROOM, directory)
        text = ffi.unpack(name, size) if size > 0 else b""
        folder = ffi.string(directory)
        if size >= 0 and directory_of(text.decode("utf-8", "surrogatepass")) != folder:
            found.add(folder.decode())
    there = Path(store.path, "queues")
    return {folder for folder in found if os.path.lexists(there / folder)}


def displaced(root: str | Path) -> list[str]:
    """In words: where the folder of a queue was, and a file or something else is now."""
    try:
        with os.scandir(Path(root, "queues")) as found:
            names = sorted(each.name for each in found if _is_displaced(each))
    except OSError:
        return []
    return [
        f"queues/{name}: no folder, but a file or a link is where a queue was: it is lost, with"
        " how many messages is not known: put the folder back, or a backup"
        for name in names
    ]


def _is_displaced(each: os.DirEntry[str]) -> bool:
    return FOLDER.fullmatch(each.name) is not None and not each.is_dir(follow_symlinks=False)


def missing_queues(store: qindex.Store) -> list[qindex.Finding]:
    """What says that queues have no folder any more."""
    return [found for found in store.findings if found.where == MISSING]


def unlisted(store: qindex.Store) -> list[str]:
    """In words: what no queue in queues() tells of. Every command that reads a whole store asks.

    That is a queue whose name is damaged, one without a folder, and lost settings and data of the
    store and of its queues. Of a sound store: nothing. Cost: as queues(), for each queue 1 us.
    """
    nameless = nameless_queue_count(store)
    text = f"{count(nameless, 'queue')} whose name is damaged: see qindex check"
    return [*([text] if nameless else []), *lost_parts(store)]


def lost_parts(store: qindex.Store) -> list[str]:
    """Of unlisted(), what the store's findings say."""
    return [
        found.text if found.where == MISSING else f"{found.where}: {found.text}"
        for found in store.findings
        if found.severity != "note" and not found.where.startswith(_TOLD_WITH_MESSAGES)
    ]


def queue_names(store: qindex.Store) -> dict[str, str]:
    """The queues' names by their directories."""
    return {store.queue_directory(name): name for name in store.queues()}


def finding_as_json(finding: Any) -> dict[str, Any]:
    """A finding of the engine or of a reader."""
    kind = {"kind": finding.kind} if hasattr(finding, "kind") else {}
    about = {"about": finding.about} if getattr(finding, "about", "") else {}
    queue = {"queue": finding.queue} if getattr(finding, "queue", None) is not None else {}
    lost = {"lost": finding.lost} if getattr(finding, "lost", 0) else {}
    return {
        "severity": finding.severity,
        **kind,
        **about,
        **queue,
        "file": finding.where,
        "offset": finding.offset,
        "text": finding.text,
        **lost,
    }


def damage_count(findings: list[Any]) -> int:
    """What is known to be damaged, and what is suspected to be: all but the notes."""
    return sum(finding.severity != "note" for finding in findings)


def stopped(error: BaseException, into: str, before: Collection[str] = ()) -> CommandError:
    """What to say of a command that ended while it published into a store.

    `before`: the queues that the store had. It must not be deleted with what is only half there.
    """
    half = f"{into!r} holds a part of the messages: delete it"
    if before:
        had = f"the {count(len(before), 'queue')} that it had before"
        half = f"{into!r} holds a part of the messages: keep {had}, delete the others"
    match error:
        case KeyboardInterrupt():
            return CommandError(f"interrupted: {half} and start again", 130)
        case qindex.DiskFull():
            return CommandError(f"{error}: {half}, make room, start again")
        case CommandError():
            return CommandError(f"{error}; {half}", error.code)
    return CommandError(f"stopped by {type(error).__name__}: {error}; {half} and start again")
