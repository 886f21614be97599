"""The audit log: who has changed what, over HTTP and by `qindex ctl`; more verbs of that."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat

import pika
import pytest
from broker_process import BrokerProcess, connect
from http_api import Api, run

from qindex.broker.message import Message
from qindex.broker.timers import now_us
from qindex.cli.main import main
from qindex.serve.logs import AUDITED, Logs
from qindex.serve.settings import Settings

OPTIONS = {"auto_delete": False, "owner": None, "user": None}
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def test_http_says_who_has_changed_what_and_how_it_ended(tmp_path, caplog):
    caplog.set_level(logging.INFO, "qindex.audit")

    async def test():
        async with Api(tmp_path / "data") as api:
            vhost = api.server.node.vhost("/")
            queue = vhost.declare_queue("q", durable=True, arguments={}, **OPTIONS)
            vhost.declare_queue("to", durable=True, arguments={}, **OPTIONS)
            for _ in range(3):
                queue.publish(Message("", ["q"], b"\0\0", b"x", persistent=True), now_us())
            await api.ask("GET", "queues")
            await api.ask("DELETE", "queues/%2F/nothing")
            await api.ask("PUT", "users/ann", {"password": "hunter2", "tags": ""})
            given = {"state": "ready", "to": "to"}
            await api.ask("POST", "qindex/queues/%2F/q/messages/move", given)
            await api.ask("POST", "qindex/queues/%2F/to/get", {"count": 2})
            await api.ask("PUT", "users/eve", {"password": "hunter2"}, login=("eve", "hunter2"))

    run(test())
    found = [each.message for each in caplog.records if each.name == "qindex.audit"]
    path = "/api/qindex/queues/%2F"
    assert found == [
        "'guest' at 127.0.0.1: DELETE /api/queues/%2F/nothing: 404",
        "'guest' at 127.0.0.1: PUT /api/users/ann: 201",
        f"'guest' at 127.0.0.1: POST {path}/q/messages/move: 200, 3 of 3 messages, 'q' to 'to'",
        f"'guest' at 127.0.0.1: POST {path}/to/get: 200, 2 messages",
        "'nobody' at 127.0.0.1: PUT /api/users/eve: 401",
    ]


def test_a_file_of_its_own_has_what_administrators_did_and_nothing_else(tmp_path):
    directory, audit = tmp_path / "d", tmp_path / "audit.log"
    options = ("--http", "127.0.0.1:0", "--audit-file", str(audit), "--log", "error")
    with BrokerProcess(str(directory), *options) as process:
        assert stat.S_IMODE(audit.stat().st_mode) == 0o600
        assert main(["ctl", str(directory), "add_user", "ann", "hunter2"]) == 0
        assert main(["ctl", str(directory), "delete_user", "nobody"]) == 1
        audit.rename(tmp_path / "audit.log.1")  # as logrotate does
        assert main(["ctl", str(directory), "rotate_logs"]) == 0
        assert main(["ctl", str(directory), "clear_password", "ann"]) == 0
        connect(process.url).close()
        assert process.end(signal.SIGTERM) == 0
    first = (tmp_path / "audit.log.1").read_text()
    uid = os.getuid()
    assert f"qindex.control: uid {uid}: add_user 'ann' was carried out" in first
    assert f"uid {uid}: delete_user 'nobody' was refused" in first
    second = audit.read_text()
    assert "clear_password 'ann' was carried out" in second
    assert "hunter2" not in first + second
    assert {line.split()[3] for line in (first + second).splitlines()} == {"qindex.control:"}


def test_an_audit_file_that_cannot_be_is_refused_and_the_log_stays(tmp_path):
    logs = Logs()
    logs.reopen(Settings(log_file=str(tmp_path / "log")))
    try:
        with pytest.raises(OSError, match="nothing"):
            logs.reopen(Settings(audit_file=str(tmp_path / "nothing" / "audit")))
        audit = str(tmp_path / "audit")
        with pytest.raises(OSError, match="nothing"):
            logs.reopen(Settings(audit_file=audit, log_file=str(tmp_path / "nothing" / "log")))
        logging.getLogger("qindex.serve").error("it goes on")
        assert "it goes on" in (tmp_path / "log").read_text()
        logs.reopen(Settings(audit_file=audit))
        logs.close()
        assert not [name for name in AUDITED if logging.getLogger(name).handlers]
    finally:
        logs.close()


# --- verbs --------------------------------------------------------------------------------------


@pytest.fixture
def ctl(capsys):
    def run(directory, *arguments, code=0):
        assert main(["ctl", str(directory), *arguments]) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return run


def test_exchanges_bindings_channels_and_consumers_are_listed(tmp_path, ctl):
    directory = tmp_path / "d"
    with BrokerProcess(str(directory)) as process:
        connection = connect(process.url)
        channel = connection.channel()
        channel.exchange_declare("x", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "x", "a.#", {"k": 1})
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume("q", lambda *found: None, consumer_tag="tag")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"1")
        connection.process_data_events(0.2)
        assert "x\ttopic" in ctl(directory, "list_exchanges", "-q").splitlines()
        columns = ["source_name", "destination_name", "destination_kind", "routing_key"]
        rows = ctl(directory, "list_bindings", "-q", *columns)
        assert rows == "\tq\tqueue\tq\nx\tq\tqueue\ta.#\n"
        (row,) = json.loads(ctl(directory, "list_channels", "--json"))
        assert row["user"] == "guest"
        assert (row["consumer_count"], row["messages_unacknowledged"]) == (1, 1)
        (row,) = json.loads(ctl(directory, "list_consumers", "--json"))
        assert (row["queue_name"], row["consumer_tag"], row["prefetch_count"]) == ("q", "tag", 7)
        assert "no column 'x'" in ctl(directory, "list_consumers", "x", code=1)
        assert "Ping succeeded" in ctl(directory, "ping")
        assert "Ping succeeded" in ctl(directory, "await_startup")
        assert "Closing 1 connections" in ctl(directory, "close_all_connections", "go home")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go home"):
            connection.process_data_events(10)
        assert process.end(signal.SIGTERM) == 0
    assert "is not served" in ctl(directory, "ping", code=1)


@pytest.mark.slow
def test_definitions_go_from_one_directory_to_another(tmp_path, ctl, monkeypatch):
    one, two, file = tmp_path / "one", tmp_path / "two", tmp_path / "definitions.json"
    for directory in (one, two):
        with BrokerProcess(str(directory)) as process:
            with connect(process.url) as connection:
                if directory == one:
                    connection.channel().queue_declare("kept", durable=True)
                    ctl(one, "add_user", "ann", "secret")
                    assert "Exported" in ctl(one, "export_definitions", str(file))
                    assert stat.S_IMODE(file.stat().st_mode) == 0o600
                    shown = json.loads(ctl(one, "export_definitions", "-"))
                    assert shown == json.loads(file.read_text())
                else:
                    ctl(two, "import_definitions", str(file))
                    assert ctl(two, "list_queues", "-q") == "kept\t0\n"
                    assert "Success" in ctl(two, "authenticate_user", "ann", "secret")
            process.process.send_signal(signal.SIGTERM)
            _, log = process.process.communicate()
            assert "password_hash" not in log
    file.write_text('{"policies": [{"name": "p"}]}')
    assert "which are not there" in ctl(two, "import_definitions", str(file), code=1)
    file.write_text("[")
    assert "no JSON" in ctl(two, "import_definitions", str(file), code=1)
    assert main(["ctl", str(two), "import_definitions", str(tmp_path / "none")]) == 2
    assert main(["ctl", str(two), "export_definitions"]) == 2
