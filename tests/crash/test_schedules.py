"""The explorer of schedules: finds nothing in the engine, and each race on purpose."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import schedules as tool
from helpers import run_tool

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_a_program_that_dies_without_a_word_is_a_finding(tmp_path):
    silent = tmp_path / "silent"
    silent.write_text(f"#!{sys.executable}\nimport os\nos.kill(os.getpid(), 11)\n")
    silent.chmod(0o700)
    turns, finding = tool.play(Path(silent), 7, 10)
    assert turns == 0
    assert finding == "exit code -11 in one of 10 schedules from seed 7 on"


@pytest.mark.slow
def test_threads_in_any_schedule_are_told_the_truth():
    ran = run_tool(tool, "--schedules", 5_000)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5,000 schedules" in ran.stdout


@pytest.mark.slow
def test_every_race_on_purpose_is_found():
    ran = run_tool(tool, "--mutants")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found, races = map(int, re.search(r"(\d+) of (\d+) races found", ran.stdout).groups())
    assert found == races == len(tool.races()) >= 4
