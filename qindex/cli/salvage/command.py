"""qindex salvage: copy a damaged store's messages into a new one.

Copy every message of a damaged store that can be read into a new store, in
order, with headers, priority, delay, expiry, redelivered flag and delivery
count; dead letters stay dead letters. What is damaged is left out, reported
with its place, and counted. DIR is never changed. ReqIds are given anew. A
message that was delivered as often as it may be gets one delivery less, since
it would leave the new queue at once; this is reported. The new store has the
format of DIR. Settings of queues and data are copied where the engine opens
DIR. A message's own lease is copied. A publish cannot give a message an old
published_at, nor deaths: these are those of the copy, where a dead letter is
'rejected' now. How many messages that is about is told; it is no loss.

Queues that the engine serves are copied as it serves them. A queue, or a whole
store, that it refuses (store.meta, queue.meta or both journals are lost) is put
together from the records that are left: then messages that were acked, but
whose acks are lost, may come back, all marked redelivered; of a queue whose
name is lost, or is that of a queue with another directory, the name is 'lost-'
and the name of its directory.

The directory of another broker is read as 'qindex recover DIR --out STORE' does.

exit codes: 0 everything was there; 1 something is damaged, missing (also a
queue whose folder was removed or is a file now, settings, or data) or left out: what could be
read is copied;
2 refused (no store, STORE has these queues already), or the disk is full; 130
interrupted: delete STORE and start again.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import qindex
from qindex._core import lib
from qindex.apart import refuse_inside
from qindex.brokers.recover import batches
from qindex.brokers.storable import Changes
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.put import once_more, put, put_dead, size_of
from qindex.cli.recover import command as recover
from qindex.cli.salvage.kept import carry_over, format_to_make, not_read
from qindex.cli.salvage.raw import RawStore
from qindex.look.messages import STATES, Choice, Found
from qindex.look.screen import CommandError, Progress, Quiet, Screen
from qindex.look.sources import StoreSource
from qindex.look.stores import (
    UNREADABLE,
    QueueGone,
    advice,
    broker_at,
    displaced,
    lost_parts,
    missing_queues,
    stopped,
)
from qindex.look.text import count, duration, printable, queue_text, rate, size

COUNTS: Final = "delivered as often as it may be: one delivery less is noted, so it comes once more"
PUBLISHED: Final = "published_at is when it was copied"
DEATHS: Final = "its deaths were not copied; a dead letter is 'rejected', at the copy"
RENEWED: Final = (PUBLISHED, DEATHS)  # what every copy changes: no loss, and no exit code of 1
COLUMNS: Final = ["<queue", ">copied", ">bytes", ">damaged", "<how"]


@dataclass(slots=True)
class Account:
    """`left_out`: what is not in the new store beside messages, in words.

    `lost`: how many messages were in queues without a folder. `damaged_places`: in message files.
    """

    queues: list[Salvaged] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    lost: int = 0
    damaged_places: int = 0


@dataclass(slots=True)
class Salvaged:
    """`damaged` counts messages that are left out, or what was told if that is more.

    `lost_unknown`: a file of the queue, or a part of one, is lost, and nobody knows how many
    messages were in it.
    `changes`: how many messages, by what had to be changed so that the new store takes them.
    """

    queue: str
    raw: bool
    messages: int = 0
    body_bytes: int = 0
    damaged: int = 0
    lost_unknown: bool = False
    changes: dict[str, int] = field(default_factory=dict)


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the damaged store's directory")
    parser.add_argument("--out", metavar="STORE", required=True, help="the store to make")
    parser.add_argument(
        "--orphans", action="store_true", help="of a RabbitMQ node: as qindex recover --orphans"
    )
    add_output(parser, "JSON: the account")


def run(options: argparse.Namespace, screen: Screen) -> int:
    root = Path(options.dir).resolve()
    if not (root / "queues").is_dir():
        if broker_at(root):
            return _recover(options, screen)
        if (root / "store.meta").is_file():
            raise CommandError(
                f"{options.dir!r} has no folder 'queues', which its messages were in: it was"
                " removed, moved, or its disk is not mounted: put it back, or a backup"
            )
        raise CommandError(f"there is no store at {options.dir!r}{advice(options.dir)}")
    if options.orphans:
        raise CommandError("--orphans is for RabbitMQ nodes; this is a store: leave it out")
    refuse_inside(options.out, options.dir)
    started = time.monotonic()
    account = Account()
    stop = _make(options, screen, root, account)
    seconds, done = time.monotonic() - started, account.queues
    if options.json:
        told = {"path": options.dir, "out": options.out, "seconds": round(seconds, 6)}
        told |= {"stopped": "" if stop is None else str(stop), "left_out": account.left_out}
        told["lost"] = account.lost
        told["damaged_places"] = account.damaged_places
        screen.json({**told, "queues": [asdict(queue) for queue in done]})
    else:
        _show(screen, done, seconds)
    for kind, number in _changes(done).items():
        if kind not in RENEWED:
            screen.error(f"{count(number, 'message')}: {kind}")
    for text in account.left_out:
        screen.error(f"left out: {text}")
    if stop is not None:
        raise stop
    wrong = any(
        queue.damaged or queue.lost_unknown or queue.raw or queue.changes.keys() - RENEWED
        for queue in done
    )
    return 1 if wrong or account.left_out or account.damaged_places else 0


def _changes(done: list[Salvaged]) -> Counter[str]:
    """How many messages of all queues, by what was changed."""
    return sum((Counter(queue.changes) for queue in done), Counter[str]())


def _make(
    options: argparse.Namespace, screen: Screen, root: Path, account: Account
) -> CommandError | None:
    """The new store. Returns why it stopped half-way."""
    with ExitStack() as stack:
        raw = stack.enter_context(closing(RawStore(root, screen)))
        store = _open(screen, options.dir)
        if store is not None:
            stack.enter_context(store)
        form, before = format_to_make(root, store, options.out), list[str]()
        try:
            with (
                qindex.open(options.out, expire=False, format=form) as target,
                screen.progress("salvaging", "messages") as bar,
            ):
                before += target.queues()
                _salvage(screen, store, raw, target, bar, account)
                target.sync()
        except (Exception, KeyboardInterrupt) as error:
            if not account.queues:  # nothing was written
                raise
            return stopped(error, options.out, before)
    return None


def _recover(options: argparse.Namespace, screen: Screen) -> int:
    """The readers of other brokers' files go on behind damage by themselves."""
    parser = argparse.ArgumentParser()
    recover.configure(parser)
    defaults = vars(parser.parse_args(["--", options.dir]))
    return recover.run(
        argparse.Namespace(**{**defaults, **vars(options), "out": options.out}),
        screen,
    )


