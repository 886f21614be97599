"""One run: a queue, its model, and steps that are played on both. A script is a run as text.

A script has one step a line::

    open                            what it shows is compared with the model
    publish 20                      a body of 20 bytes
    publish_many 10 20 30
    get
    ack 0                           the 0th of those that are delivered
    ack_again                       the last one once more, which must be refused
    nack 0
    sync
    count
    close
    kill                            kill -9, between two calls
    power 17                        a power cut; the number decides what is left
    kill during publish 20 at 1     after one operation of the call on the disk
    power 17 during open at 3
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from qindex.testing.adapter import Adapter, Answer
from qindex.testing.ground import CallFailed, CallHung, Ground, MemoryAdapter, MemoryGround
from qindex.testing.invariants import (
    KINDS,
    Violation,
    check_count,
    check_got,
    check_ids,
    check_reopened,
    next_of,
)
from qindex.testing.model import Id, Model, Seen, Sent
from qindex.testing.promise import Crash

# With how many numbers each verb goes; -1: any.
VERBS: Final = {
    "open": 0,
    "publish": 1,
    "publish_many": -1,
    "get": 0,
    "ack": 1,
    "ack_again": 0,
    "nack": 1,
    "sync": 0,
    "count": 0,
    "close": 0,
}


class QueueBroken(AssertionError):
    """The queue broke its promise: `violations` says how, `script` replays it."""

    def __init__(self, adapter: type[Adapter], violations: Sequence[Violation], script: str):
        self.violations = list(violations)
        self.script = script
        lines = "\n".join(map(str, violations))
        steps = textwrap.indent(script, "        ")
        replayed = f'    replay({adapter.__name__}, """\n{steps}\n    """)'
        super().__init__(f"{lines}\n\nReplay it:\n\n{replayed}")


class Run:
    """Steps on a queue and on its model. The first broken promise raises QueueBroken.

    A context manager; the queue and its files go with it.
    """

    def __init__(self, adapter: type[Adapter]) -> None:
        self.adapter = adapter
        self.model = Model(adapter.promise)
        self.ground = ground_for(adapter)
        self.lines: list[str] = []
        self.up = False
        self.unclean: Crash | None = None  # what came since the last close
        self._numbers: dict[int, int] = {}  # serial -> what the stand calls the delivery
        self.acked: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ground.dispose()

    @property
    def script(self) -> str:
        """The steps so far."""
        return "\n".join(self.lines)

    def play(self, line: str) -> None:
        """One step, as text. Raises QueueBroken; ValueError for what is not a step or has no turn.

        Cost: that of the calls; open reads everything.
        """
        crash, call, at = _parse(line)
        verb = call[0] if call else ""
        if crash is None or call:
            if (verb == "open") == self.up:
                raise ValueError(f"{line!r}: the queue is {'open' if self.up else 'not open'}")
            if verb != "open" and verb not in ("close", "ack_again") and not self.adapter.can(verb):
                raise ValueError(f"{line!r}: {self.adapter.__name__} has no {verb}()")
        self.lines.append(line)
        if crash is None:
            self._guarded(verb, *map(int, call[1:]))
        else:
            self._crash(*crash, at, call)

    def _guarded(self, verb: str, *numbers: int) -> None:
        try:
            getattr(self, f"_{verb}")(*numbers)
        except CallFailed as failed:
            kind = "unreadable" if verb == "open" else "failed"
            self._report([Violation(kind, f"{verb}: {failed}")])
        except CallHung as hung:
            self._report([Violation("hung", str(hung))])

    def _report(self, violations: Sequence[Violation]) -> None:
        if violations:
            raise QueueBroken(self.adapter, violations, self.script)

    # --- calls -----------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.model.sent:
            shown = [_seen(answer) for answer in self.ground.look(len(self.model.sent) + 8)]
            violations, known = check_reopened(self.model, shown, self.unclean)
            self._report(violations)
            self.model.accept(known)
        self.ground.begin()
        self.ground.call("open", self.ground.place)
        self.up, self.unclean = True, None
        self._numbers = {}

    def _publish(self, size: int) -> None:
        [message] = self.model.publishing([size])
        self._published([message], [self.ground.call("publish", _text(message))])

    def _publish_many(self, *sizes: int) -> None:
        messages = self.model.publishing(sizes, batch=True)
        self._published(messages, self.ground.call("publish_many", [_text(m) for m in messages]))

    def _published(self, messages: list[Sent], ids: list[Id | None]) -> None:
        self._report(check_ids(self.model, ids))
        self.model.published(messages, ids)

    def _get(self) -> None:
        answer = self.ground.call("get")
        violations, message = check_got(self.model, None if answer is None else _seen(answer))
        self._report(violations)
        if message is not None:
            self._numbers[message.serial] = answer["number"]
            self.model.delivered(message)
            if not self.adapter.can("ack"):
                self.model.removed([message])

    def _ack(self, index: int) -> None:
        message = self._out(index)
        self.acked = self._numbers[message.serial]
        self.ground.call("ack", self.acked)
        self.model.removed([message])

    def _ack_again(self) -> None:
        if self.acked is None:
            raise ValueError("nothing was acked since the queue was opened")
        try:
            self.ground.call("ack", self.acked)
        except CallFailed:
            return
        if self.model.promise.refuses:
            self._report([Violation("not refused", "a message could be acked twice")])

    def _nack(self, index: int) -> None:
        message = self._out(index)
        self.ground.call("nack", self._numbers[message.serial])
        self.model.given_back([message])

    def _out(self, index: int) -> Sent:
        out = self.model.out()
        if not out:
            raise ValueError("nothing is delivered")
        return out[index % len(out)]

    def _sync(self) -> None:
        self.ground.call("sync")
        self.model.synced()

    def _count(self) -> None:
        self._report(check_count(self.model, self.ground.call("count")))

    def _close(self) -> None:
        self.ground.call("close")
        self.ground.end()
        self.model.closed()
        self.up, self.acked = False, None

    # --- crashes ---------------------------------------------------------------------------------

    def _crash(self, kind: Crash, seed: int, at: int, call: list[str]) -> None:
        try:
            if call:
                arguments = self._begin(call[0], *map(int, call[1:]))
                done = self.ground.crash_during(kind, seed, at, call[0], *arguments)
                self.lines[-1] = f"{self.lines[-1].rpartition(' ')[0]} {done}"
            else:
                self.ground.crash(kind, seed)
        except CallHung as hung:
            self._report([Violation("hung", str(hung))])
        self.model.crashed()
        self.acked = None
        needed = self.model.promise.needed
        self.unclean = max(self.unclean or kind, kind, key=needed)
        self.up = False

    def _begin(self, verb: str, *numbers: int) -> list[object]:
        """The call's arguments; the model learns that its outcome will be in doubt."""
        if verb == "open":
            self.ground.begin()
            return [self.ground.place]
        if verb in ("publish", "publish_many"):
            messages = self.model.publishing(numbers, batch=verb == "publish_many")
            texts = [_text(message) for message in messages]
            return [texts] if verb == "publish_many" else [texts[0]]
        if verb in ("ack", "nack"):
            message = self._out(numbers[0])
            if verb == "ack":
                self.model.removing([message])
            return [self._numbers[message.serial]]
        if verb == "get":
            candidates = next_of(self.model, self.model.ready())
            for message in candidates:
                message.maybe_delivered = True
            if not self.adapter.can("ack"):
                self.model.removing(candidates)
        return []


