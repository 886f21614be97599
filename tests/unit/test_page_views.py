"""The views of the page beyond queues, as the API gives them: what they say, and who may ask."""

from __future__ import annotations

import asyncio
import json
import threading

import pika
from page_client import declared, published, with_page

from qindex.broker.dead_letters import dead_letter
from qindex.broker.message import Message
from qindex.broker.timers import now_us
from qindex.serve.http.own import ages as ages_module
from qindex.serve.http.own.ages import NOTES_MAX, Ages
from qindex.serve.http.own.delayed import SPANS

OPTIONS = {"auto_delete": False, "owner": None, "user": None}
MINUTE_US = 60_000_000


def test_dead_letters_are_counted_by_reason_and_go_back(directory):
    async def test(api, page):
        to_failed = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "failed"}
        orders, mail = declared(api, "orders", **to_failed), declared(api, "mail", **to_failed)
        failed = declared(api, "failed")
        published(orders, b"1", b"2", b"3")
        published(mail, b"m")
        orders.reject([orders.get(), orders.get()])
        mail.reject([mail.get()])
        await asyncio.sleep(0.2)
        published(failed, b"never dead")
        found = (await page.own("dead"))["items"]
        rows = {(row["origin"], row["reason"]): row["count"] for row in found}
        assert rows == {("orders", "rejected"): 2, ("mail", "rejected"): 1, ("", ""): 1}
        given = {"queue": "failed", "origin": "orders", "reason": "rejected"}
        assert await page.act("dead/%2F/return", given) == (200, {"done": 2, "left": 0})
        assert (len(orders), len(mail), len(failed)) == (3, 0, 2)
        assert [orders.get().message.body for _ in range(3)] == [b"3", b"1", b"2"]
        given["origin"] = "gone"
        assert (await page.act("dead/%2F/return", given))[0] == 404
        assert len(failed) == 2

    with_page(test, directory)


def test_dead_letters_are_shown_to_those_who_may_read_them(tmp_path):
    async def test(api, page):
        orders = declared(api, "orders", x_dead_letter_exchange="", x_dead_letter_routing_key="f")
        dead = dead_letter(
            Message("", ["orders"], b"\0\0", b"x", persistent=True), "orders", "maxlen", "", "f"
        )
        declared(api, "f").publish(dead, now_us())
        assert orders
        assert len((await page.own("dead"))["items"]) == 1
        api.server.node.users.add("eye", "p")
        api.server.node.users.set_tags("eye", ["monitoring"])
        await page.log_in("eye", "p")
        assert (await page.own("dead"))["items"] == []

    with_page(test, tmp_path / "data")


def test_what_is_delayed_is_counted_by_the_time_that_is_left(directory):
    async def test(api, page):
        queue = declared(api, "later")
        for minutes, count in ((2, 3), (30, 2), (60 * 24 * 60, 1)):
            published(queue, *[b"x"] * count, due_us=now_us() + minutes * MINUTE_US)
        published(queue, b"put off later")
        await page.act("queues/%2F/later/messages/delay", {"state": "ready", "seconds": 30})
        found = await page.own("delayed")
        (row,) = found["items"]
        assert row["counts"] == [1, 3, 0, 2, 0, 0, 0, 0, 1]
        assert (found["spans"], found["total"], found["looked"]) == (list(SPANS), 7, 7)

    with_page(test, directory)


def test_clients_are_shown_with_the_age_of_what_they_have():
    def client(port, ready, over):
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = connection.channel()
        channel.queue_declare("q")
        for _ in range(3):
            channel.basic_publish("", "q", b"x")
        channel.basic_consume("q", lambda *found: None, consumer_tag="tag")
        connection.process_data_events(0.2)
        ready.set()
        over.wait()
        connection.close()

    async def test(api, page):
        ready, over = threading.Event(), threading.Event()
        thread = threading.Thread(target=client, args=(api.amqp, ready, over))
        thread.start()
        await asyncio.to_thread(ready.wait, 30)
        try:
            (connection,) = (await page.own("connections"))["items"]
            assert (connection["unacked"], connection["channels"]) == (3, 1)
            (consumer,) = (await page.own("consumers?sort=unacked&name=TAG"))["items"]
            assert (consumer["consumer_tag"], consumer["unacked"]) == ("tag", 3)
            (channel,) = (await page.own("channels"))["items"]
            assert channel["oldest_seconds"] is not None
            assert (await page.own("channels?name=nobody"))["found"] == 0
        finally:
            over.set()
            await asyncio.to_thread(thread.join)

    with_page(test)


