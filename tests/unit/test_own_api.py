"""The project's own HTTP API for messages: search, history, wait and get, settle."""

from __future__ import annotations

import asyncio
import base64
import time

import pytest
from http_api import Api, run

from qindex.broker.message import Message
from qindex.broker.timers import now_us
from qindex.broker.users import Permission
from qindex.brokers.amqp import Properties, encode_properties
from qindex.serve.http.own import getting, messages

OPTIONS = {"auto_delete": False, "owner": None, "user": None}


def declared(api, name="q", *, durable=True, **arguments):
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    vhost = api.server.node.vhost("/")
    return vhost.declare_queue(name, durable=durable, arguments=named, **OPTIONS)


def publish(queue, body=b"x", due_us=0, **properties):
    raw = encode_properties(Properties(**properties))
    return queue.publish(Message("", [queue.name], raw, body, persistent=True), now_us(), due_us)


async def own(api, path, body=None, **options):
    method = "GET" if body is None else "POST"
    return await api.ask(method, f"qindex/queues/%2F/q/{path}", body, **options)


def with_api(test, directory):
    async def body():
        async with Api(directory) as api:
            await test(api)

    run(body())


def bodies(found):
    return [base64.b64decode(each["body"]).decode() for each in found["items"]]


# --- search -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("header=kind", ["a", "b", "d"]),
        ("header=kind&value=bill", ["a", "d"]),
        ("header=count&value=7", ["b"]),
        ("header=flag&value=true", ["b"]),
        ("property=message_id&value=id-c", ["c"]),
        ("property=correlation_id", ["b"]),
        ("property=priority&value=3", ["c"]),
        ("header=kind&value=bill&text=ZZ-%C3%A9", ["d"]),
        ("header=kind&value=bill&state=delayed", ["d"]),
        ("text=ZZ-%C3%A9", ["d"]),
        ("text=zz", []),
        ("header=nothing", []),
        ("", ["a", "b", "c", "d"]),
    ],
)
def test_messages_are_found_by_header_property_and_body(directory, query, expected):
    async def test(api):
        queue = declared(api)
        publish(queue, b"a", headers={"kind": "bill", "count": 8})
        publish(queue, b"b", headers={"kind": "x", "count": 7, "flag": True}, correlation_id="1")
        publish(queue, b"c", message_id="id-c", priority=3)
        queue.publish(Message("", ["q"], b"\xff", b"damaged", persistent=True), now_us())
        later = now_us() + 3_600_000_000
        publish(queue, "d \0 ZZ-é".encode(), due_us=later, headers={"kind": "bill"})
        status, found = await own(api, f"messages?{query}")
        assert status == 200
        shown = [body[0] for body in bodies(found) if body != "damaged"]
        assert sorted(shown) == expected
        assert found["next"] is None

    with_api(test, directory)


def test_a_search_ends_after_a_while_and_goes_on_where_it_was(directory, monkeypatch):
    async def test(api):
        queue = declared(api)
        for number in range(300):
            publish(queue, f"{number}".encode(), headers={"n": number})
        monkeypatch.setattr(messages, "LOOK_SECONDS", 0.0)
        after, found, looks = "", [], 0
        while after is not None:
            _, part = await own(api, f"messages?header=n&value=250&after={after}")
            found += bodies(part)
            after, looks = part["next"], looks + 1
        assert found == ["250"]
        assert looks == 301

    with_api(test, directory)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("value=x", "name one"),
        ("value=x&text=y", "name one"),
        ("property=nothing", "property is one of content_type"),
        ("property=headers", "property is one of content_type"),
        ("property=priority&header=x", "one at a time"),
        (f"text={'x' * 1025}", "at most 1024 characters"),
    ],
)
def test_what_cannot_be_searched_for_is_said(query, text):
    async def test(api):
        declared(api)
        status, found = await own(api, f"messages?{query}")
        assert status == 400
        assert text in found["reason"]

    with_api(test, None)


# --- history ------------------------------------------------------------------------------------