def ground_for(adapter: type[Adapter]) -> Ground:
    """The ground that this kind of adapter stands on."""
    if issubclass(adapter, MemoryAdapter):
        return MemoryGround(adapter)
    from qindex.testing.process import ProcessGround

    return ProcessGround(adapter)


def replay(adapter: type[Adapter], script: str) -> None:
    """Play a script on a fresh queue. Raises QueueBroken as the run did that it came from."""
    with Run(adapter) as run:
        for line in script.split("\n"):
            if line.strip():
                run.play(line.strip())


def shorten(broken: QueueBroken, adapter: type[Adapter]) -> QueueBroken:
    """A broken promise as bad or worse with fewer steps, if there is one.

    Leaves out steps, simplifies calls, then tries other seeds for power cuts, until nothing helps.
    Cost: some hundred replays.
    """
    rank, better = _rank(broken), True
    while better:
        better = False
        for candidate in _simpler(broken.script.split("\n")):
            try:
                replay(adapter, "\n".join(candidate))
            except QueueBroken as shorter:
                if _rank(shorter) <= rank:
                    broken, rank, better = shorter, _rank(shorter), True
                    break
            except ValueError:
                continue  # a step has no turn there
    return broken


def _rank(broken: QueueBroken) -> int:
    return list(KINDS).index(broken.violations[0].kind)


