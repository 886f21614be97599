"""One node's files of a quorum queue: what a node would have after a restart with them.

The newest snapshot that can be read is taken, then the log above it, entry by entry, then what the
first leader finds: no client lives any more, so that what was delivered waits again.

`exact` is False where the files cannot tell everything:

* Entries are missing in the middle. Each may have been a publish, as far as the publishers' own
  numbers do not tell otherwise: an empty place goes through the queue in its stead, so that no
  message is taken for one that was settled. If it was a delivery, messages that were settled
  behind it may be others than those that are left out: `maybe` counts them.
* Many messages came back at once, in an order that only the node's Erlang knows: see mixed.py.
  Which of them were settled later may not be known; `counts` has limits of their delivery counts.
* The state is missing, since the snapshot is lost and the log below it is gone. All messages that
  the log has are given, but for those that it says were moved to a later entry: an upper bound.
"""

from __future__ import annotations

from typing import Any, Final

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.message import MessageError
from qindex.brokers.rabbitmq.quorum.attendance import config_of, restart
from qindex.brokers.rabbitmq.quorum.entries import read_step
from qindex.brokers.rabbitmq.quorum.held import Held
from qindex.brokers.rabbitmq.quorum.lenient import PLACES_MAX, spans
from qindex.brokers.rabbitmq.quorum.machine import Machine
from qindex.brokers.rabbitmq.quorum.message import read
from qindex.brokers.rabbitmq.quorum.outcome import SPARSE_FROM, Outcome
from qindex.brokers.rabbitmq.quorum.state import NO_ENTRY, StateError, read_state
from qindex.brokers.rabbitmq.quorum.strangers import compare_with_state, sizes_of, tell_refused
from qindex.brokers.rabbitmq.quorum.walk import take_all
from qindex.brokers.rabbitmq.ra.snapshot import Snapshot
from qindex.brokers.rabbitmq.ra.system import Server
from qindex.brokers.tree import Findings
from qindex.words import many

_MISSING_PART: Final = 4  # a log with more than one of so many missing does not tell the state
GHOST: Final = -2  # the index of what may have been a message, whose entry is missing


def replay(
    server: Server,
    findings: Findings,
    until: int | None = None,
    *,
    scans: bool = True,
    salvages: bool = False,
) -> Outcome:
    """What a node gives after a restart, or would have given behind entry `until`.

    What has expired since the last entry is among the live messages, with its expiry. Without
    `scans` each entry is decoded, also one in a usual shape. With `salvages` a queue whose log ends
    with its deletion is given as it was before. Linear in the length of the log.
    """
    outcome = Outcome(server, scans=scans)
    machine = begin(outcome, findings, until)
    if machine is None:
        _all_in_log(outcome, findings)
        return outcome
    take_all(outcome, machine, findings, until)
    if until is None and not outcome.deleted:
        _compare_with_notes(outcome, findings)
    if salvages or not outcome.deleted:
        finish(outcome, machine, findings)
    return outcome


def _compare_with_notes(outcome: Outcome, findings: Findings) -> None:
    """The node notes now and then up to which entry it had come: so far the log has to go."""
    server = outcome.server
    missing = server.last_applied - server.last_index if server.is_noted else 0
    if missing > 0:
        counted = many(missing, "entry is", "entries are")
        outcome.missing_end = missing
        text = f"{counted} missing at the end of the log: the node had applied entry"
        outcome.doubt(f"{text} {server.last_applied}, the last one here is {server.last_index}")
        findings.damage("missing", server.where, 0, outcome.why[-1])


def begin(outcome: Outcome, findings: Findings, until: int | None = None) -> Machine | None:
    """The machine to begin with: of a snapshot, or empty if the log goes back to its beginning.

    None if nothing tells a state at or before entry `until`.
    """
    server = outcome.server
    log, whole = server.log, None
    for snapshot in server.snapshots:
        if until is not None and snapshot.index > until:
            continue
        if snapshot.index < log.last and not log.runs:
            continue
        machine = _of_snapshot(snapshot, findings)
        if machine is None:
            continue
        complete = not log.runs or not log.holes(snapshot.index + 1)
        if complete or whole is None:
            whole = (snapshot, machine)
        if complete:
            break
    from_start = not server.snapshots or not log.holes(1)
    begins = log.first <= 1 or not log.runs
    missing = sum(high - low + 1 for low, high in log.holes(1)) if log.runs else 0
    begins = begins and missing * _MISSING_PART <= len(log)  # the log of 4.3 keeps some entries
    if whole is not None and not (from_start and begins and not whole[0].sound):
        outcome.snapshot, machine = whole
        if not outcome.snapshot.sound:
            outcome.doubt("the snapshot's checksum does not match: it may tell wrong things")
        outcome.named, outcome.sizes = machine.named, sizes_of(machine)
        return machine
    if begins and (from_start or not server.snapshots):
        return _empty(server)
    return None


