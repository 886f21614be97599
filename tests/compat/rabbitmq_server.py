"""A real RabbitMQ node for one test: its own directory, its own epmd, on the loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

SERVERS = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
START_SECONDS_MAX = 90
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """Skips the test where there is no node to start or no pika to talk to it."""

    def __init__(self, path: Path) -> None:
        self.pika: Any = pytest.importorskip("pika", reason="qindex[amqp] is not installed")
        if not SERVERS:
            pytest.skip("no rabbitmq-server here (Debian: apt-get install rabbitmq-server)")
        port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        self.mnesia = path / "mnesia"
        self.process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        (path / "plugins").write_text("[].")
        self._environment = {
            **os.environ,
            "LD_PRELOAD": "",  # a sanitizer looks at this process, not at the node
            "HOME": str(path),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "qix@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.mnesia),
            "RABBITMQ_LOG_BASE": str(path / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(path / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(path / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }

    def start(self) -> None:
        """Returns when the node takes connections."""
        if self._epmd is None:  # a node that finds none would leave one behind
            self._epmd = subprocess.Popen(["epmd"], env=self._environment, **QUIET)
        self.process = subprocess.Popen(
            [SERVERS[-1]], env=self._environment, start_new_session=True, **QUIET
        )
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(self.pika.exceptions.AMQPError, OSError):
                self.connect().close()
                return
            time.sleep(0.2)
        pytest.fail("the node did not start")

    def connect(self, vhost: str = "/") -> Any:
        parameters = self.pika.URLParameters(self.url)
        parameters.virtual_host = vhost
        return self.pika.BlockingConnection(parameters)

    def ctl(self, *arguments: object) -> None:
        """rabbitmqctl, on this node."""
        program = SERVERS[-1].with_name("rabbitmqctl")
        done = subprocess.run(
            [program, *map(str, arguments)], env=self._environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        """In order, as an operator would; returns when the process has ended."""
        assert self.process is not None
        self.ctl("stop", self.mnesia / "qix@localhost.pid")
        self.process.wait(START_SECONDS_MAX)

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def close(self) -> None:
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
