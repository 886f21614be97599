"""The API's smaller questions and its health checks, as rabbit-hole, a client in Go, asks them."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import pika
import pytest
from http_api import Api, run

from qindex.serve.http import health_checks


def connected(api):
    parameters = pika.ConnectionParameters("127.0.0.1", api.amqp, heartbeat=0)
    return asyncio.to_thread(pika.BlockingConnection, parameters)


async def ok(api, path):
    status, found = await api.ask("GET", path)
    assert status == 200, (path, found)
    return found


def test_the_node_says_what_it_is_and_where_it_listens():
    async def test():
        async with Api() as api:
            overview = await ok(api, "overview")
            listening = {each["protocol"]: each["port"] for each in overview["listeners"]}
            assert listening == {"amqp": api.amqp, "http": api.port}
            kinds = {each["name"] for each in overview["exchange_types"]}
            assert kinds == {"direct", "fanout", "topic", "headers", "x-delayed-message"}
            (node,) = await ok(api, "nodes")
            again = await ok(api, f"nodes/{node['name']}")
            assert {**again, "uptime": node["uptime"]} == node
            assert (node["running"], node["partitions"]) == (True, [])
            assert await ok(api, "cluster-name") == {"name": node["name"]}
            assert (await api.ask("GET", "nodes/other"))[0] == 404
            status, error = await api.ask("PUT", "cluster-name", {"name": "other"})
            assert (status, "cannot be set" in error["reason"]) == (400, True)
            assert (await ok(api, "vhosts/%2F"))["cluster_state"] == {node["name"]: "running"}
            status, error = await api.ask("PUT", "vhosts/v", {"tracing": True})
            assert (status, error["reason"]) == (400, "tracing is not there")

    run(test())


def test_one_connection_and_one_channel_are_found_by_their_names():
    async def test():
        async with Api() as api:
            client = await connected(api)
            await asyncio.to_thread(client.channel)
            (connection,) = await ok(api, "connections")
            (channel,) = await ok(api, "channels")
            assert (connection["host"], connection["port"]) == ("127.0.0.1", api.amqp)
            assert channel["name"] == f"{connection['name']} (1)"
            name = quote(connection["name"], safe="")
            assert (await ok(api, f"connections/{name}"))["name"] == connection["name"]
            assert await ok(api, f"connections/{name}/channels") == [channel]
            assert await ok(api, f"channels/{quote(channel['name'], safe='')}") == channel
            assert await ok(api, "vhosts/%2F/channels") == [channel]
            assert len(await ok(api, "vhosts/%2F/connections")) == 1
            await api.ask("PUT", "vhosts/other", {})
            assert await ok(api, "vhosts/other/connections") == []
            for path in ("connections/nobody", "channels/nobody", "connections/nobody/channels"):
                assert (await api.ask("GET", path))[0] == 404
            await asyncio.to_thread(client.close)

    run(test())


def test_bindings_are_found_by_their_ends_and_by_where_their_making_says():
    async def test():
        async with Api() as api:
            for kind, name in (("queues", "a b"), ("exchanges", "x"), ("exchanges", "y")):
                assert (await api.ask("PUT", f"{kind}/%2F/{quote(name)}", {}))[0] == 201
            given = {"routing_key": "k k/", "arguments": {"a": "b"}}
            path = "/api/bindings/%2F/e/x/q/a%20b"
            status, headers, _ = await api.raw("POST", path, json=given)
            assert status == 201
            assert headers["Location"].startswith("a%20b/")
            made = await ok(api, f"bindings/%2F/e/x/q/{headers['Location']}")
            assert (made["routing_key"], made["arguments"]) == ("k k/", {"a": "b"})
            assert await ok(api, "bindings/%2F/e/x/q/a%20b") == [made]
            assert (await api.ask("GET", "bindings/%2F/e/x/q/a%20b/other"))[0] == 404
            assert (await api.ask("POST", "bindings/%2F/e/x/e/y", {}))[0] == 201
            (between,) = await ok(api, "bindings/%2F/e/x/e/y")
            assert await ok(api, "exchanges/%2F/x/bindings/source") == [made, between]
            assert await ok(api, "exchanges/%2F/y/bindings/destination") == [between]
            assert await ok(api, "exchanges/%2F/y/bindings/source") == []
            status, error = await api.ask("GET", "exchanges/%2F/none")
            assert (status, error["reason"]) == (404, "Not Found")

    run(test())


def test_an_exclusive_queue_has_its_binding_to_the_default_exchange():
    async def test():
        async with Api() as api:
            client = await connected(api)
            channel = await asyncio.to_thread(client.channel)
            await asyncio.to_thread(channel.queue_declare, "mine", exclusive=True)
            (found,) = await ok(api, "queues/%2F/mine/bindings")
            assert (found["source"], found["routing_key"]) == ("", "mine")
            await asyncio.to_thread(client.close)

    run(test())


def test_users_are_shown_with_the_digests_of_their_passwords_to_administrators():
    async def test():
        async with Api() as api:
            given = {"password": "p", "tags": "monitoring"}
            await api.ask("PUT", "users/ann", given)
            found = await ok(api, "users/ann")
            copy = {**found, "name": "copy"}
            assert (await api.ask("PUT", "users/copy", copy))[0] == 201
            assert (await api.ask("GET", "whoami", login=("copy", "p")))[0] == 200
            assert (await api.ask("GET", "users/ann", login=("ann", "p")))[0] == 401

    run(test())


HEALTHY = [
    "alarms",
    "local-alarms",
    "certificate-expiration/1/days",
    "protocol-listener/amqp091",
    "protocol-listener/http",
    "virtual-hosts",
    "node-is-mirror-sync-critical",
    "node-is-quorum-critical",
]


def test_health_checks_say_what_is_wrong(monkeypatch):
    async def test():
        async with Api() as api:
            for name in (*HEALTHY, f"port-listener/{api.amqp}"):
                assert (await ok(api, f"health/checks/{name}"))["status"] == "ok"
            status, found = await api.ask("GET", "health/checks/port-listener/1")
            assert (status, found["missing"]) == (503, 1)
            assert sorted(found["ports"]) == sorted([api.amqp, api.port])
            status, found = await api.ask("GET", "health/checks/protocol-listener/mqtt")
            assert (status, found["protocols"]) == (503, ["amqp", "http"])
            client = await connected(api)
            (session,) = api.server.sessions
            session._has_room = False  # as when a publish finds the disk full
            status, found = await api.ask("GET", "health/checks/alarms")
            assert (status, found["status"]) == (503, "failed")
            session._has_room = True
            monkeypatch.setattr(health_checks.shapes, "has_failed", lambda vhost: True)
            status, found = await api.ask("GET", "health/checks/virtual-hosts")
            assert (status, found["virtual-hosts"]) == (503, ["/"])
            await asyncio.to_thread(client.close)

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "word"),
    [
        ("PUT", "parameters/shovel/%2F/s", "parameters shovel are not there: let a program"),
        ("PUT", "parameters/federation-upstream/%2F/u", "let a program consume there"),
        ("PUT", "global-parameters/name", "global-parameters are not there"),
        ("PUT", "user-limits/guest/max-connections", "user-limits are not there"),
        ("PUT", "policies/%2F/p", "give queues and exchanges their arguments"),
        ("POST", "queues/%2F/q/actions", "a queue's actions are not there"),
    ],
)
def test_what_is_not_there_says_what_to_do_instead(method, path, word):
    async def test():
        async with Api() as api:
            status, error = await api.ask(method, path, {})
            assert status == 400
            assert word in error["reason"], json.dumps(error)

    run(test())
