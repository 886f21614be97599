"""Errors of the HTTP port: in the words of the request, and with the range of what is out of it."""

from __future__ import annotations

import itertools
import logging
import re

import pytest
from http_api import Api, run

# How Python says it. None of it helps whoever has written the request.
OF_PYTHON = re.compile(
    r"literal|int\(\)|NoneType|unhashable|codec|argument must|object is not|has no attribute|"
    r"recursion|Exceeds|sys\.|padding|Expecting|\(char|BOM|surrogates|an int|headers\['arg|"
    r"too big to convert|a dict is|could not convert|^'\w+'$|not (?:int|str|list|float|dict)\b"
)
LISTS = (
    *("bindings", "connections", "channels", "consumers", "users", "vhosts", "queues", "exchanges"),
    *("qindex/queues", "qindex/connections", "bindings/%2F", "permissions"),
)
BAD = [None, "abc", "", -1, 1.5, 1e300, True, [], {}, [1], "1" * 30, "1" * 5000]
FIELDS = {
    ("POST", "queues/%2F/q/get"): {"count": 1, "ackmode": "ack_requeue_true", "truncate": 5},
    ("PUT", "queues/%2F/n"): {"durable": True, "auto_delete": False, "arguments": {}},
    ("PUT", "exchanges/%2F/x"): {"type": "direct", "durable": True, "arguments": {}},
    ("POST", "bindings/%2F/e/amq.direct/q/q"): {"routing_key": "k", "arguments": {}},
    ("PUT", "users/u"): {"password": "long enough", "tags": ""},
    ("PUT", "permissions/%2F/guest"): {"configure": ".*", "write": ".*", "read": ".*"},
    ("POST", "exchanges/%2F/amq.default/publish"): {
        "routing_key": "q",
        "payload": "x",
        "payload_encoding": "string",
        "properties": {},
    },
    ("POST", "qindex/queues/%2F/q/get"): {"count": 1, "wait": 0, "lease": 5, "preview": 4},
    ("POST", "qindex/queues/%2F/q/settle"): {"verb": "ack", "deliveries": []},
    ("POST", "qindex/queues/%2F/q/messages/delay"): {"seconds": 1, "numbers": []},
}
NO_JSON = (
    b"[" * 100_000,
    b'{"a":' * 5000,
    b'{"a": 1%s}' % (b"0" * 5000),
    b"\xef\xbb\xbf{}",
    b'{"a": }',
    b"{1: 2}",
    b'{"a" 1}',
    b'{"a": 1 "b"}',
    b"{} {}",
    b'{"a": "x',
    b'{"a": "\n"}',
    b'{"a": "\\x"}',
    b'{"a": 1,}',
)
PROPERTIES = ("delivery_mode", "priority", "timestamp", "headers", "expiration", "type", "user_id")


@pytest.mark.parametrize("place", FIELDS, ids=lambda place: place[1])
def test_no_error_speaks_of_python(place, caplog):
    method, path = place
    good = FIELDS[place]

    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            asked = [{**good, name: bad} for name, bad in itertools.product(good, BAD)]
            asked += [{name: good[name] for name in good if name != left} for left in good]
            if "properties" in good:
                pairs = itertools.product(PROPERTIES, BAD)
                asked += [{**good, "properties": {name: bad}} for name, bad in pairs]
            refused = 0
            for body in asked:
                status, answer = await api.ask(method, path, body)
                assert status < 500, body
                if status >= 400:
                    refused += 1
                    assert not OF_PYTHON.search(answer["reason"]), (body, answer)
            assert refused > 3
            for raw in (b"{", b"[]", b"\xff", b"NaN", b'{"a": 1e999}', *NO_JSON):
                status, _, found = await api.raw(method, f"/api/{path}", data=raw)
                assert status == 400
                assert not OF_PYTHON.search(found.decode()), found

    with caplog.at_level(logging.CRITICAL):
        run(test())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("queues?page=0", "page is a whole number from 1 to"),
        ("queues?page=x", "page is a whole number from 1 to"),
        ("queues?page=1.5", "page is a whole number from 1 to"),
        ("queues?page=1&page_size=0", "page_size is a whole number from 1 to 500"),
        ("queues?page=1&page_size=501", "page_size is a whole number from 1 to 500"),
        ("exchanges?page=1&page_size=-1", "page_size is a whole number from 1 to 500"),
        *((f"{name}?page=0", "page is a whole number from 1 to") for name in LISTS),
        *((f"{name}?page_size=501", "page_size is a whole number from 1 to 500") for name in LISTS),
        ("qindex/queues?page_size=abc", "page_size is a whole number from 1 to 500"),
        ("qindex/queues?page=0", "page is a whole number from 1 to"),
        ("qindex/queues?size=501", "size is a whole number from 1 to 500"),
        ("qindex/queues/%2F/q/messages?limit=0", "limit is a whole number from 1 to 500"),
        ("qindex/queues/%2F/q/messages?limit=501", "limit is a whole number from 1 to 500"),
        ("qindex/overview?since=x", "since is a number from 0"),
        ("qindex/overview?since=nan", "since is a number from 0"),
    ],
)
def test_what_is_out_of_its_range_is_refused_with_the_range(path, text):
    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            rights = {"configure": ".*", "write": ".*", "read": ".*"}
            await api.ask("PUT", "permissions/%2F/guest", rights)
            status, answer = await api.ask("GET", path)
            assert (status, answer["error"]) == (400, "bad_request")
            assert text in answer["reason"]

    run(test())


@pytest.mark.parametrize("count", [-1, 10_001, "x", None])
def test_a_count_out_of_its_range_takes_nothing(count):
    async def test():
        async with Api() as api:
            await api.ask("PUT", "queues/%2F/q", {})
            body = {"routing_key": "q", "payload": "x", "properties": {}}
            await api.ask("POST", "exchanges/%2F/amq.default/publish", body)
            asked = {"count": count, "ackmode": "ack_requeue_false", "encoding": "auto"}
            status, answer = await api.ask("POST", "queues/%2F/q/get", asked)
            assert status == 400
            assert "count is a whole number from 0 to 10000" in answer["reason"]
            assert (await api.ask("GET", "queues/%2F/q"))[1]["messages_ready"] == 1

    run(test())