def _simpler(lines: list[str]) -> Iterator[list[str]]:
    """Scripts to try instead of this one, the most promising first; each is shorter or plainer."""
    fewer = [
        lines[:index] + lines[index + width :]
        for width in (16, 8, 4, 2, 1)
        for index in range(len(lines) - width + 1)
    ]
    yield from fewer
    for index, line in enumerate(lines):
        for plainer in _plainer(line.split()):
            yield [*lines[:index], *plainer, *lines[index + 1 :]]
    if len(lines) <= 14:  # two at a time, what stands apart: a crash and its twin, say
        for width in (1, 2):
            for first, second in itertools.combinations(range(len(lines) - width + 1), 2):
                if second >= first + width:
                    yield (lines[:first] + lines[first + width : second] + lines[second + width :])
    for script in [script for script in fewer if len(script) == len(lines) - 1]:
        cuts = [index for index, line in enumerate(script) if line.startswith("power")]
        for seed in range(32 if len(cuts) == 1 else 0):
            words = script[cuts[0]].split()
            again = " ".join([words[0], str(seed), *words[2:]])
            yield [*script[: cuts[0]], again, *script[cuts[0] + 1 :]]


def _plainer(words: list[str]) -> Iterator[list[str]]:
    """A step as words, as what may be put in its place."""
    if words[0] == "power":
        for seed in range(min(int(words[1]), 3)):
            yield [" ".join([words[0], str(seed), *words[2:]])]
    if "during" in words:
        place = words.index("during")
        crash, call = " ".join(words[:place]), " ".join(words[place + 1 : -2])
        yield [crash] if call in ("close", "open") else [call, crash]
        for at in range(min(int(words[-1]), 4)):
            yield [" ".join([*words[:-1], str(at)])]
    if words[0] == "publish_many" and len(words) > 2:
        yield [" ".join(words[:-1])]
        yield [" ".join([words[0], *words[2:]])]
    if words[0].startswith("publish"):
        for place in range(1, len(words)):
            for size in (6, 20, 100, 600):
                if int(words[place]) > size:
                    yield [" ".join([*words[:place], str(size), *words[place + 1 :]])]


def _seen(answer: Answer) -> Seen:
    return Seen(answer["body"].encode("latin-1"), answer["id"], answer["redelivered"])


def _text(message: Sent) -> str:
    return message.body.decode("latin-1")


def _parse(line: str) -> tuple[tuple[Crash, int] | None, list[str], int]:
    """The crash with its seed, the call, and the operation at which the crash comes."""
    words = line.split()
    crash: tuple[Crash, int] | None = None
    at = 0
    try:
        if words[0] == "kill":
            crash, words = ("kill", 0), words[1:]
        elif words[0] == "power":
            crash, words = ("power", int(words[1])), words[2:]
        if crash is not None and words:
            if words[0] != "during" or words[-2] != "at":
                raise ValueError("after a crash comes: during CALL at NUMBER")
            at, words = int(words[-1]), words[1:-2]
        if crash is None or words:
            wanted = VERBS[words[0]]
            if wanted not in (-1, len(words) - 1) or not all(map(str.isdigit, words[1:])):
                raise ValueError(f"{words[0]} goes with {wanted} numbers")
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"{line!r} is not a step of a script: {error}") from None
    return crash, words, at
