"""Records of the shared log that stand under a wrong server, and whose they are.

No checksum covers which server a record belongs to. What tells is that every server's indexes go up
by one: a record that does not fit under its own name, and fits a hole of one other, is that one's.

* A single record between two that follow each other without it is a stray.
* Records whose server's name is destroyed continue the log of one that has none in this file.
* An entry that stands twice with one term and different data: one copy is another server's, and
  nothing tells which. The first is taken.
* Records with damage before and behind them may be a body's bytes: a publisher can put there what
  it likes. They count for nothing where other records of their server deny them.
* A name that no directory has, but that is one character away from one that has, is that one.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from qindex.brokers.rabbitmq.ra.runs import Place, WalRun

if TYPE_CHECKING:
    from qindex.brokers.rabbitmq.ra.system import System

Runs = dict[bytes, list[WalRun]]


def settle(system: System, file: str, found: Runs, breaks: list[int]) -> None:
    """Puts the records of one file where they belong; what changes is a finding.

    `breaks`: where reading went on behind bytes that are no record.
    """
    for uid in list(found):
        if len(found[uid]) > 1:
            if len(breaks) > 1:
                _drop_denied(system, file, uid, found[uid], breaks)
            _compare(system, file, uid, found[uid])
            _take_strays(system, file, uid, found)
    for uid in [uid for uid in found if uid.startswith(b"?")]:
        _return_single(system, file, uid, found)
    for uid in list(found):
        name = uid.decode("latin-1")
        if name not in system.servers:
            owner = _owner(system, found, uid, name)
            if owner is not None:
                _tell(system, file, found[uid][0], f"named {name}, by their indexes of {owner}")
                found.setdefault(owner.encode(), []).extend(found.pop(uid))
            elif name.startswith("?"):
                _tell(system, file, found[uid][0], "of a server whose name is destroyed")


def joined(runs: list[WalRun]) -> list[WalRun]:
    """Fewer runs, of those that go up with gaps between them."""
    kept: list[WalRun] = []
    for run in runs:
        last = kept[-1] if kept else None
        fits = last is not None and last.sound and run.sound and last.term == run.term
        if last is not None and fits and last.last < run.first:
            for place in run.places(run.first, run.last):
                last.add(place.index, place.offset, place.size)
        else:
            kept.append(run)
    return kept


def _return_single(system: System, file: str, uid: bytes, found: Runs) -> None:
    """Single records of a server that nothing names, each missing in one other server's records."""
    for run in [run for run in found[uid] if len(run) == 1]:
        owner = _owner_of(run, uid, found)
        if owner is not None:
            found[uid].remove(run)
            found[owner[0]].insert(owner[1], run)
            whose = owner[0].decode("latin-1")
            _tell(
                system, file, run, f"of no known server, by its index {run.first} it is {whose}'s"
            )
    if not found[uid]:
        del found[uid]


def _take_strays(system: System, file: str, uid: bytes, found: Runs) -> None:
    runs = found[uid]
    for run in [run for run in runs if len(run) == 1]:
        if run not in runs:
            continue  # it was joined with the one before a stray
        at = runs.index(run)
        before = runs[at - 1] if at else None
        after = runs[at + 1] if at + 1 < len(runs) else None
        if not _is_stray(before, run, after):
            continue
        owner = _owner_of(run, uid, found)
        goes_on = before is not None and after is not None
        if owner is None and not goes_on:
            continue  # it is the first or the last one: there may be a gap before or behind it
        runs.remove(run)
        whose = "nobody's" if owner is None else f"{owner[0].decode('latin-1')}'s"
        name = uid.decode("latin-1")
        _tell(system, file, run, f"named {name}, by its index {run.first} it is {whose}")
        if owner is not None:
            found[owner[0]].insert(owner[1], run)
        if goes_on and before is not None and after is not None:
            _join(runs, before, after)


