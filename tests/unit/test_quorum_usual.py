"""Usual entries go through the machine many at once: the state is what one by one would make it.

Logs of random commands, of every version, are replayed in both ways. Each also as files: in a
segment and in a shared log, cut into blocks of all sizes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack
from ra_files import Wal, pid, put, segment, term

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.quorum import member
from qindex.brokers.rabbitmq.quorum.machine import Machine
from qindex.brokers.rabbitmq.quorum.member import replay
from qindex.brokers.rabbitmq.quorum.outcome import Outcome
from qindex.brokers.rabbitmq.quorum.rules import VERSION_MAX
from qindex.brokers.rabbitmq.quorum.usual import Usual
from qindex.brokers.rabbitmq.ra import runs, segments
from qindex.brokers.rabbitmq.ra.system import Server, open_system
from qindex.brokers.tree import Findings, Tree

NO_REPLY = Atom("noreply")
UID = "2F_QUEUE0000"
PUBLISHERS = [pid(number) for number in (10, 11, 12)]
CONSUMERS = [(b"one", pid(20)), (b"two", pid(20)), (b"three", pid(21))]


class Script:
    """A random log: mostly publishes and settlements, of deliveries that may not exist."""

    def __init__(self, seed: int, version: int) -> None:
        self.dice = random.Random(seed)
        self.version = version
        self.now = 1_790_000_000_000
        self.sent = dict.fromkeys(range(len(PUBLISHERS)), 0)
        self.keys: list[Any] = []
        self.settled: dict[int, int] = {}
        self.entries: list[bytes] = [term((Atom("noop"), {Atom("ts"): self.now}, version))]
        self.user(Atom("update_config"), self.settings())

    def user(self, *command: Any, reply: Any = NO_REPLY) -> None:
        self.now += self.dice.choice([0, 1, 5, 400])
        said = (Atom("$usr"), {Atom("ts"): self.now}, command, reply)
        self.entries.append(term(said))

    def settings(self) -> dict[Any, Any]:
        dice = self.dice
        told: dict[str, Any] = {"dead_letter_handler": Atom("undefined")}
        if dice.random() < 0.3:
            told["dead_letter_handler"] = Atom("at_least_once")
        if dice.random() < 0.2:
            told["max_length"] = dice.choice([0, 3, 20])
        if dice.random() < 0.2:
            told["max_bytes"] = dice.choice([50, 500])
        if dice.random() < 0.3:
            told["msg_ttl"] = dice.choice([0, 300, 5000])
        if dice.random() < 0.2:
            told["single_active_consumer_on"] = Atom("true")
        if dice.random() < 0.3:
            told["delivery_limit"] = 2
        if dice.random() < 0.1:
            told["overflow_strategy"] = Atom("reject_publish")
        return {Atom(name): value for name, value in told.items()}

    def message(self) -> Any:
        body = b"x" * self.dice.choice([1, 10, 300])
        content = (Atom("content"), 60, Atom("none"), b"\0\0", Atom("none"), [body])
        if self.version < 3 or self.dice.random() < 0.1:
            resource = (Atom("resource"), b"/", Atom("exchange"), b"")
            return (Atom("basic_message"), resource, [b"q"], content, b"", Atom("true"))
        notes: dict[Any, Any] = {Atom("x"): b"", Atom("rk"): [b"q"]}
        if self.dice.random() < 0.2:
            notes[Atom("ttl")] = self.dice.choice([0, 200, 10**9])
        if self.dice.random() < 0.3:
            notes[Atom("p")] = self.dice.choice([0, 4, 5, 9, 40])
        if self.dice.random() < 0.05:
            notes[Atom("delivery_count")] = 2
        return (Atom("mc"), Atom("mc_amqpl"), content, notes)

    def publish(self) -> None:
        who = self.dice.randrange(len(PUBLISHERS))
        number = self.sent[who] + self.dice.choice([1] * 20 + [0, 2])
        self.sent[who] = max(number, self.sent[who])
        if self.version >= 4 and self.dice.random() < 0.8:
            reply = (Atom("notify"), number, PUBLISHERS[who])
            self.user(Atom("e"), number, self.message(), (20, 10), reply=reply)
        else:
            self.user(Atom("enqueue"), PUBLISHERS[who], number, self.message())

    def consume(self) -> None:
        who, credit = self.dice.randrange(len(CONSUMERS)), self.dice.choice([1, 2, 10, 500])
        priority = self.dice.choice([0, 0, 0, 5])
        told = {Atom("args"): [(b"x-priority", Atom("long"), priority)], Atom("prefetch"): credit}
        if self.version >= 4:
            mode = self.dice.choice(["simple_prefetch"] * 4 + ["credited"])
            spec: Any = (Atom("auto"), (Atom(mode), credit))
            key: Any = len(self.entries)
        else:
            spec, key = (Atom("auto"), credit, Atom("simple_prefetch")), CONSUMERS[who]
        self.user(Atom("checkout"), CONSUMERS[who], spec, told)
        self.keys.append(key)
        self.settled.setdefault(who, 0)

    def say(self, what: str) -> None:
        if not self.keys:
            return
        at = self.dice.randrange(len(self.keys))
        first = self.settled.get(at, 0)
        count = self.dice.choice([1] * 8 + [2, 5, 40])
        numbers = list(range(first, first + count))
        if self.dice.random() < 0.1:
            self.dice.shuffle(numbers)
        self.settled[at] = first + count - self.dice.choice([0] * 9 + [1])
        self.user(Atom(what), self.keys[at], numbers)

    def rare(self) -> None:
        dice = self.dice
        match dice.randrange(9):
            case 0:
                self.user(Atom("down"), dice.choice(PUBLISHERS), Atom("normal"))
            case 1:
                self.user(Atom("down"), CONSUMERS[0][1], Atom("normal"))
            case 2:
                self.user(Atom("purge"))
            case 3:
                self.user(Atom("update_config"), self.settings())
            case 4:
                self.user(Atom("checkout"), dice.choice(CONSUMERS), Atom("cancel"), {})
            case 5:
                get = (Atom("dequeue"), Atom(dice.choice(["settled", "unsettled"])))
                self.user(Atom("checkout"), (b"get", pid(30)), get, {})
            case 6:
                self.user(Atom("timeout"), Atom("expire_msgs"))
            case 7:
                self.user(Atom("dlx"), (Atom("checkout"), pid(40), 3))
            case 8:
                self.user(Atom("credit"), dice.choice(self.keys or [0]), 5, 0, Atom("false"))

    def run(self, count: int) -> list[bytes]:
        for _ in range(count):
            chance = self.dice.random()
            if chance < 0.5:
                self.publish()
            elif chance < 0.85:
                self.say("settle")
            elif chance < 0.92:
                self.say(self.dice.choice(["return", "discard"]))
            elif chance < 0.96:
                self.consume()
            else:
                self.rare()
        return self.entries


def server_of(path: Path, entries: list[bytes], in_segment: int, term_at: int) -> Server:
    """With the first ones in a segment, the others in the shared log."""
    rows = [(n, 1 if n < term_at else 2, data) for n, data in enumerate(entries, 1)]
    wal = Wal()
    for index, number, data in rows[in_segment:]:
        wal.add(UID, index, data, number)
        if index % 7 == 0:
            wal.add("2F_OTHER0000", index, data, number)
    files = {"00000001.wal": wal.data, f"{UID}/config": b"#{id => {q,a@b}}.", "names.dets": b""}
    if in_segment:
        files[f"{UID}/00000001.segment"] = segment(rows[:in_segment], slots=in_segment + 3)
    put(path, files)
    findings = Findings()
    server = open_system(Tree(path, findings), "", findings).servers[UID]
    assert [f for f in findings.kept if f.severity == "damage"] == []
    return server


def state_of(machine: Machine) -> dict[str, Any]:
    """All that decides what happens next."""
    ready = machine.ready
    lines = {key: rows for key, line in ready.lines.items() if (rows := list(rows_of(line)))}
    return {
        "ready": (lines, ready.odd, ready.taken, ready.length),
        "returns": list(machine.returns),
        "consumers": machine.consumers,
        "waiting": machine.waiting,
        "service": list(machine.service),
        "enqueuers": machine.enqueuers,
        "pending": machine.pending,
        "dead": (list(machine.dead.discards), machine.dead.checked, machine.dead.bytes),
        "delayed": list(machine.delayed),
        "bytes": machine.ready_bytes,
        "last": machine.last_ms,
        "found": machine.found,
        "gone": +machine.gone,
        "unknown": machine.unknown,
    }


def rows_of(line: Any) -> Any:
    for at in range(line._first, len(line._indexes)):
        expiry = line._expiries[at] if line._expiries is not None else 0
        yield line._indexes[at], line._sizes[at], expiry


def both(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Outcome]]:
    """The state behind the last entry, and what a restart gives: many at once, and one by one."""
    found: list[tuple[dict[str, Any], Outcome]] = []
    states: list[dict[str, Any]] = []
    finish = member.finish

    def noted(outcome: Outcome, machine: Machine, findings: Findings) -> None:
        states.append(state_of(machine))
        finish(outcome, machine, findings)

    with monkeypatch.context() as patch:
        patch.setattr(member, "finish", noted)
        for scans in (True, False):
            outcome = replay(server, Findings(), scans=scans)
            found.append((states.pop(), outcome))
    return found


def agreed(server: Server, monkeypatch: pytest.MonkeyPatch, what: str) -> Outcome:
    """What both ways give."""
    (fast, one), (slow, other) = both(server, monkeypatch)
    assert fast == slow, what
    assert one.entries == other.entries
    assert list(one.indexes) == list(other.indexes)
    assert one.odd == other.odd
    assert one.dead == other.dead
    assert (one.found, +one.gone, one.why) == (other.found, +other.gone, other.why)
    return one


@pytest.mark.parametrize("name", ["q1", "q2", "c3", "n42", "n43"])
def test_logs_of_real_nodes_and_libraries(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops, taken = [0], 0
    take = Usual.take

    def counted(usual: Usual, machine: Machine, rows: Any) -> Any:
        stopped = take(usual, machine, rows)
        stops[0] += stopped is not None
        return stopped

    monkeypatch.setattr(Usual, "take", counted)
    archive = Path(__file__).parents[1] / "compat" / "data" / f"quorum_{name}.tar.xz"
    for where in unpack(archive, tmp_path).glob("**/quorum/*"):
        findings = Findings()
        for server in open_system(Tree(where, findings), "", findings).servers.values():
            if server.where:
                taken += agreed(server, monkeypatch, server.uid).entries
    assert taken - stops[0] > 50


@pytest.mark.parametrize("version", range(VERSION_MAX + 1))
@pytest.mark.parametrize("block", [1, 7, 512])
@pytest.mark.sample(3)
def test_random_logs(
    tmp_path: Path, version: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(tmp_path, version, block, range(4), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("version", range(VERSION_MAX + 1))
def test_many_random_logs(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in (3, 64):
        compare(tmp_path / str(block), version, block, range(10, 50), monkeypatch)


def compare(
    tmp_path: Path, version: int, block: int, rounds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "COLUMNS_MAX", block)
    monkeypatch.setattr(runs, "COLUMNS_MAX", block)
    for round_ in rounds:
        seed = 100 * round_ + 10 * version + block
        entries = Script(seed, version).run(250)
        dice = random.Random(seed)
        in_segment = dice.choice([0, len(entries) // 2, len(entries)])
        server = server_of(tmp_path / str(round_), entries, in_segment, dice.randrange(1, 250))
        one = agreed(server, monkeypatch, f"seed {seed}")
        assert one.entries == len(entries)
