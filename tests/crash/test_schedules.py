"""The explorer of schedules: finds nothing in the engine, and each race on purpose."""

import re
import shutil
import subprocess
import sys

import pytest
import schedules as tool

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def run(*arguments):
    return subprocess.run(
        [sys.executable, tool.__file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_threads_in_any_schedule_are_told_the_truth():
    ran = run("--schedules", 5_000)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5,000 schedules" in ran.stdout


def test_every_race_on_purpose_is_found():
    ran = run("--mutants")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found, races = map(int, re.search(r"(\d+) of (\d+) races found", ran.stdout).groups())
    assert found == races == len(tool.races()) >= 4
