"""The HTTP of gmq's version 2, on the topics that its TCP port has."""

from __future__ import annotations

import asyncio
import io
import json

import aiohttp
import pytest
from gmq_client import Client, door, run, served

from qindex.serve.http import version2
from qindex.serve.sockets import bind


class Http:
    """A client of the port. `get` is how gmq's clients ask for everything but a push."""

    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        sockets = bind("127.0.0.1", 0)
        self.port = sockets[0].getsockname()[1]
        await version2.accept(self.server, sockets, ["jobs.example"])
        self.client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *error):
        await self.client.close()

    async def ask(self, method, path, **options):
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.client.request(method, url, **options) as response:
            return response.status, await response.json()

    async def get(self, path, **query):
        return (await self.ask("GET", path, params=query))[1]

    async def push(self, **message):
        return (await self.ask("POST", "/push", data={"data": json.dumps(message)}))[1]


def with_http(test):
    async def whole():
        async with served() as server, Http(server) as http:
            tcp = await Client.connect(server.gmq)
            await test(server, http, tcp)
            await tcp.close()

    run(whole())


@pytest.fixture
def all_paths():
    return ["pop", "push", "ack", "config", "declareQueue", "exitTopic", "setIsAutoAck"]


def test_what_one_port_pushes_the_other_one_pops_and_acks():
    async def test(server, http, tcp):
        await tcp.command("queue t k")
        await tcp.command("set t 0 1 60 5")
        pushed = await http.push(topic="t", body="by http", route_key="k")
        kind, raw = await tcp.command("pop t k")
        assert (kind, json.loads(raw)["id"]) == (101, pushed["data"]["msgId"])
        number = pushed["data"]["msgId"]
        acked = await http.get("/ack", msgId=number, topic="t", bindKey="k")
        assert acked == {"code": 0, "data": None, "msg": "success"}
        await tcp.command("pub t k 0", b"by tcp \xff")
        popped = await http.get("/pop", topic="t", bindKey="k")
        assert popped["data"]["body"] == "by tcp \ufffd"
        kind, raw = await tcp.command(f"ack {popped['data']['id']} t k")
        assert (kind, raw) == (103, b"ok")

    with_http(test)


def test_statistics_count_what_waits_what_clients_have_what_is_delayed_and_dead():
    async def test(server, http, tcp):
        for line in ("queue t k", "queue t j", "set t 0 1 1 0"):
            await tcp.command(line)
        await tcp.command("set t 0 1 1 1")
        for delay in (0, 0, 60):
            await http.push(topic="t", body="x", route_key="k", delay=delay)
        await http.get("/pop", topic="t", bindKey="k")
        stat = (await http.get("/getTopicStat", topic="t"))["data"]
        assert {name: stat[name] for name in stat if name.endswith("num")} == {
            "pop_num": 1,
            "push_num": 3,
            "dead_num": 0,
            "queue_msg_num": 2,
            "queue_num": 2,
            "delay_num": 1,
            "wait_ack_num": 1,
        }
        for _ in range(3):
            await tcp.command("pop t k")
        await asyncio.sleep(1.2)
        stat = (await http.get("/getAllTopicStat"))["data"]
        assert [(each["name"], each["dead_num"]) for each in stat] == [("t", 2)]

    with_http(test)


def test_a_topic_that_exits_ends_its_pops_and_is_there_again_with_its_keys():
    async def test(server, http, tcp):
        await tcp.command("queue t k")
        await tcp.command("set t 0 1 7 3")
        tcp.writer.write(b"pop t k\n")
        await asyncio.sleep(0.05)
        exited = await http.get("/exitTopic", topic="t")
        assert exited["msg"] == "topic.t has exit."
        assert await tcp.answer() == (102, b"E_INVALID_READ - closed.")
        assert await tcp.reader.read() == b""
        assert (await http.get("/getAllTopicStat"))["data"] == []
        assert (await http.get("/exitTopic", topic="t"))["msg"] == "topic is not exist"
        assert (await http.push(topic="t", body="x", route_key="k"))["code"] == 0
        assert (await http.get("/getTopicStat", topic="t"))["data"]["push_num"] == 1
        assert (await http.get("/pop", topic="t", bindKey="k"))["data"]["body"] == "x"
        assert door(server).topics.topics["t"].ttr == 7

    with_http(test)