def _of_snapshot(snapshot: Snapshot, findings: Findings) -> Machine | None:
    try:
        return read_state(snapshot.state(), snapshot.machine_version)
    except (StateError, ErlangError) as error:
        findings.damage("snapshot", snapshot.where, snapshot.offset, str(error))
        return None


def _empty(server: Server) -> Machine:
    machine = Machine()
    match (server.config or {}).get("machine"):
        case ("module", _, dict(settings)):
            machine.config = config_of(settings)
    return machine


def _members(outcome: Outcome) -> int:
    """By the snapshot, or by what the server was started with."""
    if outcome.snapshot is not None and outcome.snapshot.members:
        return outcome.snapshot.members
    members = (outcome.server.config or {}).get("initial_members")
    return max(1, len(members)) if isinstance(members, list) else 1


def finish(outcome: Outcome, machine: Machine, findings: Findings) -> None:
    """The restart, and what is live then."""
    server = outcome.server
    outcome.version = machine.version
    if not machine.is_known:
        outcome.doubt(f"version {machine.version} of the queue's state machine is not known")
    if machine.unknown:
        told = ", ".join(f"{name} ({count})" for name, count in machine.unknown.most_common(5))
        outcome.doubt(f"commands that are not known: {told}")
    outcome.maybe = machine.maybe
    if machine.maybe:
        counted = many(machine.maybe, "message was", "messages were")
        text = f"{counted} settled behind what is missing: if a delivery is"
        outcome.doubt(f"{text} missing, others than these may be among those that are live")
    _count_unplaced(outcome, machine)
    restart(machine)
    outcome.found, outcome.gone = machine.found, machine.gone
    outcome.members = machine.members or _members(outcome)
    _check_below(outcome, findings)
    _tell_missing_below(outcome, findings)
    while machine.returns:
        _keep(outcome, machine.returns.popleft())
    ready = machine.ready
    while len(ready):
        _keep(outcome, ready.take())
    for ready_ms, message in machine.delayed:
        outcome.delayed[message.index] = ready_ms
        _keep(outcome, message)
    for reason, message in (*machine.dead, *(machine.passed_on or ())):
        if _has_entry(outcome, message):
            outcome.dead.append((reason, message))
    if outcome.missing_end:
        outcome.add_missing_end(outcome.missing_end)
    if outcome.bodiless:
        counted = many(outcome.lost["without a body"], "live message has", "live messages have")
        text = f"{counted} no entry in any file, {outcome.bodiless} for one: the bodies are lost"
        findings.damage("message lost", server.where, 0, text)
    for why in outcome.why:
        findings.damage("uncertain", server.where, 0, why)
    _tell_mixed(outcome, machine, findings)
    compare_with_state(outcome, machine, findings)
    tell_refused(outcome, machine, findings)


def _count_unplaced(outcome: Outcome, machine: Machine) -> None:
    if not machine.unplaced:
        return
    outcome.lost["entry missing"] += machine.unplaced
    counted = many(machine.unplaced, "missing publish", "missing publishes")
    text = f"{counted} above the first {PLACES_MAX:,} of the log: which of them were settled"
    outcome.doubt(f"{text} is not looked for, so at most so many messages are lost with them")


def _tell_missing_below(outcome: Outcome, findings: Findings) -> None:
    """A checkpoint needs no entry below it, but the bodies are there, down to a snapshot."""
    snapshot, log = outcome.snapshot, outcome.server.log
    if snapshot is None or snapshot.machine_version > SPARSE_FROM or not log.runs:
        return
    floor = max((each.index for each in outcome.server.snapshots if each.truncates), default=0)
    holes = log.holes(floor + 1, snapshot.index) if floor < snapshot.index else []
    outcome.missing_below = sum(high - low + 1 for low, high in holes)
    if holes:
        counted = many(outcome.missing_below, "entry", "entries")
        text = f"{counted} below the state at entry {snapshot.index} missing: {spans(holes)}"
        findings.damage("hole", outcome.server.where, 0, text)


