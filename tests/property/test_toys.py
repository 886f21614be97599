"""The machine sees: a right toy passes, each broken one is reported for what is wrong with it."""

import itertools
import os
import subprocess
import sys

import pytest
from toys import BROKEN, ForgetsTheLastPublish, Toy

from qindex.testing import KINDS, QueueBroken, find, machine_for, replay

TestToy = machine_for(Toy).TestCase


@pytest.mark.slow
def test_the_right_toy_keeps_its_promise():
    assert find(Toy, examples=300) is None


@pytest.mark.parametrize("toy", BROKEN, ids=lambda toy: toy.__name__)
@pytest.mark.sample(3)
def test_a_broken_toy_is_found_out(toy, capsys):
    broken = find(toy, examples=200)
    assert broken is not None
    assert broken.violations[0].kind == BROKEN[toy]
    assert len(broken.script.split("\n")) <= 6
    with pytest.raises(QueueBroken, match=BROKEN[toy]):
        replay(toy, broken.script)


SCRIPTS = """
import importlib, sys
from qindex.testing import Run, find
from toys import Toy

for name in sys.argv[1:]:
    importlib.import_module(name)
play = Run.play
Run.play = lambda run, line: (print(line), play(run, line))
assert find(Toy, examples=30) is None
"""


@pytest.mark.slow
def test_the_scripts_are_the_same_whatever_else_is_loaded(tmp_path):
    # Hypothesis' own generator takes numbers from the sources of all modules that are loaded.
    (tmp_path / "other.py").write_text(f"NUMBERS = {list(range(101, 60_000, 997))}\n")

    def scripts(*modules, hash_seed):
        return subprocess.run(
            [sys.executable, "-c", SCRIPTS, *modules],
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
            | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    alone = scripts(hash_seed="1")
    assert "power" in alone
    assert alone == scripts("other", hash_seed="2")


class ForgetsNowAndThen(Toy):
    calls = itertools.count(1)

    def publish(self, body):
        if next(self.calls) % 50:
            return super().publish(body)
        return self.next_id + 500


def test_what_a_queue_does_not_do_again_is_found_too(capsys):
    broken = find(ForgetsNowAndThen, examples=100)
    assert broken is not None
    assert broken.violations[0].kind == "lost"


def test_every_kind_of_violation_but_hanging_has_a_toy():
    assert set(BROKEN.values()) == set(KINDS) - {"hung"}


def test_the_report_is_a_program():
    with pytest.raises(QueueBroken) as caught:
        replay(ForgetsTheLastPublish, "open\npublish 6\nkill\nopen")
    assert str(caught.value) == (
        "lost: message 1 (id 1), published: returned is not there after kill -9\n\n"
        "Replay it:\n\n"
        '    replay(ForgetsTheLastPublish, """\n'
        "        open\n        publish 6\n        kill\n        open\n"
        '    """)'
    )


@pytest.mark.parametrize(
    "line",
    [
        "publish 6",  # not open
        "open 1",
        "dance",
        "power",
        "power x",
        "kill during open",
        "kill during dance at 1",
        "kill softly",
    ],
)
def test_a_step_that_is_none_is_refused(line):
    with pytest.raises(ValueError, match=r"step|open"):
        replay(Toy, line)


@pytest.mark.parametrize("line", ["open", "ack 0", "ack_again", "publish 1 2", "publish -1"])
def test_a_step_that_has_no_turn_is_refused(line):
    with pytest.raises(ValueError, match=r"open|deliver|acked|numbers"):
        replay(Toy, f"open\n{line}")


def test_bodies_that_could_not_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="told apart"):
        machine_for(Toy, sizes=[3])
