"""Settings, logs, signals, and the hand-over of sockets."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pika
import pytest
from broker_process import BrokerProcess, connect

from qindex.serve.logs import Logs
from qindex.serve.settings import NAMES, Settings, SettingsError, read_settings

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]
NO_FLAGS = dict.fromkeys(NAMES)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "qindex.toml"
    path.write_text('amqp = "127.0.0.1:1"\nconfirm = "written"\nlog-format = "json"\n')
    return path


def test_a_flag_wins_over_the_environment_and_that_over_the_file(file):
    environment = {"QINDEX_SERVE_AMQP": "127.0.0.1:2", "QINDEX_SERVE_LOG": "debug", "HOME": "/"}
    found = read_settings({**NO_FLAGS, "amqp": "127.0.0.1:3"}, environment, str(file))
    assert found == Settings(amqp="127.0.0.1:3", confirm="written", log="debug", log_format="json")
    assert read_settings(NO_FLAGS, environment, str(file)).amqp == "127.0.0.1:2"
    assert read_settings(NO_FLAGS, {}, str(file)).amqp == "127.0.0.1:1"
    assert read_settings(NO_FLAGS, {}, None) == Settings()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('ampq = "x"', "unknown setting 'ampq'; is it 'amqp'?"),
        ('log_format = "json"', "unknown setting 'log_format'; is it 'log-format'?"),
        ('zzz = "x"', "log, log-format, log-file, audit-file"),
        ('confirm = "maybe"', "confirm: 'maybe' is none of durable, written"),
        ("amqp = 5672", "amqp: a text is needed, not 5672"),
        ("amqp", "qindex.toml: "),
    ],
)
def test_what_a_file_cannot_say_is_refused(file, text, why):
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_settings(NO_FLAGS, {}, str(file))
    assert why in str(caught.value)


def test_an_unknown_variable_is_refused():
    with pytest.raises(SettingsError, match="is it 'QINDEX_SERVE_AMQP'"):
        read_settings(NO_FLAGS, {"QINDEX_SERVE_AMPQ": "x"}, None)


def test_the_command_refuses_wrong_settings(file):
    file.write_text('cofnirm = "durable"')
    run = [sys.executable, "-m", "qindex", "serve", "--memory", "--config", str(file)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is it 'confirm'?" in done.stderr


def refused_login(url):
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(url.replace("guest:guest", "evil%0Aname:hunter2"))


def test_the_log_can_be_json_and_has_one_line_for_an_event(tmp_path):
    path = tmp_path / "log"
    with BrokerProcess("--memory", "--log-format", "json", "--log-file", str(path)) as process:
        refused_login(process.url)
        process.end(signal.SIGTERM)
    told = [json.loads(line) for line in path.read_text().splitlines()]
    (refusal,) = [each for each in told if "was refused" in each["message"]]
    assert (refusal["level"], refusal["logger"]) == ("warning", "qindex.serve")
    assert "hunter2" not in path.read_text()


def test_a_line_of_text_stays_one_line(tmp_path):
    path = tmp_path / "log"
    with BrokerProcess("--memory", "--log-file", str(path)) as process:
        refused_login(process.url)
        process.end(signal.SIGTERM)
    assert all(line[:4].isdigit() for line in path.read_text().splitlines())
    assert "hunter2" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_traceback_cannot_forge_a_line(tmp_path):
    forged = "2026-01-01 00:00:00,000 INFO qindex.serve: all is well\x1b[2J"
    logs = Logs()
    logs.reopen(Settings(log_file=str(tmp_path / "log")))
    try:
        raise ValueError(f"cannot read\n{forged}\r{forged}\u2028{forged}")
    except ValueError:
        logging.getLogger("test").exception("failed", stack_info=True)
    finally:
        logs.close()
    first, *others = (tmp_path / "log").read_text().split("\n")
    assert first.endswith("ERROR test: failed")
    assert len(others) > 6
    assert all(line.startswith("  | ") for line in others if line)
    assert all(character.isprintable() for line in others for character in line)


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_sighup_opens_the_log_anew_and_reads_the_level(tmp_path, file):
    path = tmp_path / "log"
    file.write_text(f'log-file = "{path}"\nlog = "warning"\n')
    with BrokerProcess("--memory", "--config", str(file)) as process:
        path.rename(tmp_path / "log.1")  # as logrotate does it
        file.write_text(f'log-file = "{path}"\nlog = "info"\nconfirm = "written"\n')
        process.process.send_signal(signal.SIGHUP)
        wait_for(lambda: path.exists() and "opened anew" in path.read_text())
        assert "the new confirm counts from the next start on" in path.read_text()
        file.write_text("nonsense = 1")
        process.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the settings stay as they were" in path.read_text())
        connect(process.url).close()


def test_sockets_that_systemd_hands_over_are_served(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_FDS'] = '1'; "
            "os.environ['LISTEN_PID'] = str(os.getpid()); "
            "os.execv(sys.executable, [sys.executable, '-m', 'qindex', 'serve', '--memory'])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = process.stdout.readline()
        try:
            assert f"amqp://127.0.0.1:{port} " in line
            connect(f"amqp://guest:guest@127.0.0.1:{port}/%2F").close()
        finally:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_new_start_in_the_same_process_refuses_nobody(tmp_path):
    """SIGUSR2, three times, while clients connect all the time."""
    with BrokerProcess(str(tmp_path / "d")) as process:
        with connect(process.url) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", b"kept", pika.BasicProperties(delivery_mode=2))
        host, port = process.url.rpartition("@")[2].partition("/")[0].split(":")
        refused, slowest, over = [], [0.0], threading.Event()

        def knock():
            while not over.is_set():
                began = time.monotonic()
                try:
                    with socket.create_connection((host, int(port)), timeout=60) as found:
                        found.sendall(b"AMQP\x00\x00\x09\x01")
                        if not found.recv(1):
                            continue  # it was connected, and the server ended: it tries again
                    slowest[0] = max(slowest[0], time.monotonic() - began)
                except ConnectionRefusedError as error:
                    refused.append(error)
                except ConnectionResetError:
                    continue
                time.sleep(0.005)

        knocking = threading.Thread(target=knock)
        knocking.start()
        pid = process.process.pid
        for _ in range(3):
            process.process.send_signal(signal.SIGUSR2)
            line = process.process.stdout.readline()
            assert f":{port} " in line, line
        over.set()
        knocking.join()
        assert refused == []
        assert slowest[0] < 30
        assert os.kill(pid, 0) is None
        with connect(process.url) as connection:
            assert connection.channel().basic_get("q", auto_ack=True)[2] == b"kept"
        assert process.end(signal.SIGTERM) == 0


KILLED_AT_ITS_START = """
import os, signal, sys
from qindex.broker import node
from qindex.cli.main import main

