"""Power cuts and full disks on real file systems, where root and loop devices allow them.

The long version is tools/powercut.py; this one shows in seconds that nothing is lost, and that the
check would notice.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

POWERCUT = Path(__file__).resolve().parents[2] / "tools" / "powercut.py"


def powercut(*arguments):
    done = subprocess.run(
        [sys.executable, str(POWERCUT), *arguments], capture_output=True, text=True, timeout=300
    )
    if "NOT TRIED" in done.stdout:
        pytest.skip(done.stdout.partition("NOT TRIED: ")[2].strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mkfs.ext4") is None,
    reason="power cuts need root and mkfs.ext4",
)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_power_cut_takes_nothing_that_was_synced(kind):
    assert "8 cuts survived" in powercut(kind, "--cuts", "8")


def test_a_worker_that_does_not_sync_is_noticed():
    assert "the canary was found" in powercut("--canary")


def test_a_full_disk_refuses_publishes_and_keeps_the_rest():
    assert powercut("full").count("room again") == 2
