"""The tests in C, run in a process beside the tests in Python."""

import json
import os
import signal
import subprocess
import sys
import time

import c_tests

POLL_SECONDS = 0.05


class Rooms:
    """Begins with the first of these tests; their outcomes are known one after the other.

    Several processes that share a test run give the same `folder`: the first of them starts the
    tests in C, and all of them read the same file of outcomes.
    """

    def __init__(self, names, folder):
        self.process = None
        self.known = {}
        self.folder = folder
        try:
            folder.mkdir()
        except FileExistsError:
            return
        with (self.folder / "outcomes").open("xb") as outcomes:
            self.process = subprocess.Popen(
                [sys.executable, c_tests.__file__, "--json", *names],
                env={**os.environ, "TMPDIR": str(self.folder)},
                stdout=outcomes,
                start_new_session=True,  # so that close() ends what it has started, too
            )

    def outcome(self, name):
        """Wait for the end of this test."""
        while name not in self.known:
            ended = self._has_ended()
            self._read()
            if name not in self.known:
                assert not ended, f"{c_tests.__file__} ended without a word about {name}"
                time.sleep(POLL_SECONDS)
        return self.known[name]

    def _has_ended(self):
        if self.process is None:
            return (self.folder / "ended").exists()
        return self.process.poll() is not None

    def _read(self):
        try:
            text = (self.folder / "outcomes").read_text()
        except FileNotFoundError:  # not begun yet, or over
            return
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                outcome = c_tests.Outcome(*json.loads(line))
                self.known[outcome.name] = outcome

    def close(self, others_wait):
        """Nothing of them runs any more. If others wait for outcomes, the tests end first."""
        if self.process is None:
            return
        if not others_wait and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        (self.folder / "ended").touch()
