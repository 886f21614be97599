"""Flower's page of the broker, with a real Celery worker behind it."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from broker_process import BrokerProcess, connect

MISSING = [name for name in ("celery", "flower") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"no {' and no '.join(MISSING)} (pip install)"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
APP = """
from celery import Celery

app = Celery("shop", broker={url!r})
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(one, two):
    return one + two
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fetched(port, path):
    """The text there, as soon as somebody answers."""
    basic = base64.b64encode(b"guest:guest").decode()
    until = time.monotonic() + 120
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Basic {basic}"})
            response = connection.getresponse()
            if response.status == 200:
                return response.read().decode()
        except ConnectionError:
            pass
        finally:
            connection.close()
        assert time.monotonic() < until, f"no answer from {path}"
        time.sleep(0.2)


def started(folder, *words):
    run = [sys.executable, "-m", "celery", "-A", "shop", *words]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
    log = (folder / f"{words[0]}.log").open("wb")
    return subprocess.Popen(run, cwd=folder, env=environment, stdout=log, stderr=log)


def row_of(page, queue):
    """The cells of a queue's row in Flower's table."""
    for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL):
        cells = [re.sub("<.*?>", "", cell).strip() for cell in re.findall("<td.*?</td>", row, re.S)]
        if cells and cells[0] == queue:
            return cells
    return None


def test_flower_shows_the_queues_of_a_real_worker(tmp_path):
    api_port, port = free_port(), free_port()
    with BrokerProcess(str(tmp_path / "d"), "--http", f"127.0.0.1:{api_port}") as broker:
        (tmp_path / "shop.py").write_text(APP.format(url=broker.url))
        api = f"http://guest:guest@127.0.0.1:{api_port}/api/"
        listen = ("--address=127.0.0.1", f"--port={port}", f"--broker-api={api}")
        running = [
            started(tmp_path, "worker", "--pool=solo", "--loglevel=info"),
            started(tmp_path, "flower", *listen, "--unauthenticated_api=true"),
        ]
        try:
            until = time.monotonic() + 120
            while '"consumers": 1' not in fetched(api_port, "/api/queues/%2F/celery"):
                assert time.monotonic() < until, (tmp_path / "worker.log").read_text()
                time.sleep(0.2)
            row = None
            while row is None and time.monotonic() < until:  # it asks workers for their queues
                row = row_of(fetched(port, "/broker"), "celery")
            assert row is not None, (tmp_path / "flower.log").read_text()
            running[0].send_signal(signal.SIGTERM)
            running[0].wait(60)
            with connect(broker.url) as connection:
                channel = connection.channel()
                for _ in range(3):
                    channel.basic_publish("", "celery", b"waits")
            row = row_of(fetched(port, "/broker"), "celery")
            assert row[1] == "3", row
        finally:
            for process in running:
                process.kill()
                process.wait()
        assert broker.end(signal.SIGTERM) == 0