def _drop_denied(
    system: System, file: str, uid: bytes, runs: list[WalRun], breaks: list[int]
) -> None:
    """Terms never fall, and no entry is written twice unlike: what stands in damage gives way."""

    def is_island(run: WalRun) -> bool:
        return 0 < bisect_right(breaks, run.offsets[0]) < len(breaks)

    for at, run in reversed([*enumerate(runs)]):
        if not is_island(run):
            continue
        others = [(n, each) for n, each in enumerate(runs) if n != at and not is_island(each)]
        falls = any(n > at and each.term < run.term for n, each in others)
        if falls or any(_unlike(system, file, each, run) is not None for _, each in others):
            del runs[at]
            text = f"entries {run.first} to {run.last} of {uid.decode('latin-1')} stand between"
            text += " damaged places, and others deny them: they are taken for bytes of a message"
            system.findings.damage("wal", file, run.offsets[0], text)


def _unlike(system: System, file: str, one: WalRun, other: WalRun) -> Place | None:
    """The first entry that both have with one term and different data, as `other` has it."""
    source = system.tree.kept_open(file)
    first, last = max(one.first, other.first), min(one.last, other.last)
    if one.term != other.term or first > last or source is None:
        return None
    for a, b in zip(one.places(first, last), other.places(first, last), strict=False):
        if a.size != b.size or source.read(a.offset, a.size) != source.read(b.offset, b.size):
            return b
    return None


def _compare(system: System, file: str, uid: bytes, runs: list[WalRun]) -> None:
    """Whether what was written twice with one term is the same: else a copy is not this one's."""
    for one, other in pairwise(runs):
        unlike = _unlike(system, file, one, other)
        if unlike is not None:
            text = f"entry {unlike.index} of {uid.decode('latin-1')} stands here twice, unlike: one"
            text += " of the two belongs to another server"
            system.findings.damage("wal", file, unlike.offset, text)


def _is_stray(before: WalRun | None, run: WalRun, after: WalRun | None) -> bool:
    if before is not None and before.last + 1 == run.first and before.term <= run.term:
        return False
    if after is not None and run.first + 1 == after.first and run.term <= after.term:
        return False
    if before is not None and after is not None:
        return before.last + 1 == after.first
    return before is not None or after is not None


def _owner_of(run: WalRun, uid: bytes, found: Runs) -> tuple[bytes, int] | None:
    """The one server in whose records exactly this index is missing, and where."""
    owners = []
    for other, runs in found.items():
        if other == uid:
            continue
        for at in range(1, len(runs)):
            low, high = runs[at - 1], runs[at]
            fits = low.last + 1 == run.first == high.first - 1
            if fits and low.term <= run.term <= high.term:
                owners.append((other, at))
    return owners[0] if len(owners) == 1 else None


def _join(runs: list[WalRun], before: WalRun, after: WalRun) -> None:
    if before.term == after.term and before.sound and after.sound:
        for place in after.places(after.first, after.last):
            before.add(place.index, place.offset, place.size)
        runs.remove(after)


def _owner(system: System, found: Runs, uid: bytes, name: str) -> str | None:
    """The server with a directory and without records in this file whose name or log fits."""
    silent = [
        server
        for server in system.servers.values()
        if server.where and server.uid.encode() not in found
    ]
    if not name.startswith("?"):
        near = [server.uid for server in silent if _differ(server.uid, name) == 1]
        return near[0] if len(near) == 1 else None
    first = found[uid][0].first
    goes_on = [other for other, runs in found.items() if runs[-1].last + 1 == first]
    if len(goes_on) == 1 and goes_on[0] != uid:
        return goes_on[0].decode("latin-1")
    # A checkpoint may be newer than where the segments end.
    fitting = [
        s.uid
        for s in silent
        if first <= 2 or any(end < first <= end + 2 for end in (s.log.last, s.last_index))
    ]
    if len(fitting) == 1:
        return fitting[0]
    behind = [s.uid for s in silent if s.log.last < first]
    return behind[0] if len(behind) == 1 else None


def _differ(one: str, other: str) -> int:
    if len(one) != len(other):
        return len(one) + len(other)
    return sum(a != b for a, b in zip(one, other, strict=True))


def _tell(system: System, file: str, run: WalRun, text: str) -> None:
    count = "a record" if len(run) == 1 else f"{len(run)} records"
    system.findings.damage("wal", file, run.offsets[0], f"{count} {text}")
