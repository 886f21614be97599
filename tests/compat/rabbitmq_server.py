"""A real RabbitMQ node for one test: its own directory, its own epmd, on the loopback."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from qindex.brokers.rabbitmq.erlang_files import dets_objects
from qindex.brokers.tree import Findings, Tree

SERVERS = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
START_SECONDS_MAX = 180  # a busy machine
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port() -> int:
    """One that no connection of another process gets by chance before the node has it."""
    dice = random.Random()
    while True:
        port = dice.randrange(10_000, 32_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class Server:
    """Skips the test where there is no node to start or no pika to talk to it.

    With `has_streams` it has the plugin for the stream protocol. `settings`: its rabbitmq.conf.
    """

    def __init__(self, path: Path, *, has_streams: bool = False, settings: str = "") -> None:
        self.pika: Any = pytest.importorskip("pika", reason="qindex[amqp] is not installed")
        if not SERVERS:
            pytest.skip("no rabbitmq-server here (Debian: apt-get install rabbitmq-server)")
        port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        self.mnesia = path / "mnesia"
        self.process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self.stream_port = free_port()
        (path / "plugins").write_text("[rabbitmq_stream]." if has_streams else "[].")
        listener = f"stream.listeners.tcp.1 = 127.0.0.1:{self.stream_port}\n"
        (path / "rabbitmq.conf").write_text(settings + (listener if has_streams else ""))
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
            "RABBITMQ_CONFIG_FILE": str(path / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1"
            " -kernel inet_dist_use_interface {127,0,0,1}",
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
        parameters.heartbeat = 0  # a test may leave it alone for minutes on a busy machine
        return self.pika.BlockingConnection(parameters)

    def ctl(self, *arguments: object) -> str:
        """What rabbitmqctl says, on this node."""
        program = SERVERS[-1].with_name("rabbitmqctl")
        done = subprocess.run(
            [program, *map(str, arguments)], env=self._environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

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


def wait_for_names(server: Server, system: str, count: int) -> None:
    """Returns when the node has written the names of so many Ra servers of a system to its disk.

    It does so some seconds after they were made. A node that is killed before starts a server
    without a name in names.dets anew: empty, and for a quorum queue or a stream without a leader.
    """
    folder = server.mnesia / "qix@localhost" / system / "qix@localhost"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        findings = Findings()
        source = Tree(folder, findings).try_open("names.dets") if folder.is_dir() else None
        if source is not None:
            with source:
                if len(list(dets_objects(source, findings))) >= count:
                    return
        time.sleep(0.2)
    pytest.fail(f"the node did not write the names of {count} servers")