class _Tags(dict):
    def oldest(self):
        return next(iter(self), None)


class _Stub:
    """A channel, or a session or server that has it."""

    def __init__(self):
        self._unacked, self._next_tag = _Tags(), 1
        self.channels = self.sessions = [self]

    def deliver(self):
        self._unacked[self._next_tag] = None
        self._next_tag += 1


def test_ages_grow_until_the_oldest_delivery_is_settled(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(ages_module.time, "monotonic", lambda: now[0])
    stub, ages = _Stub(), Ages()
    assert ages.seconds(stub) is None
    for _ in range(3 * NOTES_MAX):  # a delivery every ten seconds, and a note behind each
        stub.deliver()
        assert ages.seconds(stub) is not None
        ages.note(stub)
        now[0] += 10
    first = 10.0 * 3 * NOTES_MAX
    assert ages.seconds(stub) == first
    assert len(ages._notes[stub]) <= NOTES_MAX + 1
    for tag in range(1, 100):
        del stub._unacked[tag]
    exact = first - 990
    assert exact * 0.8 <= ages.seconds(stub) <= exact  # at least, and not far below
    stub._unacked.clear()
    assert ages.seconds(stub) is None


def test_gmq_has_its_buckets_its_reserved_jobs_and_each_job(tmp_path):
    async def test(api, page):
        assert (await page.ask("GET", "/api/qindex/gmq"))[0] == 404
        port = await api.server.listen_gmq("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def ask(method, parameter):
            asked = {"method": f"Service.{method}", "params": [parameter], "id": 1}
            writer.write(json.dumps(asked).encode())
            return json.loads(await reader.readline())

        for number in range(3):
            job = {"id": f"j{number}", "topic": "t", "body": f"b{number}", "TTR": "90"}
            await ask("Push", job)
        await ask("Push", {"id": "late", "topic": "t", "body": "l", "delay": "120", "TTR": "5"})
        assert (await ask("Pop", ["t"]))["result"]["id"] == "j0"
        api.server.node.add_vhost("other")  # its queues of the same name are others
        other = api.server.node.vhost("other").declare_queue(
            "t", durable=False, auto_delete=False, owner=None, user=None, arguments={}
        )
        other.publish(
            Message("", ["t"], b"\0\0", b"x", persistent=False), 0, now_us() + 120_000_000
        )
        found = await page.own("gmq")
        (topic,) = found["items"]
        assert topic == {"name": "t", "ready": 2, "delayed": 1, "reserved": 1}
        assert (found["buckets"][1], found["ttr_buckets"][1]) == (1, 1)
        assert found["reserved"][0]["id"] == "j0"
        states = [(await page.own(f"gmq/jobs/{name}"))["state"] for name in ("j0", "j1", "late")]
        assert states == ["reserved", "ready", "delayed"]
        assert (await page.own("gmq/jobs/late"))["ttr"] == 5
        assert (await page.ask("GET", "/api/qindex/gmq/jobs/none"))[0] == 404
        writer.close()

    with_page(test, tmp_path / "data")


def test_files_are_shown_with_what_keeps_them_to_those_who_see_all(tmp_path):
    async def test(api, page):
        published(declared(api, "big"), b"x" * 10_000)
        (store,) = (await page.own("disk"))["stores"]
        (file,) = [each for each in store["files"] if each["kind"] == "messages"]
        assert [each["queue"] for each in file["holders"]] == ["big"]
        journals = {each["queue"] for each in store["files"] if each["kind"] == "journal"}
        assert "big" in journals
        api.server.node.users.set_tags("guest", ["management"])
        await page.log_in()
        assert (await page.ask("GET", "/api/qindex/disk"))[0] == 401

    with_page(test, tmp_path / "data")


def test_health_tells_syncs_the_last_start_and_findings(tmp_path):
    async def first(api, page):
        queue = declared(api, "q")
        published(queue, b"x")
        await page.act("queues/%2F/q/messages/delay", {"state": "ready", "seconds": 9})
        (store,) = (await page.own("health"))["stores"]
        assert (store["name"], store["was_clean"], store["failed"]) == ("/", True, None)
        assert 0 < store["sync_seconds"]["median"] <= store["sync_seconds"]["max"]
        assert (await page.own("health"))["free_bytes"] > 0

    async def second(api, page):
        api.server.node.vhost("/")
        (store,) = (await page.own("health"))["stores"]
        assert (store["session"], store["was_clean"]) == (2, True)

    with_page(first, tmp_path / "data")
    with_page(second, tmp_path / "data")
