"""Exchanges of the type x-delayed-message: messages wait in their queues until they are due."""

from __future__ import annotations

import time

import pytest
from broker_rooms import declare, drain, publish, turns, vhost

import qindex
from qindex.broker.definitions import restore
from qindex.broker.errors import NotThere, Precondition
from qindex.broker.vhost import VHost


def declare_delayed(vhost, name="later", kind="direct", **arguments):
    if kind is not None:
        arguments["x-delayed-type"] = kind
    options = {"durable": True, "auto_delete": False, "internal": False}
    vhost.declare_exchange(name, "x-delayed-message", arguments=arguments, **options)


def test_a_message_waits_as_long_as_its_header_says(vhost, turns):
    queue = declare(vhost)
    declare_delayed(vhost)
    vhost.bind("later", "queue", "q", "k", {}, None)
    (outcome,) = publish(vhost, b"late", key="k", exchange="later", headers={"x-delay": 60})
    assert (outcome.queues, outcome.refused) == (["q"], False)
    at_once = [0, -5, True, "-5", "6 0", "soon", "", -0.5, 0.5, float("inf"), float("nan")]
    for headers in (None, *({"x-delay": value} for value in at_once)):
        publish(vhost, b"now", key="k", exchange="later", headers=headers)
    publish(vhost, b"nowhere", key="other", exchange="later", headers={"x-delay": 60})
    turns.run()
    assert (len(queue), queue.backlog.delayed()) == (12, 1)
    assert drain(queue) == [b"now"] * 12
    time.sleep(0.07)
    turns.fire()
    found = queue.get()
    assert (found.message.body, found.message.headers) == (b"late", {"x-delay": -60})


@pytest.mark.parametrize("ms", ["60", "0060", 60.0, 60.9])
def test_digits_and_fractions_are_numbers(vhost, turns, ms):
    queue = declare(vhost)
    declare_delayed(vhost)
    vhost.bind("later", "queue", "q", "k", {}, None)
    publish(vhost, b"late", key="k", exchange="later", headers={"x-delay": ms})
    assert (len(queue), queue.backlog.delayed()) == (0, 1)
    time.sleep(0.07)
    turns.fire()
    assert queue.get().message.headers == {"x-delay": -60}


@pytest.mark.parametrize(("after_us", "left"), [(50_000, [b"late"]), (50_001, [])])
def test_the_time_to_live_begins_when_it_is_due(vhost, turns, monkeypatch, after_us, left):
    queue = declare(vhost, message_ttl=50)
    declare_delayed(vhost, kind="fanout")
    vhost.bind("later", "queue", "q", "", {}, None)
    publish(vhost, b"late", exchange="later", headers={"x-delay": 80})
    (looked,) = queue.backlog.look(0, "delayed")
    time.sleep(0.09)
    monkeypatch.setattr("qindex.broker.queues.now_us", lambda: looked.due_us + after_us)
    turns.fire()
    assert drain(queue) == left


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "reached"),
    [("topic", "a.*", {}, True), ("topic", "b.*", {}, False), ("headers", "", {"h": 1}, True)],
)
def test_it_routes_as_its_argument_says(vhost, kind, key, arguments, reached):
    queue = declare(vhost)
    declare_delayed(vhost, kind=kind)
    vhost.bind("later", "queue", "q", key, arguments, None)
    publish(vhost, b"x", key="a.b", exchange="later", headers={"x-delay": 10_000, "h": 1})
    assert queue.backlog.delayed() == reached
    assert vhost.route(vhost.exchange("later"), "a.b") is None


@pytest.mark.parametrize("kind", [None, 5, "x-delayed-message", "nothing"])
def test_without_a_type_it_is_refused(vhost, kind):
    with pytest.raises(Precondition, match="x-delayed-type"):
        declare_delayed(vhost, kind=kind)
    assert "later" not in vhost.exchanges


def test_another_type_is_not_the_same_exchange_and_no_binding_leads_there(vhost):
    declare_delayed(vhost)
    declare_delayed(vhost)
    with pytest.raises(Precondition, match="inequivalent arg 'x-delayed-type'"):
        declare_delayed(vhost, kind="topic")
    with pytest.raises(NotThere, match="destination"):
        vhost.bind("amq.direct", "exchange", "later", "k", {}, None)


