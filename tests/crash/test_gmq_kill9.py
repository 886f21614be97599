"""gmq's door is killed again and again under pushers and poppers: no job is lost.

gmq's own text has the example: a forced stop when a due job has left its bucket and is not yet in
the ready queue. Here a job is in one place only, and becoming due writes nothing. So kills come
while delayed jobs become due; half of the jobs have a delay. QINDEX_KILLS sets how often.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import threading
import time

import pytest
from broker_process import BrokerProcess

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("QINDEX_KILLS", "4"))
PUSHERS = 3


class Caller:
    """A client of version 1 that waits for each answer."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=600)
        self.answers = self.socket.makefile("rb")

    def call(self, method, parameter):
        request = {"method": f"Service.{method}", "params": [parameter], "id": 1}
        self.socket.sendall(json.dumps(request).encode())
        line = self.answers.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError
        found = json.loads(line)
        return found["result"], found["error"]

    def close(self):
        self.answers.close()
        self.socket.close()


class Worker(threading.Thread):
    """Works until the server dies."""

    def __init__(self, address):
        super().__init__()
        self.caller = Caller(address)

    def run(self):
        try:
            while True:
                self.step()
        except OSError:
            self.caller.close()


class Pusher(Worker):
    def __init__(self, address, name):
        super().__init__(address)
        self.name_, self.sent, self.pushed = name, 0, set()
        self.has_pushed = threading.Event()

    def step(self):
        name = f"{self.name_}-{self.sent}"
        job = {"id": name, "topic": "t", "body": name, "TTR": "60", "delay": str(self.sent % 2)}
        self.sent += 1
        assert self.caller.call("Push", job) == ("success", None)
        self.pushed.add(name)
        if len(self.pushed) == 20:
            self.has_pushed.set()


class Popper(Worker):
    def __init__(self, address):
        super().__init__(address)
        self.asked, self.acked = set(), set()

    def step(self):
        job, _ = self.caller.call("Pop", ["t"])
        if job is not None:
            self.asked.add(job["id"])  # its ack may have been read, or not
            assert self.caller.call("Ack", job["id"]) == (True, None)
            self.acked.add(job["id"])


def serve(directory):
    broker = BrokerProcess("--gmq", "127.0.0.1:0", "--log", "error", directory)
    host, port = re.search(r"on (\S+):(\d+)", broker.process.stdout.readline()).groups()
    return broker, (host, int(port))


def test_no_job_is_lost_and_none_comes_back_in_many_kills(tmp_path):
    dice = random.Random(9)
    pushed, asked, acked = set(), set(), set()
    for round_ in range(KILLS):
        broker, address = serve(str(tmp_path / "data"))
        with broker:
            pushers = [Pusher(address, f"{round_}-{number}") for number in range(PUSHERS)]
            poppers = [Popper(address) for _ in range(2)]
            for worker in (*pushers, *poppers):
                worker.start()
            for pusher in pushers:
                pusher.has_pushed.wait()
            time.sleep(dice.uniform(0, 1.2))  # delayed jobs are becoming due
            broker.end(signal.SIGKILL)
            for worker in (*pushers, *poppers):
                worker.join()
        pushed |= set().union(*(pusher.pushed for pusher in pushers))
        asked |= set().union(*(popper.asked for popper in poppers))
        acked |= set().union(*(popper.acked for popper in poppers))
    time.sleep(1.1)
    broker, address = serve(str(tmp_path / "data"))
    left = set()
    with broker:
        caller = Caller(address)
        while (job := caller.call("Pop", ["t"])[0]) is not None:
            assert job["id"] not in left
            left.add(job["id"])
        caller.close()
    assert acked
    assert pushed - asked <= left, "a job was pushed, and nobody had it"
    assert not acked & left, "a job was acked, and came again"


@pytest.mark.parametrize("seconds", [0.9, 0.98, 1.0, 1.02, 1.1])
def test_gmqs_own_example_a_stop_between_bucket_and_ready_queue_loses_nothing(tmp_path, seconds):
    """Its overview says that a forced stop in the moment when jobs become due loses them."""
    jobs = 50
    broker, address = serve(str(tmp_path / "data"))
    with broker:
        caller = Caller(address)
        for number in range(jobs):
            job = {"id": str(number), "topic": "t", "body": "", "TTR": "0", "delay": "1"}
            assert caller.call("Push", job) == ("success", None)
            if not number:
                due = time.monotonic() + seconds
        time.sleep(max(0, due - time.monotonic()))
        broker.end(signal.SIGKILL)
        caller.close()
    broker, address = serve(str(tmp_path / "data"))
    with broker:
        caller = Caller(address)
        found = [caller.call("Pop", ["t"])[0]["id"] for _ in range(jobs)]
        assert sorted(found, key=int) == [str(number) for number in range(jobs)]
        caller.close()
