"""Celery's own worker on a broker that is killed again and again: each task is done.

Tasks have an ETA, and some are tried again. Nothing of the application knows of the kills: Celery
connects again, and what it had not acked comes again. QINDEX_CELERY_TASKS and QINDEX_CELERY_KILLS
say how many.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from broker_process import BrokerProcess

celery = pytest.importorskip("celery")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
TASKS = int(os.environ.get("QINDEX_CELERY_TASKS", "200"))
KILLS = int(os.environ.get("QINDEX_CELERY_KILLS", "3"))
IDLE_SECONDS_MAX = 120  # without one more task that is done
ETA_SECONDS_MAX = 5.0
APPLICATION = """
import os
from celery import Celery

app = Celery("work", broker=os.environ["BROKER"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    task_publish_retry_policy={"max_retries": None, "interval_max": 0.5},
)

@app.task(bind=True, max_retries=None)
def note(self, number):
    if number % 5 == 0 and self.request.retries == 0:
        raise self.retry(countdown=1)
    with open(os.environ["DONE"], "a") as file:
        file.write(f"{number} {self.request.retries}\\n")
"""


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@pytest.fixture
def worker(tmp_path, port):
    """A worker in a process, its environment, and the file of what it has done."""
    (tmp_path / "work.py").write_text(APPLICATION)
    done = tmp_path / "done"
    done.touch()
    environment = {
        **os.environ,
        "BROKER": f"pyamqp://guest:guest@127.0.0.1:{port}//",
        "DONE": str(done),
    }
    # In threads: the pool of processes may read half a result after many reconnections, and end.
    run = [sys.executable, "-m", "celery", "-A", "work", "worker", "-l", "error"]
    run += ["-P", "threads", "-c", "4"]
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(run, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            yield done
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def publish(port):
    """All tasks, each with an ETA, in the time that the kills take."""
    app = celery.Celery("work", broker=f"pyamqp://guest:guest@127.0.0.1:{port}//")
    app.conf.broker_transport_options = {"confirm_publish": True}
    policy = {"max_retries": None, "interval_max": 0.5}
    dice = random.Random(1)
    for number in range(TASKS):
        app.send_task(
            "work.note",
            [number],
            countdown=dice.uniform(0, ETA_SECONDS_MAX),
            retry=True,
            retry_policy=policy,
        )


def done_in(file):
    """By number: how often each task was done, and tried before."""
    found = {}
    for line in file.read_text().splitlines():
        number, retries = map(int, line.split())
        found.setdefault(number, []).append(retries)
    return found


def test_no_task_is_lost_in_many_kills(tmp_path, worker, port):
    arguments = [str(tmp_path / "data"), "--amqp", f"127.0.0.1:{port}"]
    arguments += ["--log-file", str(tmp_path / "broker.log")]  # a pipe would be full soon
    dice = random.Random(2)
    publisher = threading.Thread(target=publish, args=[port], daemon=True)
    publisher.start()
    for _ in range(KILLS):
        with BrokerProcess(*arguments) as broker:
            time.sleep(dice.uniform(0.5, 3))
            broker.end(signal.SIGKILL)
    with BrokerProcess(*arguments):
        count, since = 0, time.monotonic()
        while count < TASKS and time.monotonic() - since < IDLE_SECONDS_MAX:
            time.sleep(0.2)
            if len(done_in(worker)) > count:
                count, since = len(done_in(worker)), time.monotonic()
        publisher.join(1)
        assert not publisher.is_alive()
    found = done_in(worker)
    assert sorted(found) == list(range(TASKS))
    assert all(
        retries == [] or 1 in retries for number, retries in found.items() if number % 5 == 0
    )