@pytest.mark.parametrize("first", ["later", "front"])
def test_it_is_no_alternate_exchange(vhost, first):
    options = {"durable": True, "auto_delete": False, "internal": False}
    named = {"alternate-exchange": "later"}

    def declare_front():
        vhost.declare_exchange("front", "direct", arguments=named, **options)

    calls = [lambda: declare_delayed(vhost), declare_front]
    if first == "front":
        calls.reverse()
    calls[0]()
    with pytest.raises(NotThere, match=r"'later' .*as an alternate exchange"):
        calls[1]()
    assert {"later", "front"} & set(vhost.exchanges) == {first}
    with pytest.raises(NotThere, match=r"'own' .*as an alternate exchange"):
        declare_delayed(vhost, "own", **{"alternate-exchange": "own"})


def with_dead_letters(vhost, **arguments):
    declare_delayed(vhost, kind="fanout")
    declare(vhost, "dead")
    vhost.bind("later", "queue", "dead", "", {}, None)
    return declare(vhost, dead_letter_exchange="later", **arguments)


def test_a_dead_letter_of_a_delay_of_centuries_leaves_at_once_and_holds_nothing_up(vhost, turns):
    queue = with_dead_letters(vhost, max_length=1)
    publish(vhost, b"1", headers={"x-delay": 2**50})
    publish(vhost, b"2", b"3")
    queue.reject([queue.get()])
    assert drain(vhost.queues["dead"]) == [b"1", b"2", b"3"]
    assert (len(queue), queue.unacked, vhost.dead_dropped) == (0, 0, 0)


def test_a_dead_letter_that_is_refused_does_not_come_again(vhost, monkeypatch):
    def refuse(*args):
        raise Precondition("not this one")

    queue = with_dead_letters(vhost)
    publish(vhost, b"1")
    monkeypatch.setattr("qindex.broker.posting.in_queue", refuse)
    queue.reject([queue.get()])
    assert (len(queue), queue.unacked, vhost.dead_dropped) == (0, 0, 1)


@pytest.mark.parametrize("ms", [2**50, 2.0**50, 1e300, "9" * 5000])
def test_a_delay_of_centuries_is_refused_and_nothing_is_published(vhost, ms):
    queue = declare(vhost)
    declare_delayed(vhost)
    vhost.bind("later", "queue", "q", "k", {}, None)
    with pytest.raises(Precondition, match="x-delay"):
        publish(vhost, b"x", key="k", exchange="later", headers={"x-delay": ms})
    assert (len(queue), queue.backlog.delayed()) == (0, 0)


def test_exchange_and_message_are_there_after_a_restart(tmp_path, turns):
    with qindex.open(tmp_path / "s", format=2, expire=False) as store:
        vhost = VHost("/", turns, store)
        declare(vhost)
        declare_delayed(vhost)
        vhost.bind("later", "queue", "q", "k", {}, None)
        publish(vhost, b"x", key="k", exchange="later", headers={"x-delay": 50})
        vhost.close()
    with qindex.open(tmp_path / "s", format=2, expire=False) as store:
        vhost = VHost("/", turns, store)
        restore(vhost, vhost.catalog)
        assert vhost.exchange("later").delays
        time.sleep(0.06)
        turns.fire()
        assert drain(vhost.queues["q"]) == [b"x"]
        vhost.close()


def test_delayed_messages_come_also_if_they_could_not_be_read_once(vhost, turns, monkeypatch):
    queue = declare(vhost)
    declare_delayed(vhost)
    vhost.bind("later", "queue", "q", "k", {}, None)
    publish(vhost, b"late", key="k", exchange="later", headers={"x-delay": 30})
    time.sleep(0.04)

    def fails():
        monkeypatch.undo()
        raise qindex.DiskError("no")

    monkeypatch.setattr(queue.backlog, "take_in_due", fails, raising=True)
    turns.fire()
    turns.fire()  # a second later
    assert drain(queue) == [b"late"]
