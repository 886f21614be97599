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
