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

The directory of another broker is read as 'qindex recover DIR --out STORE' does.

exit codes: 0 everything was there; 1 something is damaged: what could be read
is copied; 2 refused (no store, STORE has these queues already), or the disk is
full; 130 interrupted: delete STORE and start again.
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
from qindex.brokers.recover import batches
from qindex.brokers.storable import Changes
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.put import put, put_dead, size_of
from qindex.cli.recover import command as recover
from qindex.cli.salvage.raw import RawStore
from qindex.look.messages import STATES, Choice, Found
from qindex.look.screen import CommandError, Progress, Quiet, Screen
from qindex.look.sources import StoreSource
from qindex.look.stores import QueueGone, advice, broker_at, stopped
from qindex.look.text import count, duration, printable, rate, size

COLUMNS: Final = ["<queue", ">copied", ">bytes", ">damaged", "<how"]


@dataclass(slots=True)
class Salvaged:
    """`damaged` counts messages that are left out, or what was told if that is more.

    `changes`: how many messages, by what had to be changed so that the new store takes them.
    """

    queue: str
    raw: bool
    messages: int = 0
    body_bytes: int = 0
    damaged: int = 0
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
        raise CommandError(f"there is no store at {options.dir!r}{advice(options.dir)}")
    if options.orphans:
        raise CommandError("--orphans is for RabbitMQ nodes; this is a store: leave it out")
    if Path(options.out).resolve().is_relative_to(root):
        raise CommandError(f"{options.out!r} is inside {options.dir!r}, where nothing is changed")
    started = time.monotonic()
    raw = RawStore(root, screen)
    done: list[Salvaged] = []
    stop: CommandError | None = None
    try:
        with (
            qindex.open(options.out, expire=False) as target,
            screen.progress("salvaging", "messages") as bar,
        ):
            _salvage(screen, options.dir, raw, target, bar, done)
            target.sync()
    except (Exception, KeyboardInterrupt) as error:
        if not done:  # nothing was written
            raise
        stop = stopped(error, options.out)
    finally:
        raw.close()
    seconds = time.monotonic() - started
    if options.json:
        told = {"path": options.dir, "out": options.out, "seconds": round(seconds, 6)}
        told["stopped"] = "" if stop is None else str(stop)
        screen.json({**told, "queues": [asdict(queue) for queue in done]})
    else:
        _show(screen, done, seconds)
    for kind, number in sum((Counter(queue.changes) for queue in done), Counter[str]()).items():
        screen.error(f"{count(number, 'message')}: {kind}")
    if stop is not None:
        raise stop
    return 1 if any(queue.damaged or queue.raw or queue.changes for queue in done) else 0


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
    path: str,
    raw: RawStore,
    target: qindex.Store,
    bar: Progress,
    done: list[Salvaged],
) -> None:
    """The engine's queues first; then what it does not serve. `done` has the account so far."""
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
            source.tell(f"{printable(finding.place)}: {finding.text}")
            source.damaged += max(0, finding.lost - 1)  # each of them counts


def _open(screen: Screen, path: str) -> qindex.Store | None:
    try:
        return qindex.open(path, read_only=True, create=False)
    except qindex.StoreError as error:
        screen.error(f"{path!r} cannot be opened: {error}; its records are read one by one")
        return None


def _is_served(store: qindex.Store, name: str) -> bool:
    try:
        store.queue(name, create=False)
    except (qindex.StoreCorrupt, qindex.FormatError, qindex.QueueMissing):
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
    queue, changes = so_far[0][-1], Changes()
    for put_batch, found in ((put_dead, dead), (put, messages)):
        into = target.queue(queue.queue, dead_letters=put_batch is put_dead)
        for batch in batches(found, size_of):
            stored = put_batch(into, batch, changes)
            queue.messages += len(stored)
            queue.body_bytes += sum(len(each.body) for each in stored)
            queue.changes = dict(changes.kinds)
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
    told += screen.paint(f"{damaged:,} left out as damaged", "red" if damaged else "dim")
    screen.line(told)
