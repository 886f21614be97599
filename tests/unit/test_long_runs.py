"""What the long runs run, and how tools/test.sh fetches what the tests need."""

import re
from pathlib import Path

import nightly

PROJECT = Path(__file__).parents[2]


def test_the_nightly_runs_the_slow_tests_also_under_the_sanitizers():
    commands = {step.name: step.command for step in nightly.steps(8)}
    assert "--slow" in commands["sanitizers"]
    assert "slow and not long" in commands["slow tests"]
    assert "long" in commands["long tests"]


def test_pip_compiles_nothing_that_nobody_may_import():
    text = (PROJECT / "tools" / "test.sh").read_text()
    installs = re.findall(r"pip install .*", text)
    assert ["--no-compile" in each for each in installs] == [True, True]
    assert "PIP_NO_COMPILE" not in re.sub(r"#.*", "", text)  # pip reads it the other way round
