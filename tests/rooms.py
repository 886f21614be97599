"""The tests in C, run in a process beside the tests in Python."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import c_tests


class Rooms:
    """Begins with the first of these tests; their outcomes are known one after the other."""

    def __init__(self, names):
        self.known = {}
        self.folder = tempfile.mkdtemp(prefix="qindex-rooms-")
        self.process = subprocess.Popen(
            [sys.executable, c_tests.__file__, "--json", *names],
            env={**os.environ, "TMPDIR": self.folder},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that close() ends what it has started, too
        )

    def outcome(self, name):
        """Wait for the end of this test."""
        while name not in self.known:
            line = self.process.stdout.readline()
            assert line, f"{c_tests.__file__} ended with {self.process.wait()}"
            outcome = c_tests.Outcome(*json.loads(line))
            self.known[outcome.name] = outcome
        return self.known[name]

    def close(self):
        """Nothing of them runs any more."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