open_node = node.Node.__init__

def killed(self, *args, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    open_node(self, *args, **options)
    for _ in range(int(sys.argv[2])):
        os.kill(os.getpid(), signal.SIGTERM)

node.Node.__init__ = killed
sys.exit(main(["serve", sys.argv[1], "--amqp", "127.0.0.1:0"]))
"""


@pytest.mark.parametrize(("more", "code"), [(0, 0), (1, 130)])
@pytest.mark.sample(2)
def test_a_signal_while_it_starts_stops_it_and_a_second_one_at_once(tmp_path, more, code):
    directory = str(tmp_path / "d")
    run = [sys.executable, "-c", KILLED_AT_ITS_START, directory, str(more)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    with BrokerProcess(directory) as process:
        assert process.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("name", ["USER", "PASS", "VHOST"])
@pytest.mark.sample(3)
def test_an_empty_name_of_the_first_user_is_refused_before_anything_is_made(tmp_path, name):
    directory, variable = tmp_path / "d", f"QINDEX_DEFAULT_{name}"
    for where in ([str(directory)], ["--memory"]):
        done = subprocess.run(
            [sys.executable, "-m", "qindex", "serve", *where, "--amqp", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            env={**os.environ, variable: ""},
            timeout=60,
        )
        assert done.returncode == 2
        assert f"{variable} is set and empty" in done.stderr
    assert not directory.exists()


def connect_again(url):
    """Who is in the middle of a handshake when a server hands over is told so, and comes again."""
    until = time.monotonic() + 30
    while True:
        try:
            return connect(url)
        except pika.exceptions.AMQPConnectionError as error:
            if "320" not in str(error) or time.monotonic() > until:
                raise


@pytest.mark.slow
def test_signals_in_the_middle_of_a_hand_over_do_not_end_it(tmp_path):
    log = str(tmp_path / "log")  # a pipe would be full soon
    with BrokerProcess(str(tmp_path / "d"), "--log-file", log) as process:
        until = time.monotonic() + 4
        while time.monotonic() < until:  # many times as long as one hand-over takes
            for number in (signal.SIGUSR2, signal.SIGHUP):
                process.process.send_signal(number)
            time.sleep(0.001)
            assert process.process.poll() is None
        with connect_again(process.url) as connection:
            assert connection.is_open
        assert process.end(signal.SIGTERM) == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("of", ["missing", "empty", "file"])
def test_a_slip_in_what_is_to_be_rescued_makes_nothing(tmp_path, of):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    run = [sys.executable, "-m", "qindex", "serve", str(tmp_path / "new")]
    run += ["--rescue", str(tmp_path / of), "--amqp", "127.0.0.1:0"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path / of}: no" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_is_no_place_for_messages(tmp_path, place):
    (tmp_path / "file").touch()
    run = [sys.executable, "-m", "qindex", "serve", str(tmp_path / place), "--amqp", "127.0.0.1:0"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"messages are kept in a directory, and '{tmp_path / 'file'}' is a file" in done.stderr
