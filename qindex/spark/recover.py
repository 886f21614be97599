"""Many dead brokers' directories into stores, one each, in tasks that know nothing of each other.

    INTO/NAME/               a store, complete: it was renamed to this when it was
    INTO/NAME.part/          one that is being made; the next run begins it anew
    INTO/accounts/NAME.json  where it came from, and what became of each message

So a run that was cut off goes on when it is started again: what is complete stays as it is.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import qindex
from qindex.brokers.reader import open_node, total
from qindex.brokers.recover import RecoverReport, recover_into
from qindex.brokers.tree import UnknownFormat
from qindex.names import written
from qindex.private import make_folder, replace_file, sync_folder
from qindex.spark.plan import Unit
from qindex.spark.remote import REMOTE
from qindex.spark.search import UNKNOWN
from qindex.spark.spread import Account, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCOUNTS: Final = "accounts"
COUNTS: Final = (
    "queues",
    "live",
    "messages",
    "body_bytes",
    "expired",
    "unreadable",
    "dead_lettered",
    "arrived",
    "kept",
    "unstorable",
    "changed",
    "damage",
)


class RecoverRefused(ValueError):
    """INTO holds something else, or a directory is on another machine; nothing was written."""


def recover(
    spark: SparkSession | None,
    units: Sequence[Unit],
    into: str,
    *,
    keep_expired: bool = False,
    at_time: float | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
    jobs: int = 1,
) -> list[Account]:
    """Recover each directory that is not yet; the accounts of all, in the order of `units`.

    An account has `error` if its directory could not be recovered: the others are, anyway.
    RecoverRefused: a store of that name is there and came from elsewhere, or a path is a URL.
    """
    if elsewhere := [unit.source for unit in units if unit.format.startswith(REMOTE)]:
        raise RecoverRefused(f"{elsewhere[0]!r} is elsewhere: copy it to this machine first")
    folder = Path(into).absolute()  # workers may be elsewhere
    make_folder(folder / ACCOUNTS)
    known = _accounts(folder)
    tasks = [(unit, _name(folder, unit, known)) for unit in units]
    todo = [task for task in tasks if not (folder / task[1]).exists()]
    todo.sort(key=lambda task: -task[0].bytes)  # so that none of the long ones begins last
    work = partial(_recover_one, str(folder), keep_expired, at_time)
    made = {each["source"]: each for each in spread(spark, todo, work, progress, jobs)}
    return [made.get(unit.source) or {**known[unit.source], "before": True} for unit, _ in tasks]


def _accounts(folder: Path) -> dict[str, Account]:
    """What earlier runs have completed, by source."""
    found = {}
    for path in folder.glob(f"{ACCOUNTS}/*.json"):
        account = json.loads(path.read_text())
        if (folder / account["into"]).exists():
            found[account["source"]] = account
    return found


def _name(folder: Path, unit: Unit, known: dict[str, Account]) -> str:
    """Of the store that the directory gets, or has got."""
    if unit.source in known:
        return str(known[unit.source]["into"])
    name = quote(written(unit.broker), safe=" @+,=")
    name = name.replace(".", "%2E", 1) if name.startswith(".") else name
    if name == ACCOUNTS or (folder / name).exists():
        raise RecoverRefused(
            f"{str(folder / name)!r} is there already, and is not from {unit.source!r}: choose"
            " another folder"
        )
    return name


def _recover_one(
    into: str, keep_expired: bool, at_time: float | None, task: tuple[Unit, str]
) -> Account:
    """Never raises for what is wrong with one directory."""
    unit, name = task
    part = Path(into, f"{name}.part")
    account: Account = dict.fromkeys(COUNTS, 0)
    account.update(
        source=unit.source, broker=unit.broker, format=unit.format, into=name, seconds=0.0, error=""
    )
    if unit.format == UNKNOWN:
        return {**account, "error": unit.problem}
    shutil.rmtree(part, ignore_errors=True)
    try:
        with open_node(unit.source) as node:
            with qindex.open(part, expire=False) as store:
                report = recover_into(node, store, keep_expired=keep_expired, now=at_time)
                _check(store, report)
            lost = sum(total(node.queues).lost.values())
            damage = sum(finding.severity != "note" for finding in node.findings)
    except (UnknownFormat, qindex.QindexError, OSError, ValueError) as error:
        shutil.rmtree(part, ignore_errors=True)
        return {**account, "error": f"{type(error).__name__}: {error}"}
    counted = {
        field: getattr(report, field) for field in COUNTS if field not in ("queues", "damage")
    }
    account.update(
        counted, queues=len(report.queues), damage=max(damage, lost), seconds=report.seconds
    )
    _complete(Path(into), account, report)
    return account


def _check(store: qindex.Store, report: RecoverReport) -> None:
    """The account is not only what recover_into() says: the store itself must have as many."""
    for queue in report.queues:
        held = len(store.queue(queue.into, create=False))
        if held != queue.in_store or not queue.adds_up:
            raise ValueError(f"the account of {queue.into!r} does not add up: {queue}")


def _complete(folder: Path, account: Account, report: RecoverReport) -> None:
    """The account first: a store that has its name has one."""
    name = account["into"]
    queues = [dataclasses.asdict(queue) for queue in report.queues]
    told = json.dumps({**account, "accounts": queues})
    replace_file(folder / ACCOUNTS / f"{name}.json", told.encode())
    (folder / f"{name}.part").rename(folder / name)
    sync_folder(folder)