def _salvage(
    screen: Screen,
    store: qindex.Store | None,
    raw: RawStore,
    target: qindex.Store,
    bar: Progress,
    account: Account,
) -> None:
    """The engine's queues first; then what it does not serve. `account` is kept on the way."""
    existing, done = set(target.queues()), account.queues
    served: dict[str, str] = {}  # folder -> name
    source = StoreSource(store, screen) if store is not None else None
    if store is not None and source is not None:
        total = sum(source.depth(name) for name in source.names())
        for name in source.names():
            if _is_served(store, name):
                _refuse(name, existing)
                served[store.queue_directory(name)] = name
                done.append(Salvaged(name, raw=False))
                _copy_served(source, target, bar, (done, total))
        account.damaged_places = len(_tell_findings(source, "messages/"))
        account.lost = sum(found.lost for found in missing_queues(store))
        account.left_out += lost_parts(store)
    with closing(RawStore(raw.root, Quiet())) as quiet:
        for folder in raw.folders():
            known = None if folder in served else raw.known_name(folder)
            if source is not None and known is not None and _is_served(source.store, known):
                _refuse(known, existing)  # its writer has made it since the list was read
                served[folder] = known
                done.append(Salvaged(known, raw=False))
                _copy_served(source, target, bar, (done, 0))
            elif folder not in served and (raw.root / folder).is_dir():  # else: it was deleted
                before = raw.damaged - raw.beside
                name = raw.name(folder)
                _refuse(name, existing)
                done.append(queue := Salvaged(name, raw=True))
                dead = (found for found in quiet.messages(folder, name) if found.dead)
                alive = (found for found in raw.messages(folder, name) if not found.dead)
                _copy(dead, alive, target, bar, (done, 0))
                queue.damaged = raw.damaged - raw.beside - before
                queue.lost_unknown = raw.is_unknown
    account.left_out += displaced(raw.root)
    if store is None:
        account.left_out += not_read(raw.root)
    else:
        account.left_out += carry_over(store, target, list(served.values()))


def _copy_served(
    source: StoreSource,
    target: qindex.Store,
    bar: Progress,
    so_far: tuple[list[Salvaged], int],
) -> None:
    queue = so_far[0][-1]
    before, depth = source.damaged, source.depth(queue.queue)
    dead: Iterable[Found] = ()
    if source.store.queue(queue.queue, create=False).stats().dead:
        quiet = StoreSource(source.store, Quiet())
        dead = _served(quiet, queue.queue, frozenset({"dead"}))
    alive = _served(source, queue.queue, frozenset(STATES) - {"dead"})
    most = None
    if source.store._stores_settings:
        most = source.store.queue(queue.queue, create=False).settings.max_deliveries or 0
    _copy(dead, alive, target, bar, so_far, most)
    places = _tell_findings(source, source.store.queue_directory(queue.queue))
    uncounted = sum(not found.lost for found in places)
    queue.lost_unknown = uncounted > 0
    # A damaged row of records is one finding, and the queue knows what was in it.
    queue.damaged = max(source.damaged - before - uncounted, depth - queue.messages)