def _tell_mixed(outcome: Outcome, machine: Machine, findings: Findings) -> None:
    """What is not known because messages came back in an order that only Erlang knows."""
    mixed, where = machine.mixed, outcome.server.where
    outcome.unordered = mixed.count
    if not mixed.groups:
        return
    live = {
        index: outcome.odd[index].deliveries or 0
        for index in outcome.indexes
        if index in mixed.groups and index in outcome.odd
    }
    unsure = mixed.end(live, machine.last_ms, by_bytes=machine.config.bytes_max is not None)
    outcome.counts, outcome.others = unsure.counts, unsure.others
    counted = many(mixed.count, "message was", "messages were")
    text = f"{counted} given back many at once: the order of Erlang 25 is assumed for them"
    findings.note("order", where, 0, text)
    if outcome.counts:
        counted = many(len(outcome.counts), "delivery count is", "delivery counts are")
        findings.note("order", where, 0, f"{counted} not sure, if the node's Erlang is another one")
    sure = "if the node's Erlang does not order them as Erlang 25 does,"
    if unsure.loose:
        text = f"{sure} other messages may have been dropped at a limit, or delivered and settled"
    elif outcome.others:
        counted = many(outcome.others, "live message", "live messages")
        text = f"{sure} up to {counted} may be others, which were given back with them"
    else:
        return
    outcome.doubt(text)
    findings.suspected("order", where, 0, text)


def _check_below(outcome: Outcome, findings: Findings) -> None:
    """The entries up to the snapshot, which were not played, but may have live messages.

    Those of which no message can be read are in `unreadable`.
    """
    if outcome.snapshot is None:
        return
    log = outcome.server.log
    for block in log.blocks(0, outcome.snapshot.index):
        bad = block.bad if block.data else range(len(block.columns))
        for index in [block.columns.indexes[at] for at in bad]:
            entry = log.entry(index)
            if entry is not None and entry.sound:
                continue
            outcome.doubtful.add(index)
            try:
                read(log, Held(index))
            except MessageError:
                outcome.unreadable.add(index)


def _keep(outcome: Outcome, message: Held) -> None:
    if not _has_entry(outcome, message):
        return
    outcome.indexes.append(message.index)
    outcome.body_bytes += message.size
    if message.expiry_ms:
        outcome.expiring += 1
    seen = message.acquired if message.acquired is not None else message.deliveries
    if seen:
        outcome.redelivered += 1
    if message.expiry_ms or message.deliveries or message.acquired or message.notes:
        outcome.odd[message.index] = message


def _has_entry(outcome: Outcome, message: Held) -> bool:
    """Whether the message's body is anywhere; if not, it is lost."""
    if outcome.is_settled(message.index):
        outcome.gone["acked"] += 1
        return False
    if message.index == GHOST:
        outcome.lost["entry missing"] += 1
    elif message.index == NO_ENTRY or not outcome.server.log.has(message.index):
        outcome.lost["without a body"] += 1
        outcome.bodiless = outcome.bodiless or max(message.index, 1)
    elif message.index in outcome.unreadable:
        outcome.lost["damaged"] += 1
    else:
        return True
    return False


def _was_cut(server: Server) -> bool:
    """Whether there was a snapshot, below which the log is cut off."""
    try:
        return bool(server.where and server.log.tree.folders(f"{server.where}/snapshots"))
    except OSError:
        return False


def _all_in_log(outcome: Outcome, findings: Findings) -> None:
    """Without a state: every message that the log has, but for those that were moved."""
    log = outcome.server.log
    why = "neither a snapshot nor the beginning of the log can be read: messages that were settled"
    outcome.doubt(f"{why} are among those that are told")
    outcome.has_state = False
    holes = log.holes(max(log.first, 1) if _was_cut(outcome.server) else 1)
    outcome.missing = sum(high - low + 1 for low, high in holes)
    if holes:
        counted = many(outcome.missing, "entry of the log is", "entries of the log are")
        text = f"{counted} missing: {spans(holes)}; at most so many messages are lost with them"
        outcome.doubt(text)
    outcome.lost["entry missing"] += outcome.missing
    indexes: dict[int, None] = {}
    for entry in log.entries():
        outcome.entries += 1
        try:
            command: Any = read_step(entry).command
        except ErlangError as error:
            outcome.lost["entry missing"] += 1
            outcome.found += 1
            findings.damage("entry", entry.where, entry.offset, f"entry {entry.index}: {error}")
            continue
        match command:
            case ("enqueue" | "e", *_):
                indexes[entry.index] = None
                outcome.found += 1
            case ("requeue", _, _, int(old), *_):
                indexes.pop(old, None)
                indexes[entry.index] = None
                outcome.found += 1
                outcome.gone["moved"] += 1
        if not entry.sound:
            outcome.doubtful.add(entry.index)
    outcome.indexes.extend(indexes)
    outcome.found = len(indexes) + outcome.gone["moved"] + sum(outcome.lost.values())
    for why in outcome.why:
        findings.damage("uncertain", outcome.server.where, 0, why)
