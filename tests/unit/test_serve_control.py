"""`qindex ctl`, through the control socket of a server and without one."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat

import pika
import pytest
from broker_process import BrokerProcess, connect
from hostile_commands import ESCAPES
from pika.exceptions import ConnectionClosedByBroker

from qindex.cli.main import main
from qindex.serve.control import ask

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served") / ("long" * 40)
    with BrokerProcess(str(directory)) as process:
        process.directory = directory
        yield process


@pytest.fixture
def ctl(served, capsys):
    def run(*arguments, code=0):
        assert main(["ctl", str(served.directory), *arguments]) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return run


def as_user(served, name, password, vhost="/"):
    parameters = pika.URLParameters(served.url.replace("guest:guest", f"{name}:{password}"))
    parameters.virtual_host = vhost
    return pika.BlockingConnection(parameters)


def test_only_the_owner_can_connect_to_the_socket(served):
    path = served.directory / "control"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_user_is_made_and_may_enter_when_it_is_permitted(served, ctl):
    assert 'Adding user "ann"' in ctl("add_user", "ann", "secret")
    assert "Success" in ctl("authenticate_user", "ann", "secret")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        as_user(served, "ann", "secret")
    ctl("set_permissions", "-p", "/", "ann", "^a", ".*", "^$")
    assert ctl("list_permissions").splitlines()[1:] == [
        "user\tconfigure\twrite\tread",
        "ann\t^a\t.*\t^$",
        "guest\t.*\t.*\t.*",
    ]
    assert ctl("list_user_permissions", "-q", "ann") == "/\t^a\t.*\t^$\n"
    as_user(served, "ann", "secret").close()
    ctl("set_user_tags", "ann", "monitoring", "policymaker")
    assert "ann\t[monitoring, policymaker]\n" in ctl("list_users")


def test_a_password_is_read_from_stdin(served, ctl, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin\n"))
    ctl("add_user", "ben")
    ctl("authenticate_user", "ben", "from stdin")
    ctl("change_password", "ben", "other")
    assert "Failed to authenticate" in ctl("authenticate_user", "ben", "from stdin", code=1)


def test_connections_of_a_deleted_user_are_closed(served, ctl):
    ctl("add_user", "cat", "secret")
    ctl("set_permissions", "cat", ".*", ".*", ".*")
    connection = as_user(served, "cat", "secret")
    channel = connection.channel()
    ctl("delete_user", "cat")
    with pytest.raises(ConnectionClosedByBroker, match="user 'cat' was deleted") as caught:
        channel.queue_declare("q")
    assert caught.value.reply_code == 320
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        as_user(served, "cat", "secret")


def test_a_virtual_host_comes_and_goes_with_its_connections(served, ctl):
    ctl("add_vhost", "work")
    ctl("set_permissions", "-p", "work", "guest", ".*", ".*", ".*")
    assert ctl("list_vhosts", "-q").splitlines() == ["/", "work"]
    connection = as_user(served, "guest", "guest", "work")
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("own", exclusive=True)
    channel.basic_publish("", "q", b"1")
    assert ctl("list_queues", "-p", "work", "-q").splitlines() == ["own\t0", "q\t1"]
    ctl("delete_vhost", "work")
    with pytest.raises(ConnectionClosedByBroker, match="vhost 'work' is deleted"):
        channel.queue_declare("q", durable=True)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost work not found"):
        as_user(served, "guest", "guest", "work")
    with connect(served.url) as other:  # the server lives
        other.channel().queue_declare("still", exclusive=True)


def test_queues_are_listed_purged_and_deleted(served, ctl):
    with connect(served.url) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True, arguments={"x-max-length": 5})
        for _ in range(3):
            channel.basic_publish("", "jobs", b"1")
        channel.basic_get("jobs")
        columns = ["name", "messages_ready", "messages_unacknowledged", "durable", "arguments"]
        (row,) = json.loads(ctl("list_queues", "--json", *columns))
        assert row == {
            "name": "jobs",
            "messages_ready": 2,
            "messages_unacknowledged": 1,
            "durable": True,
            "arguments": {"x-max-length": 5},
        }
        assert "2 messages" in ctl("purge_queue", "jobs")
        ctl("delete_queue", "jobs")
        assert ctl("list_queues", "-q") == ""


def test_connections_are_listed_and_closed(served, ctl):
    connection = connect(served.url)
    channel = connection.channel()
    told = json.loads(ctl("list_connections", "--json", "pid", "user", "channels", "state"))
    (one,) = [each for each in told if each["channels"] == 1]
    assert (one["user"], one["state"]) == ("guest", "running")
    ctl("close_connection", one["pid"], "enough")
    with pytest.raises(ConnectionClosedByBroker, match="CONNECTION_FORCED - enough"):
        channel.queue_declare("q")
    assert "no connection" in ctl("close_connection", one["pid"], "again", code=1)


def test_a_hostile_name_cannot_steer_the_terminal(served, ctl):
    name = f"q{ESCAPES}\tq"
    with connect(served.url) as connection:
        connection.channel().queue_declare(name)
    out = ctl("list_queues", "-q")
    assert all(character.isprintable() for character in out.replace("\t", "").replace("\n", ""))
    (row,) = json.loads(ctl("list_queues", "--json"))
    assert row["name"] == name
    ctl("delete_queue", name)


def test_status(served, ctl):
    told = {row["key"]: row["value"] for row in json.loads(ctl("status", "--json"))}
    assert told["served"] is True
    assert told["os_pid"] == served.process.pid
    assert told["confirms"] == "durable"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing"], "there is no command 'nothing'; there are add_user"),
        (["add_user"], "usage: add_user USER PASSWORD"),
        (["add_user", "guest", "x"], 'User "guest" already exists'),
        (["set_permissions", "-p", "nope", "guest", "", "", ""], '"nope" does not exist'),
        (["list_queues", "nmae"], "there is no column 'nmae'; there are name"),
        (["purge_queue", "nope"], "queue 'nope' is not there"),
    ],
)
def test_what_is_refused_says_why(ctl, arguments, text, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert text in ctl(*arguments, code=1)


@pytest.mark.parametrize("line", [b"\n", b"[]\n", b"{}\n", b'{"command": 1, "arguments": 2}\n'])
def test_a_request_that_is_none_is_answered(served, line):
    descriptor = os.open(served.directory, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as found:
        found.connect(f"/proc/self/fd/{descriptor}/control")
        found.sendall(line)
        answer = json.loads(found.makefile().readline())
    os.close(descriptor)
    assert "a request is one line" in answer["error"]


def test_without_a_server_the_command_opens_the_directory_itself(tmp_path, capsys):
    directory = tmp_path / "d"
    with BrokerProcess(str(directory)) as process:
        with connect(process.url) as connection:
            connection.channel().queue_declare("kept", durable=True)
        process.end(signal.SIGKILL)
    assert (directory / "control").exists()  # what a kill leaves: nobody answers there
    assert main(["ctl", str(directory), "add_user", "ann", "secret"]) == 0
    assert main(["ctl", str(directory), "list_queues", "-q"]) == 0
    assert capsys.readouterr().out.endswith("kept\t0\n")
    assert main(["ctl", str(directory), "list_connections"]) == 1
    assert "the directory is not served" in capsys.readouterr().err
    with BrokerProcess(str(directory)) as process:  # a stale socket is no obstacle
        reply = ask(directory, {"command": "list_users", "arguments": [], "vhost": "/"})
        assert [row[0] for row in reply["rows"]] == ["ann", "guest"]
        assert process.end(signal.SIGTERM) == 0


def test_what_is_no_served_directory_is_refused(tmp_path, capsys):
    assert main(["ctl", str(tmp_path), "list_users"]) == 2
    assert "is no directory of qindex serve" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_log_says_what_was_done_to_what_and_no_password(tmp_path):
    with BrokerProcess(str(tmp_path / "d"), "--log", "debug") as process:
        for command, *arguments in (
            ("add_user", "ann", "hunter2"),
            ("change_password", "ann", "hunter2"),
            ("authenticate_user", "nobody", "hunter2"),
            ("set_permissions", "ann", "^a\n", ".*", ""),
            ("hunter\n", "hunter2"),
        ):
            ask(tmp_path / "d", {"command": command, "arguments": arguments, "vhost": "/"})
        process.process.send_signal(signal.SIGTERM)
        _, log = process.process.communicate()
    assert "add_user 'ann' was carried out" in log
    assert "change_password 'ann' was carried out" in log
    assert "authenticate_user 'nobody' was refused" in log
    assert r"set_permissions 'ann' '^a\n' '.*' '' in vhost '/' was carried out" in log
    assert r"an unknown command 'hunter\n' was refused" in log
    assert "hunter2" not in log