def _tell_findings(source: StoreSource, where: str) -> list[qindex.Finding]:
    """The damage that was met in these files, and that no message told of."""
    places = []
    for finding in source.store.findings:
        if finding.severity == "damage" and finding.where.startswith(where):
            source.tell(f"{printable(finding.place)}: {finding.text}")
            source.damaged += max(0, finding.lost - 1)  # each of them counts
            places.append(finding)
    return places


def _open(screen: Screen, path: str) -> qindex.Store | None:
    try:
        return qindex.open(path, read_only=True, create=False)
    except (qindex.StoreError, qindex.DiskError) as error:
        _refuse_links(Path(path))
        screen.error(f"{path!r} cannot be opened: {error}; its records are read one by one")
        return None


def _is_served(store: qindex.Store, name: str) -> bool:
    try:
        store.queue(name, create=False)
    except (*UNREADABLE, qindex.QueueMissing):
        _refuse_links(Path(store.path, store.queue_directory(name)))
        return False
    return True


def _refuse_links(folder: Path) -> None:
    """What somebody moved to another disk is not lost; it would be left out. CommandError."""
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        if each.is_symlink():
            raise CommandError(
                f"{printable(str(each))} is a symbolic link, which is not followed: move what it"
                " points to back to this place, or mount it there"
            )


def _served(source: StoreSource, name: str, states: frozenset[str]) -> Iterator[Found]:
    leased = source.store._stores_settings
    try:
        for found in source.messages(name, Choice(states=states)):
            if leased:  # below 0: it has left meanwhile
                handle = source.store.queue(name, create=False)._handle
                found.lease_us = max(0, lib.qi_lease_of(handle, found.req_id))
            yield found
    except QueueGone:
        return


def _refuse(name: str, existing: set[str]) -> None:
    if name in existing:
        raise CommandError(f"the store already has the queue {name!r}: salvage into a new store")


def _copy(
    dead: Iterable[Found],
    messages: Iterable[Found],
    target: qindex.Store,
    bar: Progress,
    so_far: tuple[list[Salvaged], int],
    most: int | None = None,
) -> None:
    """The dead letters first: they are made in an empty queue. `most`: see once_more()."""
    queue, changes = so_far[0][-1], Changes()
    fewer, renewed = 0, Counter[str]()  # messages with one delivery less; see RENEWED
    for put_batch, found in ((put_dead, dead), (put, messages)):
        into = target.queue(queue.queue, dead_letters=put_batch is put_dead)
        for batch in batches(found, size_of):
            if put_batch is put:
                fewer += sum(once_more(found, most) for found in batch)
            stored = put_batch(into, batch, changes)
            queue.messages += len(stored)
            queue.body_bytes += sum(len(each.body) for each in stored)
            renewed[PUBLISHED] += sum(found.published_us > 0 for found in stored)
            renewed[DEATHS] += sum(_is_reburied(found) for found in stored)
            queue.changes = (
                dict(+renewed) | dict(changes.kinds) | ({COUNTS: fewer} if fewer else {})
            )
            bar.at(sum(q.messages for q in so_far[0]), so_far[1])


def _is_reburied(found: Found) -> bool:
    """What says how it died is not what the source said."""
    return found.died or found.dead not in (None, "rejected")


def _left_out(queue: Salvaged) -> str:
    if queue.lost_unknown:
        return f"{queue.damaged:,}+?" if queue.damaged else "unknown"
    return f"{queue.damaged:,}" if queue.damaged else "-"


def _show(screen: Screen, done: list[Salvaged], seconds: float) -> None:
    rows = [
        [
            queue_text(queue.queue),
            f"{queue.messages:,}",
            size(queue.body_bytes),
            _left_out(queue),
            "from the records that are left" if queue.raw else "as the engine serves it",
        ]
        for queue in done
    ]
    if rows:
        screen.table(COLUMNS, rows)
        screen.line()
    messages = sum(queue.messages for queue in done)
    damaged = sum(queue.damaged for queue in done)
    told = f"{count(messages, 'message')} of {count(len(done), 'queue')} salvaged"
    told += f" in {duration(seconds)} ({rate(messages, seconds)} messages/s); "
    unknown = sum(queue.lost_unknown for queue in done)
    left_out = f"{damaged:,} left out as damaged"
    if unknown:
        left_out += f", and of {count(unknown, 'queue')} nobody knows how many are lost"
    screen.line(told + screen.paint(left_out, "red" if damaged or unknown else "dim"))
    for kind, number in _changes(done).items():
        if kind in RENEWED:
            screen.line(f"{count(number, 'message')}: {kind}")
