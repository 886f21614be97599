"""States to begin with that Ra 3 and members of a cluster leave: made with files of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ra_files import ImproperList, dets, flip, pid, put, snapshot, snapshot_folder

from qindex.brokers.rabbitmq.directory import open_at
from qindex.brokers.rabbitmq.erlang import Atom

from .quorum_nodes import quorum_queues
from .test_quorum_adversary import (
    CONFIG,
    LOG,
    M20,
    SYSTEM,
    UID,
    Read,
    config,
    entries,
    in_log,
    rows,
    state,
    user,
    wal,
)  # fmt: skip

PLACE = f"{SYSTEM}/{UID}/recovery_checkpoint/{snapshot_folder(10, 1)}/snapshot.dat"


# --- recovery checkpoints of Ra 3 -----------------------------------------------------------------


def waits(*indexes: int) -> list[Any]:
    return [ImproperList([index], 2) for index in indexes]


def test_a_recovery_checkpoint_is_the_state_to_begin_with(tmp_path: Path) -> None:
    """A clean stop may leave one, so that a start is fast. Messages 3 and 4 are settled in it."""
    files = {PLACE: snapshot(10, 1, state(waits(5, 6, 7, 8, 9, 10)))}
    read = Read(tmp_path, {**CONFIG, **files, LOG: wal(rows(entries(20))).data})
    assert read.bodies == {"q": in_log(*range(3, 9))}
    assert read.said != []  # the publisher of what follows is not in the state: its numbers are


def test_a_recovery_checkpoint_is_used_with_the_publishers_that_it_knows(tmp_path: Path) -> None:
    told = list(state(waits(5, 6, 7, 8, 9, 10)))
    told[6] = {pid(10): (Atom("enqueuer"), 9, Atom("up"), [])}
    files = {PLACE: snapshot(10, 1, tuple(told))}
    read = Read(tmp_path, {**CONFIG, **files, LOG: wal(rows(entries(20))).data})
    assert read.bodies == {"q": in_log(*range(3, 21))}
    assert read.said == []
    with open_at(tmp_path / "node") as node:
        queue = quorum_queues(node)["/", "q"]
        assert queue.facts()["snapshot_index"] == 10
        assert queue.outcome.snapshot is not None
        assert not queue.outcome.snapshot.truncates


@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_recovery_checkpoint_costs_nothing(tmp_path: Path, how: str) -> None:
    """The log below it is still there."""
    sound = snapshot(10, 1, state(waits(5, 6, 7, 8, 9, 10)))
    data = {"flipped": flip(sound, -40), "cut": sound[:60], "gone": b""}[how]
    name = PLACE if how != "gone" else PLACE.replace("snapshot.dat", "other")
    read = Read(tmp_path, {**CONFIG, name: data, LOG: wal(rows(entries(20))).data})
    assert read.bodies == {"q": M20}
    assert read.said


# --- what a member that lags alone would bring back -----------------------------------------------


def consumed(count: int) -> list[bytes]:
    """A consumer gets everything, and settles so many."""
    who = (b"tag", pid(20))
    spec = (Atom("auto"), 100, Atom("simple_prefetch"))
    return [
        user(Atom("checkout"), who, spec, {}),
        *(user(Atom("settle"), who, [number]) for number in range(count)),
    ]


@pytest.mark.parametrize(("settled", "seen"), [(12, 5), (12, 12), (3, 0)])
def test_what_is_settled_and_would_come_back_with_a_lagging_member_is_counted(
    tmp_path: Path, settled: int, seen: int
) -> None:
    def of(node: str, count: int) -> dict[str, bytes]:
        known = b"".join(b"{'%2F_q','" + each + b"'}," for each in (b"a@b", b"c@d"))[:-1]
        told = config().replace(b"'a@b'", f"'{node}'".encode())
        told = told.replace(b",uid =>", b",initial_members => [" + known + b"],uid =>")
        where, data = f"quorum/{node}", [*entries(20), *consumed(count)]
        notes = dets([(UID.encode(), 1, Atom("undefined"), len(data))])
        return {
            f"{where}/{UID}/config": told,
            f"{where}/00000001.wal": wal(rows(data)).data,
            f"{where}/meta.dets": notes,
            f"{where}/names.dets": dets([]),
        }

    put(tmp_path / "one", of("a@b", settled))
    put(tmp_path / "other", of("c@d", seen))
    for first, other in (("one", "other"), ("other", "one")):
        with open_at(tmp_path / first, [tmp_path / other]) as node:
            (queue,) = quorum_queues(node).values()
            assert [m.body for m in queue.messages()] == M20[settled:]
            texts = [each.text for each in node.findings if each.kind == "lagging member"]
        (text,) = texts
        assert f"0 of its {20 - settled} messages would be missing" in text
        assert f"and {settled - seen} that are settled would come back" in text
        if settled == seen:
            break  # both are alike, and which is called the best says nothing
