"""qindex salvage: a damaged store's messages into a new one.

Copy every message of a damaged store that can be read into a new store, in
order, with headers, priority, delay, expiry and redelivered flag; dead letters
stay dead letters. What is damaged is left out, told with its place, and
counted; DIR is never changed. ReqIds are given anew.

Queues that the engine serves are copied as it serves them. A queue, or a whole
store, that it refuses (store.meta, queue.meta or both journals are lost) is put
together from the records that are left: then messages that were acked, but
whose acks are lost, may come back, all marked redelivered; of a queue whose
name is lost, the name is 'lost-' and the name of its directory.

The directory of another broker is read as 'qindex recover DIR --into STORE' does.

exit codes: 0 everything was there; 1 something is damaged: what could be read
is copied; 2 refused (no store, STORE has these queues already), or the disk is
full; 130 interrupted: delete STORE and start again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import qindex
from qindex.cli import recover
from qindex.cli.messages import STATES, Choice, Found
from qindex.cli.put import put, put_dead
from qindex.cli.salvage_raw import RawStore
from qindex.cli.screen import CommandError, Progress, Quiet, Screen
from qindex.cli.sources import StoreSource
from qindex.cli.stores import QueueGone, advice, broker_at
from qindex.cli.text import count, duration, printable, rate, size
from qindex.formats.recover import batches

COLUMNS: Final = ["<queue", ">copied", ">bytes", ">damaged", "<how"]


@dataclass(slots=True)
class Salvaged:
    """`damaged` counts messages that are left out, or what was told if that is more."""

    queue: str
    raw: bool
    messages: int = 0
    body_bytes: int = 0
    damaged: int = 0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the damaged store's directory")
    parser.add_argument("--out", metavar="STORE", required=True, help="the store to make")
    parser.add_argument("--json", action="store_true", help="print JSON: the account")
    parser.add_argument("--progress", action="store_true", help="progress also without a terminal")


def run(options: argparse.Namespace, screen: Screen) -> int:
    root = Path(options.dir).resolve()
    if not (root / "queues").is_dir():
        if broker_at(root):
            return _recover(options, screen)
        raise CommandError(f"there is no store at {options.dir!r}{advice(options.dir)}")
    if Path(options.out).resolve().is_relative_to(root):
        raise CommandError(f"{options.out!r} is inside {options.dir!r}, where nothing is changed")
    started = time.monotonic()
    raw = RawStore(root, screen)
    try:
        with (
            qindex.open(options.out, expire=False) as target,
            screen.progress("salvaging", "messages") as bar,
        ):
            done = _salvage(screen, options.dir, raw, target, bar)
            target.sync()
    except KeyboardInterrupt:
        raise CommandError(f"interrupted: delete {options.out!r} and start again", 130) from None
    except qindex.DiskFull as error:
        raise CommandError(f"{error}: delete {options.out!r}, make room, start again") from None
    finally:
        raw.close()
    seconds = time.monotonic() - started
    if options.json:
        told = {"path": options.dir, "into": options.out, "seconds": round(seconds, 6)}
        screen.json({**told, "queues": [asdict(queue) for queue in done]})
    else:
        _show(screen, done, seconds)
    return 1 if any(queue.damaged or queue.raw for queue in done) else 0


def _recover(options: argparse.Namespace, screen: Screen) -> int:
    """The readers of other brokers' files go on behind damage by themselves."""
    return recover.run(
        argparse.Namespace(**vars(options), into=options.out, keep_expired=False, report=None),
        screen,
    )


def _salvage(
    screen: Screen, path: str, raw: RawStore, target: qindex.Store, bar: Progress
) -> list[Salvaged]:
    """The engine's queues first; then what it does not serve."""
    done: list[Salvaged] = []
    existing = set(target.queues())
    served: set[str] = set()
    with ExitStack() as stack:
        store = _open(screen, path)
        if store is not None:
            source = StoreSource(stack.enter_context(store), screen)
            total = sum(source.depth(name) for name in source.names())
            for name in source.names():
                if _is_served(store, name):
                    _refuse(name, existing)
                    served.add(store.queue_directory(name))
                    done.append(Salvaged(name, raw=False))
                    _copy_served(source, target, bar, (done, total))
            _tell_findings(source, "messages/")
    with closing(RawStore(raw.root, Quiet())) as quiet:
        for folder in raw.folders():
            if folder not in served:
                before = raw.damaged
                name = raw.name(folder)
                _refuse(name, existing)
                done.append(queue := Salvaged(name, raw=True))
                dead = (found for found in quiet.messages(folder, name) if found.dead)
                alive = (found for found in raw.messages(folder, name) if not found.dead)
                _copy(dead, alive, target, bar, (done, 0))
                queue.damaged = raw.damaged - before
    return done


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
    _copy(dead, alive, target, bar, so_far)
    _tell_findings(source, source.store.queue_directory(queue.queue))
    # A damaged row of records is one finding, and the queue knows what was in it.
    queue.damaged = max(source.damaged - before, depth - queue.messages)


def _tell_findings(source: StoreSource, where: str) -> None:
    """The damage that was met in these files, and that no message told of."""
    for finding in source.store.findings:
        if finding.severity == "damage" and finding.where.startswith(where):
            source.tell(f"{finding.where} at byte {finding.offset}: {finding.text}")


def _open(screen: Screen, path: str) -> qindex.Store | None:
    try:
        return qindex.open(path, read_only=True, create=False)
    except qindex.StoreError as error:
        screen.error(f"{path!r} cannot be opened: {error}; its records are read one by one")
        return None


def _is_served(store: qindex.Store, name: str) -> bool:
    try:
        store.queue(name, create=False)
    except (qindex.StoreCorrupt, qindex.QueueMissing):
        return False
    return True


def _served(source: StoreSource, name: str, states: frozenset[str]) -> Iterator[Found]:
    try:
        yield from source.messages(name, Choice(states=states))
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
) -> None:
    """The dead letters first: they are made in an empty queue."""
    queue = so_far[0][-1]
    for put_batch, found in ((put_dead, dead), (put, messages)):
        into = target.queue(queue.queue, dead_letters=put_batch is put_dead)
        for batch in batches(found):
            put_batch(into, batch)
            queue.messages += len(batch)
            queue.body_bytes += sum(len(each.body) for each in batch)
            bar.at(sum(q.messages for q in so_far[0]), so_far[1])


def _show(screen: Screen, done: list[Salvaged], seconds: float) -> None:
    rows = [
        [
            printable(queue.queue),
            f"{queue.messages:,}",
            size(queue.body_bytes),
            f"{queue.damaged:,}" if queue.damaged else "-",
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
    told += screen.paint(f"{count(damaged, 'damaged place')} left out", "red" if damaged else "dim")
    screen.line(told)
