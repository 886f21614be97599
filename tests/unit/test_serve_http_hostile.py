"""What a client of the HTTP port can do to the others, and what JSON cannot say."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from typing import ClassVar
from urllib.parse import parse_qsl

import pika
import pytest
from http_api import Api, run
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.brokers.amqp import Properties, encode_properties
from qindex.gmq import commands, jsonrpc
from qindex.gmq.text import go_json
from qindex.serve.http import api as api_paths
from qindex.serve.http import changes, door, metrics, port
from qindex.serve.http.asked import Asked

QUEUES = 1000


def refuse(name):
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("sent", [b"", b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_client_that_does_not_end_its_headers_is_closed(monkeypatch, sent):
    monkeypatch.setattr(port, "HEAD_SECONDS", 0.3)

    async def test():
        async with Api() as api:
            assert (await api.ask("GET", "whoami"))[0] == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(sent)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(1), 30) == b""
            writer.close()
            # One that has asked for something is kept, and used again.
            assert (await api.ask("GET", "whoami"))[0] == 200
            assert len(api.client.connector._conns) == 1

    run(test())


def test_a_body_that_does_not_come_is_not_waited_for_without_an_end(monkeypatch):
    monkeypatch.setattr(door, "BODY_SECONDS", 0.3)

    async def test():
        async with Api() as api:

            async def slowly():
                yield b"{"
                await asyncio.sleep(60)

            async with asyncio.timeout(30):
                status, _, _ = await api.raw("PUT", "/api/queues/%2F/q", data=slowly())
            assert status == 408
            assert not api.server.node.vhost("/").queues

    run(test())


def test_a_queue_of_another_connection_is_locked_for_http_too():
    async def test():
        async with Api() as api:
            url = f"amqp://guest:guest@127.0.0.1:{api.amqp}/%2F"
            loop = asyncio.get_running_loop()

            def begin():
                connection = pika.BlockingConnection(pika.URLParameters(url))
                connection.channel().queue_declare("own", exclusive=True)
                return connection

            connection = await loop.run_in_executor(None, begin)
            for path in ("queues/%2F/own", "queues/%2F/own/contents"):
                status, said = await api.ask("DELETE", path)
                assert status == 400
                assert said["reason"].startswith(
                    "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'own'"
                )
            assert "own" in api.server.node.vhost("/").queues
            await loop.run_in_executor(None, connection.close)

    run(test())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_json_does_not_have_are_refused(number):
    async def test():
        async with Api() as api:
            body = f'{{"arguments": {{"x": {number}}}}}'.encode()
            status, _, raw = await api.raw("PUT", "/api/queues/%2F/q", data=body)
            assert status == 400
            assert number in json.loads(raw)["reason"]
            assert not api.server.node.vhost("/").queues

    run(test())
    (request,) = jsonrpc.Reader().feed(
        f'{{"method":"Service.Ack","params":["x"],"id":{number}}}'.encode()
    )
    assert request.wrong.startswith("invalid JSON")
    assert isinstance(commands.pushed(f'{{"body":"x","delay":{number}}}'.encode()), str)


def test_numbers_that_json_does_not_have_are_not_written():
    async def test():
        async with Api() as api:
            url = f"amqp://guest:guest@127.0.0.1:{api.amqp}/%2F"
            loop = asyncio.get_running_loop()
            headers = {"a": float("nan"), "b": [float("-inf")], "c": 1.5}
            raw = encode_properties(Properties(headers=headers))

            def send():
                with RawClient(url) as client:
                    client.declare("q", durable=False, odd=float("inf"))
                    client.send(publish("", "q", raw, b"body"))
                    client.ask(m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)

            await loop.run_in_executor(None, send)
            for method, path, body in (
                ("POST", "/api/queues/%2F/q/get", {"count": 1}),
                ("GET", "/api/queues", None),
            ):
                status, _, found = await api.raw(method, path, json=body)
                assert status == 200
                json.loads(found, parse_constant=refuse)
                assert b"inf" in found

    run(test())
    with pytest.raises(ValueError, match="not JSON compliant"):
        go_json({"x": float("nan")})


def test_an_answer_has_no_more_bytes_of_bodies_than_one_may_have(monkeypatch):
    monkeypatch.setattr(changes, "GET_BYTES_MAX", 1000)

    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            for number in range(5):
                message = {"routing_key": "q", "payload": str(number) * 400, "properties": {}}
                await api.ask("POST", "exchanges/%2F/amq.default/publish", message)
            want = {"count": 10, "ackmode": "ack_requeue_false"}
            _, found = await api.ask("POST", "queues/%2F/q/get", want)
            assert [each["payload"][0] for each in found] == ["0", "1", "2"]
            assert found[-1]["message_count"] == 2
            _, found = await api.ask("POST", "queues/%2F/q/get", want)
            assert [each["payload"][0] for each in found] == ["3", "4"]

    run(test())


def many_queues(server):
    vhost = server.node.vhost("/")
    for number in range(QUEUES):
        vhost.declare_queue(
            f"q{number}", durable=False, auto_delete=False, owner=None, user=None, arguments={}
        )
    return vhost


class Turns:
    """How many turns others had while something was made."""

    async def __aenter__(self):
        self.count, self.over = 0, False
        self.others = asyncio.ensure_future(self.run())
        await asyncio.sleep(0)
        return self

    async def run(self):
        while not self.over:
            await asyncio.sleep(0)
            self.count += 1

    async def __aexit__(self, *error):
        self.over = True
        await self.others


@pytest.mark.parametrize("per_object", [True, False])
def test_a_page_of_metrics_gives_others_their_turns(per_object):
    async def test():
        async with Api() as api:
            vhost = many_queues(api.server)
            vhost.queues["q7"].stop()  # it is deleted meanwhile
            async with Turns() as turns:
                page = await metrics.Metrics(api.server).page(per_object=per_object)
                assert turns.count >= QUEUES // metrics.SLICE
            lines = page.count(b"\nrabbitmq_queue_messages_ready{")
            assert lines == (QUEUES - 1 if per_object else 0)

    run(test())


@pytest.mark.parametrize("query", ["", "page=1&page_size=500&sort=messages"])
def test_a_list_of_many_queues_gives_others_their_turns(query):
    class Request:
        """What Asked needs of one."""

        match_info: ClassVar = {}

        def __init__(self, server):
            self.app = {door.SERVER: server, api_paths._LONG: asyncio.Semaphore()}
            self.query = dict(parse_qsl(query))

        def __getitem__(self, key):
            return "guest"

    async def test():
        async with Api() as api:
            many_queues(api.server)
            async with Turns() as turns:
                request = Request(api.server)
                found = await api_paths._queues(Asked(request))
                made = turns.count
                answer = await api_paths._answer(request, found)
                assert made >= QUEUES // api_paths.SLICE - 1
                if not query:
                    assert turns.count - made >= QUEUES // api_paths.SLICE - 1
            told = json.loads(answer.text)
            assert len(told if not query else told["items"]) == (500 if query else QUEUES)
            assert told == found

    run(test())


DEEP = b"[" * 10_000


@pytest.mark.parametrize(
    ("path", "data", "headers", "text"),
    [
        ("/api/qindex/session", DEEP, {}, "it is nested too deeply"),
        ("/api/definitions", b'{"a":' * 100_000, {}, "it is nested too deeply"),
        ("/api/qindex/session", b"hello", {"Content-Encoding": "gzip"}, "not what its headers say"),
        ("/api/definitions", b"\xff\xff", {"Content-Encoding": "gzip"}, "is not what its headers"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_and_leaves_no_traceback(
    path, data, headers, text, caplog
):
    async def test():
        async with Api() as api:
            status, _, raw = await api.raw("POST", path, data=data, headers=headers)
            assert status == 400
            assert text in json.loads(raw)["reason"]

    run(test())
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"FOO BAR BAZ\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_http_is_one_line_of_the_log(request_, caplog):
    caplog.set_level(logging.DEBUG)  # aiohttp takes some of them for less than others

    async def test():
        async with Api() as api:
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(request_)
            assert b" 400 " in await reader.readline()
            writer.close()

    run(test())
    found = [each for each in caplog.records if each.name == "qindex.serve.http"]
    assert [each.levelname for each in found] == ["INFO"]
    assert not [each for each in caplog.records if each.exc_info]
    assert len(found[0].getMessage()) < 400


def test_a_client_that_goes_in_the_middle_of_a_body_is_one_line_of_the_log(caplog):
    caplog.set_level(logging.INFO)

    async def test():
        async with Api() as api:
            login = base64.b64encode(b"guest:guest")
            head = (
                b"POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic "
                + login
            )
            _, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(head + b"\r\nContent-Length: 100\r\n\r\n{")
            await asyncio.sleep(0.2)
            writer.transport.abort()
            await asyncio.sleep(0.2)

    run(test())
    found = [each for each in caplog.records if each.name == "qindex.serve.http"]
    assert [(each.levelname, each.exc_info) for each in found] == [("INFO", None)]


@pytest.mark.slow
def test_many_long_lists_at_once_hold_up_nobody_else(monkeypatch):
    """By count, not by time: how many lists are in the making while others have their turn."""
    making, most = [0], [0]
    in_turns = api_paths._in_turns

    async def counted(rows):
        making[0] += 1
        most[0] = max(most[0], making[0])
        async for row in in_turns(rows):
            yield row
        making[0] -= 1

    monkeypatch.setattr(api_paths, "_in_turns", counted)

    async def test():
        async with Api() as api:
            vhost = api.server.node.vhost("/")
            for number in range(QUEUES):
                vhost.declare_queue(
                    f"q{number}",
                    durable=False,
                    auto_delete=False,
                    owner=None,
                    user=None,
                    arguments={},
                )
            asked = [api.ask("GET", "queues") for _ in range(30)]
            found = await asyncio.gather(*asked)
            assert all((status, len(rows)) == (200, QUEUES) for status, rows in found)
            assert 1 < most[0] <= api_paths.AT_ONCE

    run(test())


@pytest.mark.parametrize(
    "length", [b"Content-Length: 16000000\r\n", b"Transfer-Encoding: chunked\r\n"]
)
def test_who_is_not_logged_in_can_make_the_server_keep_no_large_body(length):
    async def test():
        async with Api() as api:
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(
                b"POST /api/qindex/session HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n"
            )
            if b"chunked" in length:
                writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            else:
                writer.write(b" " * 65536)
            assert b" 413 " in await asyncio.wait_for(reader.readline(), 20)
            writer.close()

    run(test())
