"""The entries of a member's log through the machine, and what is done where some are missing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.quorum.consumers import pid_order
from qindex.brokers.rabbitmq.quorum.entries import UsualEntries, read_step, take
from qindex.brokers.rabbitmq.quorum.lenient import Gaps, allow, apply_doubtful, fill, spans
from qindex.brokers.rabbitmq.quorum.machine import SENSELESS, Machine
from qindex.brokers.rabbitmq.quorum.message import called_entry
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.usual import Usual
from qindex.brokers.rabbitmq.ra.log import Block, Entry
from qindex.brokers.tree import Findings
from qindex.words import many


def walk(
    outcome: Outcome, machine: Machine, findings: Findings, until: int | None = None
) -> Iterator[Entry]:
    """Lets the machine do what the entries say, and yields each one behind that."""
    yield from _walk(outcome, machine, *_range(outcome, machine, findings, until))


def take_all(
    outcome: Outcome, machine: Machine, findings: Findings, until: int | None = None
) -> None:
    """The same, many at once, as long as nothing is missing or damaged."""
    gaps, first, last = _range(outcome, machine, findings, until)
    if outcome.scans and not outcome.missing:
        first = _take_blocks(outcome, machine, gaps, first, last)
    for _ in _walk(outcome, machine, gaps, first, last):
        pass


def _range(
    outcome: Outcome, machine: Machine, findings: Findings, until: int | None
) -> tuple[Gaps, int, int]:
    """What is missing in the log, and the first and the last entry to be taken."""
    first = outcome.snapshot.index + 1 if outcome.snapshot else 0
    last = outcome.server.log.last
    gaps = _gaps(outcome, machine, first, findings)
    return gaps, first, last if until is None else min(until, last)


def _walk(outcome: Outcome, machine: Machine, gaps: Gaps, first: int, last: int) -> Iterator[Entry]:
    server, usual = outcome.server, UsualEntries()
    expected = max(first, 1)
    for entry in server.log.entries(first):
        index = entry.index
        if index > last or machine.deleted:
            return
        if index > expected:
            fill(machine, gaps, expected, index - 1)
        if index >= expected:
            expected = index + 1
        if server.is_noted and server.last_applied < index:
            _note_known(machine)
        outcome.entries += 1
        is_sure = outcome.scans and entry.sound and not machine.uncertain and not outcome.missing
        if not (is_sure and usual.take(machine, entry)):
            _take_one(outcome, machine, gaps, entry)
        yield entry


def _take_blocks(outcome: Outcome, machine: Machine, gaps: Gaps, first: int, last: int) -> int:
    """Up to where something is wrong: the index of the entry to go on with one by one."""
    usual = Usual()
    server = outcome.server
    noted = server.last_applied if server.is_noted else last
    for start, stop in ((first, min(noted, last)), (max(first, noted + 1), last)):
        if start > noted:
            _note_known(machine)
        for block in server.log.blocks(start, stop):
            end = _take_block(outcome, machine, gaps, block, usual)
            if end is not None:
                return end
    return last + 1


def _take_block(
    outcome: Outcome, machine: Machine, gaps: Gaps, block: Block, usual: Usual
) -> int | None:
    """None, or the index of the entry to go on with one by one."""
    columns = block.columns
    at, rules, ttl = 0, machine.rules, machine.config.ttl_ms
    rows = usual.rows(machine, block, 0)
    while (row := usual.take(machine, rows)) is not None:
        index = row[0]
        at = bisect_left(columns.indexes, index)
        entry = outcome.server.log.entry_of(block, at)
        if entry is None:
            outcome.entries += at
            return index
        _take_one(outcome, machine, gaps, entry)
        if machine.deleted or machine.uncertain or outcome.missing:
            outcome.entries += at + 1
            return index + 1
        if (rules, ttl) != (machine.rules, machine.config.ttl_ms):
            rules, ttl = machine.rules, machine.config.ttl_ms
            rows = usual.rows(machine, block, at + 1)
    outcome.entries += len(columns)
    return None


def _note_known(machine: Machine) -> None:
    """From here on, a node that starts does what the entries say, and not only for its state.

    So it publishes the dead letters of these entries, also those that it had published before.
    """
    if machine.known is None:
        machine.known = sorted(machine.processes(), key=pid_order)
        machine.passed_on = []


def _take_one(outcome: Outcome, machine: Machine, gaps: Gaps, entry: Entry) -> None:
    if not _apply(machine, gaps, outcome, entry):
        fill(machine, gaps, entry.index, entry.index)
    if machine.deleted:
        outcome.deleted = True


def _gaps(outcome: Outcome, machine: Machine, first: int, findings: Findings) -> Gaps:
    """What is missing in the log from `first` on."""
    log = outcome.server.log
    holes = log.holes(max(first, 1)) if log.runs and log.last >= first else []
    outcome.missing = sum(high - low + 1 for low, high in holes)
    gaps = Gaps(holes)
    if holes:
        counted = many(outcome.missing, "entry of the log is", "entries of the log are")
        outcome.doubt(f"{counted} missing: {spans(holes)}")
        findings.damage("hole", outcome.server.where, 0, outcome.why[-1])
        gaps.look_ahead(log, first, machine.enqueuers)
    return gaps


def _apply(machine: Machine, gaps: Gaps, outcome: Outcome, entry: Entry) -> bool:
    """Lets the machine do what the entry says; False if that cannot be told."""
    if not entry.index:
        return True  # the entry before the first one: it says nothing, whatever became of it
    try:
        step = read_step(entry)
    except ErlangError as error:
        outcome.missing += 1
        outcome.doubt(f"entry {entry.index} cannot be read: {error}")
        return False
    try:
        if not entry.sound:
            outcome.doubtful.add(entry.index)
            outcome.doubt(f"the checksum of {called_entry(entry)} does not match")
            return apply_doubtful(machine, step)
        if gaps.behind(entry.index) or outcome.missing or outcome.doubtful:
            allow(machine, step)
        take(machine, step)
    except SENSELESS as error:
        outcome.doubt(f"entry {entry.index} is no command that is known: {error}")
        machine.unknown["unreadable"] += 1
    return True
