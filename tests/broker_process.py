"""`qindex serve` as a process that listens, on a port that the system chose."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pika


class BrokerProcess:
    """`qindex serve` as a process that listens."""

    def __init__(self, *arguments):
        run = [sys.executable, "-m", "qindex", "serve", "--amqp", "127.0.0.1:0", *arguments]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.line = self.process.stdout.readline()
        address = re.search(r"amqp://(\S+)", self.line)
        if address is None:
            raise AssertionError(self.process.communicate())
        self.url = f"amqp://guest:guest@{address.group(1)}/%2F"

    def end(self, number):
        self.process.send_signal(number)
        self.process.communicate()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


def connect(url):
    """A connection of pika that waits as long as a busy machine takes."""
    patient = "socket_timeout=600&stack_timeout=600&heartbeat=0"
    return pika.BlockingConnection(pika.URLParameters(f"{url}?{patient}"))
