"""Exchanges and bindings: which queues a message goes to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.broker.exchanges import (
    EXCHANGE,
    QUEUE,
    Binding,
    Destination,
    Router,
    make_exchange,
)
from qindex.broker.message import Message
from qindex.brokers.amqp import Properties, encode_properties

OPTIONS = {"durable": False, "auto_delete": False, "internal": False}


def exchange_of(name, kind, arguments=None):
    return make_exchange(name, kind, arguments=arguments or {}, **OPTIONS)


def bind(exchange, queue, key="", arguments=None, kind=QUEUE):
    binding = Binding(exchange.name, Destination(kind, queue), key, repr(arguments or {}))
    exchange.add(binding, arguments or {})
    return binding


def message_of(*keys, headers=None):
    return Message("", list(keys), encode_properties(Properties(headers=headers)), b"")


def route(exchange, key, headers=None, others=()):
    router = Router({each.name: each for each in (exchange, *others)})
    return sorted(router.queues_of(exchange, message_of(key, headers=headers)))


def test_a_direct_exchange_compares_keys():
    direct = exchange_of("x", "direct")
    bind(direct, "a", "k")
    bind(direct, "b", "k")
    bind(direct, "c", "other")
    assert route(direct, "k") == ["a", "b"]
    assert route(direct, "nothing") == []


def test_the_default_exchange_leads_to_the_queue_of_that_name():
    assert route(exchange_of("", "direct"), "orders") == ["orders"]


def test_a_fanout_exchange_ignores_keys_and_gives_each_queue_once():
    fanout = exchange_of("x", "fanout")
    bind(fanout, "a", "1")
    bind(fanout, "a", "2")
    bind(fanout, "b")
    assert route(fanout, "whatever") == ["a", "b"]


# From the examples of the standard and of RabbitMQ's own tests.
@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.c", False),
        ("a.*.c", "a.b.b.c", False),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("#", "", True),
        ("#", "a.b", True),
        ("*", "", False),
        ("*", "a.b", False),
        ("#.#", "a", True),
        ("*.#", "a", True),
        ("#.a", "b.a", True),
        ("#.a.#", "x.y.a.z", True),
        ("#.a", "b.a.c", False),
        ("", "", True),
        ("a.b", "a.b.", False),
        ("*.*.a.#", "x.y.a", True),
    ],
)
def test_patterns_of_a_topic_exchange(pattern, key, matches):
    topic = exchange_of("x", "topic")
    bind(topic, "q", pattern)
    assert route(topic, key) == (["q"] if matches else [])


def words_of(text):
    return text.split(".") if text else []


def as_expression(pattern):
    """The same pattern for Python's own matcher; each word begins with a dot, and "" has none."""
    words = {"*": r"\.[^.]*", "#": r"(\.[^.]*)*"}
    parts = [words.get(word, r"\." + re.escape(word)) for word in words_of(pattern)]
    return re.compile("".join(parts) + r"\Z")


WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=6).map(".".join)


@given(st.lists(WORDS, unique=True, max_size=8), KEYS, st.data())
def test_the_tree_of_patterns_finds_what_an_expression_finds(patterns, key, data):
    topic = exchange_of("x", "topic")
    bound = {pattern: bind(topic, pattern, pattern) for pattern in patterns}
    gone = data.draw(st.lists(st.sampled_from(patterns), unique=True)) if patterns else []
    for pattern in gone:
        topic.remove(bound[pattern])
    left = [pattern for pattern in patterns if pattern not in gone]
    dotted = "".join("." + word for word in words_of(key))
    expected = [pattern for pattern in left if as_expression(pattern).match(dotted)]
    assert route(topic, key) == sorted(expected)
    if not left:
        assert not topic._root.next, "the tree is as if nothing had been bound"


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1}, {}, False),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all"}, {}, True),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": True}, {"a": 1}, False),
        ({"x-match": "all", "x-tag": 1}, {}, True),
        ({"x-match": "all-with-x", "x-tag": 1}, {}, False),
        ({"x-match": "any-with-x", "x-tag": 1}, {"x-tag": 1}, True),
    ],
)
def test_a_headers_exchange_compares_headers(arguments, headers, matches):
    exchange = exchange_of("x", "headers")
    bind(exchange, "q", "", arguments)
    assert route(exchange, "", headers) == (["q"] if matches else [])


def test_exchanges_lead_to_exchanges_and_circles_end():
    first, second = exchange_of("1", "fanout"), exchange_of("2", "direct")
    bind(first, "2", kind=EXCHANGE)
    bind(second, "1", "k", kind=EXCHANGE)
    bind(second, "q", "k")
    assert route(first, "k", others=[second]) == ["q"]
    assert route(first, "other", others=[second]) == []


def test_an_alternate_exchange_gets_what_nobody_takes():
    first = exchange_of("1", "direct", {"alternate-exchange": "2"})
    second = exchange_of("2", "fanout")
    bind(first, "q", "k")
    bind(second, "rest")
    assert route(first, "k", others=[second]) == ["q"]
    assert route(first, "other", others=[second]) == ["rest"]


def test_what_is_kept_is_forgotten_when_a_binding_changes():
    direct = exchange_of("x", "direct")
    router = Router({"x": direct})
    assert router.queues_of(direct, message_of("k")) == ()
    bind(direct, "q", "k")
    router.changed()
    assert router.queues_of(direct, message_of("k")) == ("q",)
    assert router.queues_of(direct, message_of("other", "k")) == ("q",)
