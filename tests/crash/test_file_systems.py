"""Power cuts, full disks and failing syncs on real file systems, where the machine allows them.

The long version is tools/disks.py; these show in seconds that nothing is lost, and that the check
would notice.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/disks.py"


def run(*arguments):
    done = subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, timeout=300
    )
    if "NOT TRIED" in done.stdout:
        pytest.skip(done.stdout.partition("NOT TRIED: ")[2].strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("mkfs.ext4") is None,
        reason="power cuts need root and mkfs.ext4",
    ),
]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_power_cut_takes_nothing_that_was_synced(kind):
    assert "8 cuts survived" in run("cut", kind, "--times", "8")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_power_cut_leaves_each_commit_of_many_queues_whole(kind):
    assert "8 cuts survived" in run("groups", kind, "--times", "8")


@pytest.mark.parametrize("trial", ["cut", "groups"])
def test_a_worker_that_does_not_sync_is_noticed(trial):
    assert "the canary was found" in run(trial, "--canary")


def test_a_full_disk_refuses_publishes_and_keeps_the_rest():
    assert run("full").count("room again") == 2


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_failed_sync_stops_the_handle_and_takes_nothing_that_was_synced(kind):
    assert re.search(r"[1-3] times a sync failed", run("sync", kind, "--times", "3"))


def test_a_worker_that_takes_a_failed_sync_for_done_is_noticed():
    assert "the canary was found" in run("sync", "--canary")
