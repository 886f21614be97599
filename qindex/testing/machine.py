"""The Hypothesis machine: random scripts for any adapter, shrunk to the shortest that breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.errors import FlakyFailure
    from hypothesis.stateful import (
        RuleBasedStateMachine,
        precondition,
        rule,
        run_state_machine_as_test,
    )
except ImportError as missing:
    raise ImportError(
        "the state machine needs Hypothesis: pip install 'qindex[testing]'"
    ) from missing

from qindex.testing.adapter import Adapter
from qindex.testing.dice import BACKEND
from qindex.testing.model import label_size
from qindex.testing.run import QueueBroken, Run, shorten

SIZES = (label_size(10_000), 20, 100, 600, 5000)  # every body has room for its label
_seeds = st.integers(0, 2**16)
_moments = st.integers(0, 40)
_picks = st.integers(0, 9)


class QueueMachine(RuleBasedStateMachine):
    """Plays a Run. The adapter, and the sizes of bodies, are set by machine_for()."""

    adapter: type[Adapter]
    sizes: Sequence[int] = SIZES

    def __init__(self) -> None:
        super().__init__()
        self.run = Run(self.adapter)

    def teardown(self) -> None:
        self.run.ground.dispose()

    def can(self, verb: str) -> bool:
        return self.adapter.can(verb)

    def call(self, line: str) -> None:
        """Play this, on an open queue."""
        if not self.run.up:
            self.run.play("open")
        self.run.play(line)

    def size(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(self.sizes), label="size")

    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        self.call(f"publish {self.size(data)}")

    @precondition(lambda self: self.can("publish_many"))
    @rule(data=st.data(), count=st.integers(1, 5))
    def publish_many(self, data: st.DataObject, count: int) -> None:
        sizes = [str(self.size(data)) for _ in range(count)]
        self.call(f"publish_many {' '.join(sizes)}")

    @rule()
    def get(self) -> None:
        self.call("get")

    @precondition(lambda self: self.can("ack") and self.run.model.out())
    @rule(pick=_picks)
    def ack(self, pick: int) -> None:
        self.call(f"ack {pick}")

    @precondition(lambda self: self.run.acked is not None and self.adapter.promise.refuses)
    @rule()
    def ack_again(self) -> None:
        self.call("ack_again")

    @precondition(lambda self: self.can("nack") and self.run.model.out())
    @rule(pick=_picks)
    def nack(self, pick: int) -> None:
        self.call(f"nack {pick}")

    @precondition(lambda self: self.can("sync"))
    @rule()
    def sync(self) -> None:
        self.call("sync")

    @precondition(lambda self: self.can("count"))
    @rule()
    def count(self) -> None:
        self.call("count")

    @precondition(lambda self: self.run.up)
    @rule()
    def close(self) -> None:
        self.call("close")

    @precondition(lambda self: self.adapter.promise.plays("kill"))
    @rule(data=st.data(), between=st.booleans())
    def kill(self, data: st.DataObject, between: bool) -> None:
        if between and not self.run.up:
            self.run.play("open")
        self.crash("kill", data, between)

    @precondition(lambda self: self.adapter.promise.plays("power"))
    @rule(data=st.data(), between=st.booleans(), seed=_seeds)
    def power_cut(self, data: st.DataObject, between: bool, seed: int) -> None:
        self.crash(f"power {seed}", data, between)

    def crash(self, crash: str, data: st.DataObject, between: bool) -> None:
        if not between:
            at = data.draw(_moments, label="at")
            crash = f"{crash} during {self.any_call(data)} at {at}"
        self.run.play(crash)

    def any_call(self, data: st.DataObject) -> str:
        if not self.run.up:
            return "open"
        verbs = ["publish", "get", "close"]
        verbs += [verb for verb in ("publish_many", "sync") if self.can(verb)]
        if self.run.model.out():
            verbs += [verb for verb in ("ack", "nack") if self.can(verb)]
        verb = data.draw(st.sampled_from(verbs), label="verb")
        if verb == "publish":
            return f"publish {self.size(data)}"
        if verb == "publish_many":
            return f"publish_many {self.size(data)} {self.size(data)}"
        return f"{verb} 0" if verb in ("ack", "nack") else verb


# shorten() is quicker than Hypothesis at shrinking: it knows what steps are.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
DEFAULTS = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    phases=_PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def machine_for(adapter: type[Adapter], *, sizes: Sequence[int] = SIZES) -> type[QueueMachine]:
    """A machine for this adapter. ``TestMyQueue = machine_for(MyAdapter).TestCase`` is a test.

    `sizes`: of bodies; below 6 bytes, after many messages, bodies could not be told apart.
    ``TestMyQueue.settings`` are Hypothesis' own: how many examples, of how many steps.
    """
    if min(sizes) < SIZES[0]:
        raise ValueError(f"bodies need {SIZES[0]} bytes or more, to be told apart")
    name = f"{adapter.__name__}Machine"
    made = type(name, (QueueMachine,), {"adapter": adapter, "sizes": tuple(sizes)})

    def run_test(test: Any) -> None:
        broken = _search(made, test.settings)
        if broken is not None:
            raise broken

    case: Any = made.TestCase  # type: ignore[attr-defined]
    case.settings, case.runTest = DEFAULTS, run_test
    return made


def find(
    adapter: type[Adapter], *, examples: int = 200, steps: int = 30, sizes: Sequence[int] = SIZES
) -> QueueBroken | None:
    """The shortest broken promise that so many random scripts come to, or None.

    With the same version of Hypothesis the scripts are the same each time, and so is the answer if
    the queue does the same each time: its calls, their order on the disk, and none longer than
    `adapter.seconds`, which is "hung". If it does not, what it broke once is returned as it was
    played. Cost: `examples` runs, and some more to make what was found shorter.
    """
    chosen = settings(
        DEFAULTS,
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        report_multiple_bugs=False,
        backend=BACKEND,
    )
    return _search(machine_for(adapter, sizes=sizes), chosen)


def _search(machine: type[QueueMachine], chosen: settings) -> QueueBroken | None:
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except QueueBroken as broken:
        return shorten(broken, machine.adapter)
    except FlakyFailure as flaky:
        # Played again it was not broken, so nothing can be said about shorter scripts either.
        for once in flaky.exceptions:
            if isinstance(once, QueueBroken):
                return once
        raise
    return None