def test_the_history_of_a_message_is_read_from_the_files(tmp_path):
    async def test(api):
        queue = declared(api)
        number = publish(queue, b"x")
        waits = publish(queue, b"y" * 100_000)
        queue.requeue([queue.get()])
        queue.ack([queue.get()])
        status, found = await own(api, f"messages/{number}/history")
        assert (status, found["state"], found["damaged"]) == (200, "acked", False)
        verbs = [record["record"] for record in found["records"]]
        assert verbs[0] == "publish"
        assert verbs[-1] == "ack"
        assert verbs.count("deliver") == 2
        _, found = await own(api, f"messages/{waits}/history")
        assert found["state"] == "live, ready"
        assert [record["record"] for record in found["records"]] == ["publish", "body"]
        assert (await own(api, "messages/900/history"))[0] == 404
        assert (await own(api, "messages/x/history"))[0] == 400

    with_api(test, tmp_path / "data")


def test_what_lives_in_memory_has_no_history():
    async def test(api):
        publish(declared(api))
        status, found = await own(api, "messages/0/history")
        assert (status, "lives in memory" in found["reason"]) == (400, True)

    with_api(test, None)


# --- get and settle -----------------------------------------------------------------------------


def test_what_was_got_is_acked_given_back_or_rejected(directory):
    async def test(api):
        queue = declared(api, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
        dead = declared(api, "dead")
        for body in (b"1", b"2", b"3", b"4"):
            publish(queue, body)
        _, found = await own(api, "get", {"count": 3})
        assert bodies(found) == ["1", "2", "3"]
        assert [each["redelivered"] for each in found["items"]] == [False] * 3
        names = [each["delivery"] for each in found["items"]]
        assert (len(queue), queue.unacked) == (1, 3)
        assert await own(api, "settle", {"deliveries": names[:1]}) == (200, {"done": 1, "left": 0})
        given = {"deliveries": [names[1], names[1]], "verb": "requeue"}
        assert await own(api, "settle", given) == (200, {"done": 1, "left": 0})
        given = {"deliveries": [names[2]], "verb": "reject"}
        assert await own(api, "settle", given) == (200, {"done": 1, "left": 0})
        await asyncio.sleep(0.1)
        assert (len(queue), queue.unacked, len(dead), queue.acked) == (2, 0, 1, 1)
        assert await own(api, "settle", {"deliveries": names}) == (200, {"done": 0, "left": 3})
        _, found = await own(api, "get", {"ack": True})
        assert (bodies(found), found["items"][0]["redelivered"]) == (["2"], True)
        assert "delivery" not in found["items"][0]
        assert (len(queue), queue.unacked) == (1, 0)

    with_api(test, directory)


def test_a_lease_ends_and_the_message_is_ready_again(directory):
    async def test(api):
        queue = declared(api)
        publish(queue)
        _, found = await own(api, "get", {"lease": 0.3})
        names = [found["items"][0]["delivery"]]
        assert bodies((await own(api, "get", {"wait": 30}))[1]) == ["x"]
        assert await own(api, "settle", {"deliveries": names}) == (200, {"done": 0, "left": 1})
        assert queue.unacked == 1

    with_api(test, directory)


def test_a_get_waits_for_a_message_and_no_longer(directory):
    async def test(api):
        queue = declared(api)
        begun = time.monotonic()
        assert await own(api, "get", {"wait": 0.2}) == (200, {"items": []})
        assert 0.2 <= time.monotonic() - begun < 20
        assert not queue.consumers
        waits = asyncio.create_task(own(api, "get", {"wait": 60, "count": 2}))
        while not queue.consumers:
            await asyncio.sleep(0.01)
        publish(queue, b"late")
        assert bodies((await waits)[1]) == ["late"]
        assert not queue.consumers
        waits = asyncio.create_task(own(api, "get", {"wait": 60}))
        while not queue.consumers:
            await asyncio.sleep(0.01)
        api.server.node.vhost("/").delete_queue("q", None)
        assert (await asyncio.wait_for(waits, 20))[0] == 404

    with_api(test, directory)


def test_a_client_that_has_gone_gets_nothing(directory):
    async def test(api):
        queue = declared(api)
        waits = asyncio.create_task(own(api, "get", {"wait": 60, "ack": True}))
        while not queue.consumers:
            await asyncio.sleep(0.01)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        await asyncio.sleep(0.1)
        publish(queue)
        await asyncio.sleep(0.1)
        assert (len(queue), queue.unacked) == (1, 0)

    with_api(test, directory)


def test_a_server_that_stops_waits_for_nobody(tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            queue = declared(api)
            publish(declared(api, "other"))
            await api.ask("POST", "qindex/queues/%2F/other/get", {})
            waits = asyncio.create_task(own(api, "get", {"wait": 60}))
            while not queue.consumers:
                await asyncio.sleep(0.01)
            begun = time.monotonic()
            await api.server.stop()
            assert time.monotonic() - begun < 10
            assert await waits == (200, {"items": []})
        async with Api(tmp_path / "data") as api:  # what was leased is there
            assert len(api.server.node.vhost("/").queues["other"]) == 1

    run(test())


@pytest.mark.parametrize(
    ("path", "given", "text"),
    [
        ("get", {"count": 501}, "count is a whole number from 0 to 500"),
        ("get", {"wait": 61}, "wait is a number from 0 to 60"),
        ("get", {"wait": True}, "wait is a number"),
        ("get", {"lease": -1}, "lease is a number"),
        ("get", {"ack": "yes"}, "ack is true or false"),
        ("settle", {"deliveries": "x"}, "deliveries is a list"),
        ("settle", {"deliveries": [], "verb": "eat"}, "verb is one of ack, requeue, reject"),
    ],
)
def test_wrong_words_take_nothing(path, given, text):
    async def test(api):
        queue = declared(api)
        publish(queue)
        status, found = await own(api, path, given)
        assert status == 400
        assert text in found["reason"]
        assert (len(queue), queue.unacked) == (1, 0)

    with_api(test, None)


def test_no_more_wait_and_hold_than_is_allowed(monkeypatch):
    async def test(api):
        queue = declared(api)
        monkeypatch.setattr(getting, "WAITING_MAX", 0)
        assert (await own(api, "get", {"wait": 5}))[0] == 429
        monkeypatch.setattr(getting, "LEASES_MAX", 1)
        for _ in range(2):
            publish(queue)
        assert (await own(api, "get", {}))[0] == 200
        assert (await own(api, "get", {}))[0] == 429
        assert (await own(api, "get", {"ack": True}))[0] == 200
        assert (len(queue), queue.unacked) == (0, 1)

    with_api(test, None)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("get", {"ack": True}),
        ("settle", {"deliveries": []}),
        ("messages?text=x", None),
        ("messages/0/history", None),
    ],
)
def test_only_who_may_read_a_queue_looks_into_it_and_takes_from_it(tmp_path, path, given):
    async def test(api):
        queue = declared(api)
        publish(queue)
        users = api.server.node.users
        users.add("ann", "p")
        users.set_tags("ann", ["monitoring", "management"])
        for permission in (None, Permission(".*", ".*", "^other$")):
            if permission is not None:
                users.set_permissions("/", "ann", permission)
            assert (await own(api, path, given, login=("ann", "p")))[0] == 401
        assert (len(queue), queue.unacked) == (1, 0)
        users.set_permissions("/", "ann", Permission("", "", "^q$"))
        assert (await own(api, path, given, login=("ann", "p")))[0] == 200

    with_api(test, tmp_path / "data")