def test_a_message_whose_bytes_cannot_leave_is_ready_again():
    async def test(server, http, tcp):
        await tcp.command("queue t k")
        await tcp.command("pub t k 0", b"x" * 20_000_000)
        queue = server.node.vhost("/").queues["t_k"]
        _, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1 << 16)
        writer.write(b"GET /pop?topic=t&bindKey=k HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not queue.unacked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert (len(queue), queue.unacked) == (0, 1)
        writer.transport.abort()
        while queue.unacked:
            await asyncio.sleep(0.01)
        assert len(queue) == 1
        assert (await http.get("/pop", topic="t", bindKey="k"))["data"]["body"] == "x" * 20_000_000
        assert (len(queue), queue.unacked) == (0, 0)

    with_http(test)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"Origin": "http://evil.example"}, "a page of another origin"),
        ({"Origin": "null"}, "a page of another origin"),
        ({"Sec-Fetch-Site": "cross-site"}, "a page of another origin"),
        ({"Host": "evil.example"}, "not called 'evil.example'"),
    ],
)
def test_a_foreign_page_changes_and_reads_nothing(headers, text, all_paths):
    async def test(server, http, tcp):
        await tcp.command("queue t k")
        await tcp.command("pub t k 0", b"x")
        for path in all_paths:
            query = {"topic": "t", "bindKey": "k", "msgId": "1", "data": '{"topic":"t"}'}
            status, found = await http.ask("GET", f"/{path}", params=query, headers=headers)
            assert status == 403
            assert text in found["msg"]
        assert len(server.node.vhost("/").queues["t_k"]) == 1
        assert [topic.name for topic in door(server).topics.there()] == ["t"]

    with_http(test)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_take_no_message(method):
    async def test(server, http, tcp):
        await tcp.command("queue t k")
        await tcp.command("pub t k 0", b"x")
        url = f"http://127.0.0.1:{http.port}/pop?topic=t&bindKey=k"
        async with http.client.request(method, url) as response:
            assert response.status == 405
        assert (await http.get("/pop", topic="t", bindKey="k"))["data"]["body"] == "x"

    with_http(test)


def test_a_name_that_was_allowed_is_this_machines():
    async def test(server, http, tcp):
        status, _ = await http.ask("GET", "/getAllTopicStat", headers={"Host": "jobs.example:9504"})
        assert status == 200

    with_http(test)


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"\xff\xfe%zz=&&&", {}, 400),
        (b"data=" + b"[" * 100_000, {}, 200),
        (b"data=" + b"9" * 5000, {}, 200),
        (b"--x\r\n\r\n", {"Content-Type": "multipart/form-data; boundary=x"}, None),
        (b"x", {"Content-Type": "multipart/form-data"}, 400),
        (b'--x\r\nContent-Disposition: form-data; name="data"; filename="f"\r\n\r\nx\r\n--x--\r\n',
         {"Content-Type": "multipart/form-data; boundary=x"}, 200),
        (b"data=x", {"Content-Type": "application/x-www-form-urlencoded; charset=no"}, 400),
        (b"x" * (17 * 1024 * 1024), {}, 413),
    ],
)  # fmt: skip
def test_a_form_that_is_none_is_refused(data, headers, status):
    async def test(server, http, tcp):
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        found, answer = await http.ask("POST", "/push", data=io.BytesIO(data), headers=headers)
        assert found == status or (status is None and found in (200, 400))
        assert (answer["code"], answer["data"]) == (1, None)
        assert answer["msg"]
        assert not server.node.vhost("/").queues

    with_http(test)


@pytest.mark.parametrize(
    "message",
    [
        {"topic": "", "body": "x"},
        {"topic": "x" * 300, "body": "x"},
        {"topic": "t\n", "body": "x"},
        {"topic": "t", "body": "x", "delay": -1},
        {"topic": "t", "body": "x", "delay": 10**30},
        {"topic": "t", "body": {"a": 1}},
        {"topic": "t", "body": "x", "route_key": "(a+)+{9}"},
    ],
)
def test_a_push_that_cannot_be_is_refused(message):
    async def test(server, http, tcp):
        found = await http.push(**message)
        assert (found["code"], found["data"]) == (1, None)
        assert found["msg"]

    with_http(test)


def test_a_setting_that_is_not_known_changes_no_topic():
    async def test(server, http, tcp):
        for query in ("maxRetry=3", "msgTTR=60&isautoack=1"):
            _, found = await http.ask("GET", f"/config?topic=t&{query}")
            assert found["code"] == 1
            assert found["msg"].startswith(f"not known: {query.split('&')[-1].split('=')[0]};")
        _, found = await http.ask("GET", "/getAllTopicStat")
        assert not found["data"]

    with_http(test)
