"""A damaged queue of a server: its clients hear what is damaged, and the others are served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pika
import pytest
from broker_process import connect
from helpers import files_of, queue_directory
from http_api import Api, run
from pika.exceptions import (
    ChannelClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
)

from qindex.cli.main import main
from qindex.serve import Broker

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def directory(tmp_path):
    """The queues good and bad with a message each; the journals of bad are overwritten."""
    with Broker(tmp_path / "d") as broker, connect(broker.url) as connection:
        channel = connection.channel()
        for name in ("good", "bad"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.fanout")
            channel.basic_publish("", name, b"old", PERSISTENT)
    folder = queue_directory(tmp_path / "d" / "vhosts" / "0", "bad")
    for path in folder.glob("journal.*"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    return tmp_path / "d"


USES = {
    "declare": lambda channel: channel.queue_declare("bad", durable=True),
    "passive": lambda channel: channel.queue_declare("bad", passive=True),
    "get": lambda channel: channel.basic_get("bad"),
    "consume": lambda channel: channel.basic_consume("bad", lambda *given: None),
    "purge": lambda channel: channel.queue_purge("bad"),
    "delete": lambda channel: channel.queue_delete("bad"),
}


def test_clients_hear_what_is_damaged_and_nothing_of_it_is_changed(directory):
    folder = queue_directory(directory / "vhosts" / "0", "bad")
    before = files_of(folder)
    with Broker(directory) as broker, connect(broker.url) as connection:
        for use in USES.values():
            with pytest.raises(ChannelClosedByBroker) as caught:
                use(connection.channel())
            assert caught.value.reply_code == 404
            assert caught.value.reply_text.startswith(
                "NOT_FOUND - queue 'bad' in vhost '/' is damaged, and is not served before a "
                "`qindex salvage`: queue bad: both journals are damaged"
            )
        channel = connection.channel()
        assert channel.basic_get("good", auto_ack=True)[2] == b"old"
    assert files_of(folder) == before


def test_a_publisher_hears_no_and_its_channel_stays(directory):
    with Broker(directory) as broker, connect(broker.url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for exchange, key in (("", "bad"), ("amq.fanout", ""), ("", "bad")):
            with pytest.raises(NackError):
                channel.basic_publish(exchange, key, b"new", PERSISTENT)
        with pytest.raises(NackError) as caught:
            channel.basic_publish("", "bad", b"comes back", PERSISTENT, mandatory=True)
        assert [each.body for each in caught.value.messages] == [b"comes back"]
        channel.basic_publish("", "good", b"last", PERSISTENT)
        found = [channel.basic_get("good", auto_ack=True)[2] for _ in range(3)]
        assert found == [b"old", b"new", b"last"]


def test_those_who_look_see_that_it_is_damaged(directory, capsys):
    async def look():
        async with Api(directory) as api:
            rows = {each["name"]: each for each in (await api.ask("GET", "queues"))[1]}
            assert (rows["good"]["state"], rows["bad"]["state"]) == ("running", "damaged")
            found = (await api.ask("GET", "qindex/health"))[1]
            (said,) = found["damaged"]
            assert (said["vhost"], said["queue"]) == ("/", "bad")
            assert "both journals are damaged" in said["why"]
            code, answer = await api.ask("GET", "qindex/queues/%2F/bad/messages?state=ready")
            assert (code, "both journals" in answer["reason"]) == (404, True)
            text = (await api.raw("GET", "/metrics"))[2].decode()
            assert "qindex_queues_damaged 1.0" in text
            for words, row in (
                (["list_queues", "name", "state"], ["bad", "damaged"]),
                (["status"], ["queues_damaged", "1"]),
            ):
                assert await asyncio.to_thread(main, ["ctl", str(directory), *words, "-q"]) == 0
                rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
                assert row in rows

    run(look())


def test_a_virtual_host_that_is_down_says_why_to_each_client(directory):
    meta = Path(directory, "vhosts", "0", "store.meta")
    meta.write_bytes(b"\xff" * meta.stat().st_size)
    with Broker(directory) as broker:
        said = set()
        for _ in range(3):
            with pytest.raises(ProbableAccessDeniedError) as caught:
                connect(broker.url)
            said.add(str(caught.value))
    (text,) = said
    assert "541" in text
    assert "store.meta" in text


def test_a_virtual_host_that_is_down_leaves_the_others_to_those_who_look(tmp_path, capsys):
    """It is down in lists until somebody asks for it alone: then it is tried again."""
    directory, meta = tmp_path / "d", tmp_path / "d" / "vhosts" / "1" / "store.meta"

    async def make():
        async with Api(directory) as api:
            assert (await api.ask("PUT", "vhosts/other", {}))[0] == 201
            for vhost in ("%2F", "other"):
                url = f"queues/{vhost}/q"
                assert (await api.ask("PUT", url, {"durable": True}))[0] == 201

    async def look():
        async with Api(directory) as api:
            code, found = await api.ask("GET", "vhosts")
            rows = {each["name"]: each for each in found}
            assert (code, list(rows)) == (200, ["/", "other"])
            assert list(rows["other"]["cluster_state"].values()) == ["stopped"]
            assert "store.meta is damaged" in rows["other"]["error"]
            assert "messages" not in rows["other"]
            for path in ("queues", "exchanges", "bindings", "overview", "qindex/queues"):
                assert (await api.ask("GET", path))[0] == 200, path
            assert [each["vhost"] for each in (await api.ask("GET", "queues"))[1]] == ["/"]
            why = "vhost 'other' is down: store.meta is damaged"
            for path in (
                "vhosts/other",
                "queues/other",
                "queues/other/q",
                "definitions",
                "definitions/other",
                "qindex/queues?vhost=other",
            ):
                code, found = await api.ask("GET", path)
                assert (code, found["reason"].startswith(why)) == (503, True), path
            code, found = await api.ask("GET", "health/checks/virtual-hosts")
            assert (code, found["virtual-hosts"]) == (503, ["other"])
            (said,) = (await api.ask("GET", "qindex/health"))[1]["down"]
            assert (said["vhost"], "store.meta" in said["why"]) == ("other", True)
            assert "qindex_vhosts_down 1.0" in (await api.raw("GET", "/metrics"))[2].decode()
            status = ["ctl", str(directory), "status", "-q"]
            assert await asyncio.to_thread(main, status) == 0
            assert "vhosts_down\t1" in capsys.readouterr().out.splitlines()
            meta.write_bytes(whole)
            assert (await api.ask("GET", "queues/other/q"))[0] == 200
            assert len((await api.ask("GET", "queues"))[1]) == 2
            assert (await api.ask("GET", "health/checks/virtual-hosts"))[0] == 200
            assert "qindex_vhosts_down 0.0" in (await api.raw("GET", "/metrics"))[2].decode()

    run(make())
    whole = meta.read_bytes()
    meta.write_bytes(b"\xff" * len(whole))
    run(look())