@pytest.mark.parametrize(
    ("part", "name"), [("~.", "."), ("~..", ".."), ("~~.", "~."), ("~...", "~..."), ("~", "~")]
)
def test_a_name_of_dots_is_written_with_a_tilde(part, name):
    """Clients take "." and ".." out of a path. RabbitMQ's own paths have no such rule."""

    async def test():
        async with Api() as api:
            for each in {part, name}:
                declared(api, each, durable=False)
            found = await api.ask("GET", f"qindex/queues/%2F/{part}")
            assert (found[0], found[1]["name"]) == (200, name)
            found = await api.ask("GET", f"queues/%2F/{part}")
            assert (found[0], found[1]["name"]) == (200, part)

    run(test())


def test_the_description_has_all_of_it():
    async def test(api):
        _, found = await api.ask("GET", "qindex/openapi.json")
        of_queue = "/api/qindex/queues/{vhost}/{name}"
        for path, method in (
            ("/get", "post"),
            ("/settle", "post"),
            ("/messages/{number}/history", "get"),
        ):
            assert method in found["paths"][of_queue + path]
        listed = found["paths"][f"{of_queue}/messages"]["get"]["parameters"]
        names = {each["name"] for each in listed}
        assert {"header", "property", "value", "text", "state"} <= names

    with_api(test, None)
