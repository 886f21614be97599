"""A typo in a request that changes something over HTTP is an error, and nothing is changed."""

from __future__ import annotations

import pytest
from http_api import Api, run

PUBLISH = "exchanges/%2F/amq.default/publish"


async def filled(api, name="q", count=3):
    assert (await api.ask("PUT", f"queues/%2F/{name}", {}))[0] == 201
    for number in range(count):
        body = {"routing_key": name, "payload": str(number), "properties": {}}
        assert await api.ask("POST", PUBLISH, body) == (200, {"routed": True})


def counts(api):
    queues = api.server.node.vhost("/").queues
    return {name: (len(queue), queue.unacked) for name, queue in queues.items()}


async def refused(api, method, path, body=None):
    """Why; nothing has changed."""
    before = counts(api)
    status, answer = await api.ask(method, path, body)
    assert (status, answer["error"]) == (400, "bad_request"), (path, body, answer)
    assert counts(api) == before
    return answer["reason"]


@pytest.mark.parametrize("encoding", ["utf-8", "STRING", "Base64", "", None, 5, ["base64"]])
def test_a_body_in_an_encoding_that_is_not_known_is_not_published(encoding):
    async def test():
        async with Api() as api:
            await filled(api)
            body = {"routing_key": "q", "payload": "abcd", "properties": {}}
            why = await refused(api, "POST", PUBLISH, {**body, "payload_encoding": encoding})
            assert why == "payload_encoding is 'string' or 'base64'"

    run(test())


@pytest.mark.parametrize("payload", ["a!b=c?", "abc", "dGVz\ndA=="])
def test_base64_that_is_none_is_told_in_plain_words(payload):
    async def test():
        async with Api() as api:
            await filled(api)
            body = {"routing_key": "q", "payload": payload, "payload_encoding": "base64"}
            why = await refused(api, "POST", PUBLISH, body)
            assert why == "payload is no base64, and payload_encoding says that it is"

    run(test())


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("if-empty=True", "if-empty is true or false"),
        ("if-empty=TRUE", "if-empty is true or false"),
        ("if-empty=yes", "if-empty is true or false"),
        ("if-empty", "if-empty is true or false"),
        ("if-unused=on", "if-unused is true or false"),
        ("if_empty=true", "not known in the query: if_empty; what is known there: if-unused"),
        ("if-empty=true&force=1", "not known in the query: force"),
        ("if-empty=false&if-empty=true", "if-empty is given more than once"),
    ],
)
def test_a_condition_that_is_not_understood_deletes_nothing(query, why):
    async def test():
        async with Api() as api:
            await filled(api)
            assert why in await refused(api, "DELETE", f"queues/%2F/q?{query}")

    run(test())


def test_a_condition_of_a_delete_is_met_or_refused():
    async def test():
        async with Api() as api:
            await filled(api)
            for value in ("true", "1"):
                assert (await api.ask("DELETE", f"queues/%2F/q?if-empty={value}"))[0] == 400
            why = await refused(api, "DELETE", "queues/%2F/q/contents?if-empty=true")
            assert "nothing is known there" in why
            await api.ask("PUT", "exchanges/%2F/x", {"type": "direct"})
            assert (await api.ask("DELETE", "exchanges/%2F/x?if-unused=True"))[0] == 400
            assert (await api.ask("DELETE", "exchanges/%2F/x?if-empty=true"))[0] == 400
            assert (await api.ask("DELETE", "exchanges/%2F/x?if-unused=true"))[0] == 204
            assert (await api.ask("DELETE", "queues/%2F/q?if-empty=0&if-unused=false"))[0] == 204

    run(test())


OWN = "qindex/queues/%2F/q/"


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (OWN + "messages/move", {"state": "ready", "to": 5}, "to is a text"),
        (OWN + "messages/move", {"state": "ready", "to": True}, "to is a text"),
        (OWN + "messages/move", {"state": "ready", "to": None}, "to is a text"),
        (OWN + "messages/move", {"state": "ready"}, "to is missing"),
        (OWN + "messages/delay", {"state": "ready"}, "seconds is missing"),
        (OWN + "messages/delete", {"state": "ready", "number": ["1"]}, "known in the body: number"),
        (OWN + "messages/delete", {"state": "ready", "to": "5"}, "known in the body: to"),
        (OWN + "get", {"count": 1, "leases": 5}, "known in the body: leases"),
        (OWN + "settle", {"deliveries": [], "verbs": "ack"}, "known in the body: verbs"),
        ("qindex/dead/%2F/return", {"queue": "q", "origin": 5, "reason": "x"}, "origin is a text"),
        ("qindex/dead/%2F/return", {"queue": "q", "origin": "5"}, "reason is missing"),
        ("queues/%2F/q/get", {"ackmode": "ack_requeue_false", "encoding": "b64"}, "encoding is"),
    ],
)
def test_what_is_done_to_messages_is_understood_as_a_whole_or_not_done(path, body, why):
    async def test():
        async with Api() as api:
            for name in ("q", "5", "True", "None"):
                await filled(api, name)
            assert why in await refused(api, "POST", path, body)

    run(test())


@pytest.mark.parametrize("mode", [0, 3, 255, "3"])
def test_a_delivery_mode_is_1_or_2(mode):
    async def test():
        async with Api() as api:
            await filled(api)
            body = {"routing_key": "q", "payload": "", "properties": {"delivery_mode": mode}}
            why = await refused(api, "POST", PUBLISH, body)
            assert why == "delivery_mode is a whole number from 1 to 2"

    run(test())


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", [5, "q", {"a": 1}])
def test_more_routing_keys_are_a_list(name, value):
    async def test():
        async with Api() as api:
            await filled(api)
            body = {"routing_key": "q", "payload": "", "properties": {"headers": {name: value}}}
            why = await refused(api, "POST", PUBLISH, body)
            assert "unacceptable_type_in_header" in why

    run(test())


def test_copies_go_to_more_routing_keys_as_over_amqp():
    async def test():
        async with Api() as api:
            for name in ("q", "shown", "secret"):
                await filled(api, name, 0)
            headers = {"CC": ["shown"], "BCC": ["secret"], "kept": 1}
            body = {"routing_key": "q", "payload": "x", "properties": {"headers": headers}}
            assert (await api.ask("POST", PUBLISH, body))[0] == 200
            for name in ("q", "shown", "secret"):
                _, (found,) = await api.ask("POST", f"queues/%2F/{name}/get", {})
                assert found["properties"]["headers"] == {"CC": ["shown"], "kept": 1}

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "body", "why"),
    [
        ("PUT", "queues/%2F/n", {"arguments": {"x": 10**30}}, "arguments['x']: a whole number"),
        ("PUT", "queues/%2F/n", {"arguments": {"x": "\ud800"}}, "arguments['x']: a text has half"),
        ("POST", PUBLISH, {"payload": "\ud800", "routing_key": "q"}, "a text has half"),
        ("POST", PUBLISH, {"payload": "", "routing_key": "\ud800"}, "a text has half"),
        (
            *("POST", PUBLISH),
            {"payload": "", "routing_key": "q", "properties": {"headers": {"a": [10**30]}}},
            "headers['a'][0]: a whole number",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named_as_the_request_has_it(method, path, body, why):
    async def test():
        async with Api() as api:
            await filled(api)
            assert (await refused(api, method, path, body)).startswith(why)

    run(test())
