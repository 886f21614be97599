"""The management API and the metrics: RabbitMQ's shapes, logins, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import threading
from urllib.parse import quote

import pika
import pytest
from http_api import Api, run
from prometheus_client.parser import text_string_to_metric_families

from qindex.broker.users import Permission
from qindex.serve.logins import FAILURES_MAX

HOSTILE = "<script>alert('x')</script>/\u202e&\"#?%00"


def test_a_queue_is_declared_published_to_got_from_and_deleted(tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            name = quote(HOSTILE, safe="")
            path = f"queues/%2F/{name}"
            assert await api.ask("PUT", path, {"durable": True, "arguments": {}}) == (201, b"")
            assert await api.ask("PUT", path, {}) == (204, b"")
            status, error = await api.ask("PUT", path, {"arguments": {"x-message-ttl": 5}})
            assert (status, error["error"]) == (400, "bad_request")
            assert error["reason"].startswith("inequivalent arg 'x-message-ttl' for queue")
            message = {
                "routing_key": HOSTILE,
                "payload": base64.b64encode(b"\xff\0").decode(),
                "payload_encoding": "base64",
                "properties": {"delivery_mode": 2, "headers": {"n": 1}},
            }
            publish = "exchanges/%2F/amq.default/publish"
            assert await api.ask("POST", publish, message) == (200, {"routed": True})
            nowhere = {"routing_key": "none", "payload": "", "properties": {}}
            assert await api.ask("POST", publish, nowhere) == (200, {"routed": False})
            _, found = await api.ask("GET", path)
            assert (found["name"], found["messages"], found["durable"]) == (HOSTILE, 1, True)
            wanted = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
            _, (got,) = await api.ask("POST", f"{path}/get", wanted)
            assert (got["payload"], got["payload_encoding"]) == ("/wA=", "base64")
            assert got["properties"] == {"headers": {"n": 1}, "delivery_mode": 2}
            assert (await api.ask("GET", path))[1]["messages_ready"] == 1
            wanted["ackmode"] = "ack_requeue_false"
            _, (got,) = await api.ask("POST", f"{path}/get", wanted)
            assert got["redelivered"]
            assert (await api.ask("GET", path))[1]["messages"] == 0
            assert (await api.ask("DELETE", path))[0] == 204
            assert await api.ask("GET", path) == (
                404,
                {"error": "Object Not Found", "reason": "Not Found"},
            )

    run(test())


HARD_NAMES = [
    "{{7*7}}${x}",
    "a/b?c#d&e=f%2F",
    "%",
    "{",
    "[^/]+",
    "\\",
    "a b",
    "\x01",
    "\U0001f600",
    "__proto__",
]


@pytest.mark.parametrize("name", HARD_NAMES)
def test_what_can_be_declared_can_be_asked_for_whatever_its_name_is(name, tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            part = quote(name, safe="")
            assert (await api.ask("PUT", f"queues/%2F/{part}", {"durable": True}))[0] == 201
            assert (await api.ask("PUT", f"exchanges/%2F/{part}", {"type": "direct"}))[0] == 201
            bound = await api.ask("POST", f"bindings/%2F/e/{part}/q/{part}", {"routing_key": name})
            assert bound[0] == 201
            message = {"payload": "x", "payload_encoding": "string", "properties": {}}
            published = await api.ask(
                "POST", f"exchanges/%2F/{part}/publish", {**message, "routing_key": name}
            )
            assert published == (200, {"routed": True})
            assert (await api.ask("GET", f"queues/%2F/{part}"))[1]["messages"] == 1
            assert len((await api.ask("GET", f"queues/%2F/{part}/bindings"))[1]) == 2
            own = f"qindex/queues/%2F/{part}"
            assert (await api.ask("GET", own))[1]["ready"] == 1
            (row,) = (await api.ask("GET", f"{own}/messages"))[1]["items"]
            assert (await api.ask("GET", f"{own}/messages/{row['number']}"))[0] == 200
            assert (await api.ask("PUT", f"vhosts/{part}"))[0] == 201
            assert (await api.ask("PUT", f"users/{part}", {"password": "p"}))[0] == 201
            rights = {"configure": "", "write": "", "read": ""}
            assert (await api.ask("PUT", f"permissions/{part}/{part}", rights))[0] == 201
            for what in (f"users/{part}", f"vhosts/{part}", f"queues/%2F/{part}"):
                assert (await api.ask("DELETE", what))[0] == 204

    run(test())


@pytest.mark.parametrize("path", ["queues//", "queues/", "queues/%2F/", "queues/%2F", "queues"])
def test_slashes_at_the_end_mean_nothing(path):
    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            status, rows = await api.ask("GET", path)
            assert (status, [row["name"] for row in rows]) == (200, ["q"])
            assert (await api.ask("GET", "queues/%2F/q//"))[1]["name"] == "q"
            assert (await api.ask("GET", "queues/%2F/%2F"))[0] == 404

    run(test())


def test_bindings_are_made_listed_and_removed():
    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            made = {"type": "topic", "durable": True}
            assert (await api.ask("PUT", "exchanges/%2F/x", made))[0] == 201
            bound = {"routing_key": "a.#", "arguments": {"k": 1}}
            assert (await api.ask("POST", "bindings/%2F/e/x/q/q", bound))[0] == 201
            _, rows = await api.ask("GET", "queues/%2F/q/bindings")
            assert [row["source"] for row in rows] == ["", "x"]
            key = quote(rows[1]["properties_key"], safe="")
            assert (await api.ask("DELETE", f"bindings/%2F/e/x/q/q/{key}"))[0] == 204
            assert len((await api.ask("GET", "bindings"))[1]) == 1
            assert (await api.ask("DELETE", "exchanges/%2F/x"))[0] == 204

    run(test())


def test_queues_are_sorted_filtered_and_paged_by_the_server():
    async def test():
        async with Api() as api:
            for number in range(30):
                vhost = api.server.node.vhost("/")
                options = {"durable": False, "auto_delete": False, "owner": None, "user": None}
                vhost.declare_queue(f"q{number:02}", arguments={}, **options)
            path = "queues?page=2&page_size=4&name=Q1&sort=name&sort_reverse=true&columns=name"
            _, found = await api.ask("GET", path)
            assert [row["name"] for row in found["items"]] == ["q15", "q14", "q13", "q12"]
            counts = [found[name] for name in ("filtered_count", "total_count", "page_count")]
            assert counts == [10, 30, 3]
            assert (await api.ask("GET", "queues?page=x"))[0] == 400

    run(test())


def test_a_user_sees_and_changes_what_it_may():
    async def test():
        async with Api() as api:
            users = api.server.node.users
            users.add("plain", "p")
            users.add("seer", "p")
            users.set_tags("seer", ["management"])
            users.add("clerk", "p")
            users.set_tags("clerk", ["management"])
            users.set_permissions("/", "clerk", Permission("^c", "^c", "^c"))
            plain, seer, clerk = ({"login": (name, "p")} for name in ("plain", "seer", "clerk"))
            assert (await api.ask("GET", "queues", **plain))[0] == 401
            assert await api.ask("GET", "vhosts", **seer) == (200, [])
            assert (await api.ask("GET", "queues/%2F", **seer))[0] == 401
            assert (await api.ask("PUT", "queues/%2F/c1", {}, **clerk))[0] == 201
            for method, path, body in (
                ("PUT", "queues/%2F/other", {}),
                ("POST", "exchanges/%2F/amq.fanout/publish", {"routing_key": "", "payload": ""}),
                ("GET", "users", None),
            ):
                status, error = await api.ask(method, path, body, **clerk)
                assert (status, error["error"]) == (401, "not_authorised")
            assert list(api.server.node.vhost("/").queues) == ["c1"]
            assert (await api.raw("GET", "/metrics", **clerk))[0] == 401

    run(test())


def test_wrong_logins_are_refused_and_soon_have_to_wait():
    async def test():
        async with Api() as api:
            for _ in range(FAILURES_MAX):
                status, headers, _ = await api.raw("GET", "/api/whoami", login=("guest", "wrong"))
                assert status == 401
                assert headers["WWW-Authenticate"] == 'Basic realm="qindex"'
            status, headers, _ = await api.raw("GET", "/api/whoami")
            assert (status, headers["Retry-After"]) == (429, "60")

    run(test())


def test_a_password_that_was_changed_is_refused_at_once():
    async def test():
        async with Api() as api:
            assert (await api.ask("GET", "whoami"))[0] == 200
            api.server.node.users.change_password("guest", "new")
            assert (await api.ask("GET", "whoami"))[0] == 401
            assert (await api.ask("GET", "whoami", login=("guest", "new")))[0] == 200

    run(test())


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 403),
        ("GET", {"Host": "broker.example"}, 200),
        ("GET", {"Host": "[::1]:15672"}, 200),
        ("PUT", {"Origin": "http://evil.example"}, 403),
        ("PUT", {"Origin": "null"}, 403),
        ("GET", {"Host": "[::1"}, 400),
        ("PUT", {"Origin": "http://[x"}, 400),
        ("PUT", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("PUT", {"Sec-Fetch-Site": "same-origin"}, 201),
        ("PUT", {"Authorization": "Bearer x"}, 401),
    ],
)
def test_foreign_pages_and_names_are_refused(method, headers, status):
    async def test():
        async with Api() as api:
            path = "queues/%2F/q" if method == "PUT" else "overview"
            body = {} if method == "PUT" else None
            assert (await api.ask(method, path, body, headers=headers))[0] == status
            assert len(api.server.node.vhost("/").queues) == (status == 201)
            _, found, _ = await api.raw("GET", "/api/overview")
            assert found["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert found["X-Content-Type-Options"] == "nosniff"

    run(test())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("exchanges/%2F/amq.default/publish", {"routing_key": "q"}),
        ("exchanges/%2F/amq.default/publish", {"routing_key": "x" * 256, "payload": ""}),
        ("exchanges/%2F/amq.default/publish", [1]),
        (
            "exchanges/%2F/amq.default/publish",
            {"routing_key": "q", "payload": "", "properties": {"no": 1}},
        ),
        (
            "exchanges/%2F/amq.default/publish",
            {"routing_key": "q", "payload": "", "properties": {"delivery_mode": "x"}},
        ),
        (
            "exchanges/%2F/amq.default/publish",
            {"routing_key": "q", "payload": "", "properties": {"expiration": "x"}},
        ),
        ("queues/%2F/q/get", {"ackmode": "eat"}),
        ("queues/%2F/q/get", {"count": "x"}),
    ],
)
def test_bad_requests_say_what_is_wrong_and_change_nothing(path, body):
    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            await api.ask("PUT", f"queues/%2F/{'x' * 256}", {})
            status, error = await api.ask("POST", path, body)
            assert (status, error["error"]) == (400, "bad_request")
            assert error["reason"]
            (queue,) = api.server.node.vhost("/").queues.values()
            assert (len(queue), queue.unacked) == (0, 0)

    run(test())


def test_connections_channels_and_consumers_are_shown_and_closed():
    def with_amqp(port, opened, over):
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        channel.basic_consume("q", lambda *found: None, consumer_tag="tag")
        connection.process_data_events(0.1)
        opened()
        over.wait()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            connection.process_data_events(60)

    async def test():
        async with Api() as api:
            opened, over = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()
            signal = lambda: loop.call_soon_threadsafe(opened.set)  # noqa: E731
            client = asyncio.create_task(asyncio.to_thread(with_amqp, api.amqp, signal, over))
            await opened.wait()
            (connection,) = (await api.ask("GET", "connections"))[1]
            assert connection["state"] == "running"
            assert connection["client_properties"]["product"] == "Pika Python Client Library"
            (channel,) = (await api.ask("GET", "channels"))[1]
            assert channel["messages_unacknowledged"] == 1
            (consumer,) = (await api.ask("GET", "consumers"))[1]
            assert consumer["consumer_tag"] == "tag"
            metrics = await scraped(api, "/metrics")
            assert metrics["rabbitmq_connections"] == metrics["rabbitmq_consumers"] == 1
            assert metrics["rabbitmq_queue_messages_unacked"] == 1
            assert metrics["rabbitmq_global_messages_routed_total"] == 1
            assert metrics["rabbitmq_global_messages_delivered_total"] == 1
            name = quote(connection["name"], safe="")
            assert (await api.ask("DELETE", f"connections/{name}"))[0] == 204
            over.set()
            await client

    run(test())


async def scraped(api, path):
    status, _, raw = await api.raw("GET", path)
    assert status == 200
    families = text_string_to_metric_families(raw.decode())
    return {
        sample.name + sample.labels.get("queue", ""): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_count_on_when_a_queue_is_deleted_and_have_a_page_by_queue():
    async def test():
        async with Api() as api:
            await api.ask("PUT", f"queues/%2F/{quote(HOSTILE, safe='')}", {})
            await api.ask("PUT", "queues/%2F/q", {})
            message = {"routing_key": "q", "payload": "x", "properties": {}}
            await api.ask("POST", "exchanges/%2F/amq.default/publish", message)
            found = await scraped(api, "/metrics/per-object")
            assert found["rabbitmq_queue_messages_readyq"] == 1
            assert found["rabbitmq_queue_messages_ready" + HOSTILE] == 0
            await api.ask("DELETE", "queues/%2F/q")
            found = await scraped(api, "/metrics")
            assert found["rabbitmq_queues"] == 1
            assert found["rabbitmq_global_messages_routed_total"] == 1

    run(test())


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.skipif(shutil.which("rabbitmqadmin") is None, reason="no rabbitmqadmin here")
def test_rabbitmqadmin_works_as_it_is():
    async def admin(api, *words):
        run = ["rabbitmqadmin", "-P", str(api.port), "-H", "127.0.0.1", "-f", "tsv", *words]
        found = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
        assert found.returncode == 0, (words, found.stdout, found.stderr)
        return found.stdout

    async def test():
        async with Api() as api:
            await admin(api, "declare", "queue", "name=q", "durable=true")
            await admin(api, "declare", "exchange", "name=x", "type=direct")
            await admin(api, "declare", "binding", "source=x", "destination=q", "routing_key=k")
            await admin(api, "publish", "exchange=x", "routing_key=k", "payload=hello")
            assert "q\t1" in await admin(api, "list", "queues", "name", "messages")
            assert "hello" in await admin(api, "get", "queue=q", "ackmode=ack_requeue_true")
            for what in ("exchanges", "bindings", "connections", "channels", "consumers"):
                await admin(api, "list", what)
            for what in ("vhosts", "nodes", "users", "permissions"):
                await admin(api, "list", what)
            await admin(api, "show", "overview")
            await admin(api, "purge", "queue", "name=q")
            await admin(
                api,
                *("delete", "binding", "source=x", "destination_type=queue"),
                *("destination=q", "properties_key=k"),
            )
            await admin(api, "delete", "exchange", "name=x")
            await admin(api, "delete", "queue", "name=q")
            assert not api.server.node.vhost("/").queues

    run(test())
