"""Power cuts anywhere in a life with history: what is left is replayed, and compared with what the
engine serves; so is what recovery makes of it and a second life that follows."""

import json
import random

import pytest
from helpers import SMALL, put_files

import qindex
from qindex.cli.main import main
from qindex.testing import SimulatedDisk, abandon
from qindex.testing.simulated import tick

CUTS = 25
KNOBS = {**SMALL, "keep_history": 1 << 20}


def life(store, steps, choose):
    """Publishes, gets, acks, purges, flushes, compactions, and the worker's rounds."""
    queue, out = store.queue("q"), []
    for _ in range(steps):
        way = choose.random()
        if way < 0.1:
            queue.publish(
                b"lane", priority=choose.randrange(3), delay=choose.choice((None, 0.1, 99))
            )
        elif way < 0.45:
            queue.publish(b"x" * choose.randrange(200), persistent=choose.random() < 0.8)
        elif way < 0.7:
            out += queue.get_many(choose.randrange(1, 4))
        elif way < 0.92 and out:
            queue.ack(out.pop(choose.randrange(len(out))))
        elif way < 0.93:
            queue.purge()
        elif way < 0.95:
            store.compact()
        else:
            tick(store)


def verdict_of(files, path, capsys):
    """What --verify says of the files: there must be no difference."""
    put_files(path, files)
    for folder in ("messages", "queues"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    capsys.readouterr()
    main(["replay", str(path), "--verify", "--json"])
    verdicts = json.loads(capsys.readouterr().out)
    assert not any(verdict["difference"] for verdict in verdicts), verdicts
    return verdicts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_replay_and_recovery_agree_after_every_power_cut(tmp_path, capsys, seed):
    choose = random.Random(seed)
    flushes, compared = 0, 0
    for cut in range(CUTS):
        disk = SimulatedDisk(seed=cut, growth_min=4096, mapping=bool(cut % 2))
        store = qindex.open("/", disk=disk, **KNOBS)
        life(store, 150, random.Random(1000 * seed + cut))
        disk.power_cut_at(1 + choose.randrange(300), seed=cut)
        life(store, 150, choose)
        left = disk.taken() or disk.power_cut(seed=cut)
        abandon(store)
        for verdict in verdict_of(left.files(), tmp_path / f"{cut}-cut", capsys):
            # A body may be gone: nobody has recovered yet, and cut the journal before it.
            assert not verdict["error"] or "cannot be read" in verdict["error"]
            compared += verdict["messages"]
        again = qindex.open("/", disk=left, **KNOBS)
        life(again, 60, choose)
        assert again.check() == again.findings
        assert not [f for f in again.findings if f.severity == "damage"]
        again.close()
        for verdict in verdict_of(left.files(), tmp_path / f"{cut}-on", capsys):
            assert verdict["same"], verdict["error"]
            flushes += verdict["flushes"]
            compared += verdict["messages"]
    assert flushes > 5 * CUTS
    assert compared > 20 * CUTS
