"""A virtual host: declare, delete, what is refused; what a store has when it is opened again."""

from __future__ import annotations

import pytest
from broker_rooms import Consumer, declare, publish, turns, vhost
from hypothesis import given
from hypothesis import strategies as st

import qindex
from qindex.broker.errors import Locked, NotFound, NotThere, Precondition
from qindex.broker.message import Message, from_table
from qindex.broker.vhost import VHost
from qindex.errors import DiskFull
from qindex.field_table import decode_table, encode_table


def test_a_queue_that_nobody_uses_goes(vhost, turns):
    declare(vhost, expires=60_000)
    turns.fire()
    assert "q" not in vhost.queues


def test_a_queue_that_is_not_durable_goes_without_a_change_of_the_catalog(vhost, monkeypatch):
    def full(changes):
        raise DiskFull("no room")

    mine = object()
    queue = vhost.declare_queue(
        "mine", durable=False, auto_delete=False, owner=mine, user=mine, arguments={}
    )
    vhost.bind("amq.direct", "queue", "mine", "k", {}, mine)
    monkeypatch.setattr(vhost.catalog, "apply", full)
    assert vhost.queues_of(mine) == [queue]
    vhost.delete_unused(queue)
    vhost.delete_unused(queue)
    assert "mine" not in vhost.queues
    assert not vhost.exchange("amq.direct").bindings


def test_a_queue_goes_with_its_last_consumer_if_it_is_to(vhost, turns):
    queue = vhost.declare_queue(
        "q", durable=True, auto_delete=True, owner=None, user=None, arguments={}
    )
    consumer = Consumer()
    queue.add_consumer(consumer, "q")
    queue.remove_consumer(consumer)
    assert "q" not in vhost.queues


def test_a_queue_of_a_connection_is_locked_for_others_and_goes_with_it(vhost):
    mine, other = object(), object()
    options = {"durable": False, "auto_delete": False, "arguments": {}}
    vhost.declare_queue("q", owner=mine, user=mine, **options)
    with pytest.raises(Locked, match="cannot obtain exclusive access to locked queue 'q'"):
        vhost.queue("q", other)
    with pytest.raises(Locked):
        vhost.declare_queue("q", owner=None, user=other, **options)
    for queue in vhost.queues_of(mine):
        vhost.delete_unused(queue)
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'"):
        vhost.queue("q", other)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"auto_delete": True}, "'auto_delete' for queue 'q' .* 'true' but current is 'false'"),
        ({"durable": False}, "'durable' for queue 'q' .* 'false' but current is 'true'"),
        (
            {"arguments": {"x-max-length": 2}},
            "'x-max-length' .* the value '2' of type 'signedint' but current is none",
        ),
    ],
)
def test_another_declaration_of_the_same_name_is_refused(vhost, changed, text):
    declare(vhost)
    options = {"durable": True, "auto_delete": False, "arguments": {}, **changed}
    with pytest.raises(Precondition, match=text):
        vhost.declare_queue("q", owner=None, user=None, **options)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"queue_type": "stream"}, NotThere, "no streams"),
        ({"queue_type": "what"}, Precondition, "unsupported queue type 'what'"),
        ({"max_length": -1}, Precondition, "invalid arg 'x-max-length' for queue 'q'"),
        ({"max_length": "1"}, Precondition, "expected integer, got longstr"),
        ({"expires": 0}, Precondition, "value_zero,0"),
        ({"overflow": "x"}, Precondition, "invalid_overflow"),
        ({"dead_letter_routing_key": "k"}, Precondition, "routing_key_but_no_dlx_defined"),
        ({"max_priority": 256}, Precondition, "max_value_exceeded"),
    ],
)
def test_arguments_that_a_queue_cannot_have_are_refused(vhost, arguments, error, text):
    with pytest.raises(error, match=text):
        declare(vhost, **arguments)
    assert "q" not in vhost.queues


def test_a_queue_in_use_or_with_messages_is_kept_if_that_was_asked(vhost):
    queue = declare(vhost)
    publish(vhost, b"1", b"2")
    with pytest.raises(Precondition, match="queue 'q' in vhost '/' not empty"):
        vhost.delete_queue("q", None, if_empty=True)
    consumer = Consumer()
    queue.add_consumer(consumer, "q")
    with pytest.raises(Precondition, match="queue 'q' in vhost '/' in use"):
        vhost.delete_queue("q", None, if_unused=True)
    assert vhost.delete_queue("q", None) == 2
    assert consumer.gone


def test_a_store_has_everything_again_when_it_is_opened_anew(turns, tmp_path):
    store = qindex.open(tmp_path / "s", format=2, expire=False)
    vhost = VHost("/", turns, store)
    options = {"durable": True, "auto_delete": False, "internal": False}
    vhost.declare_exchange("x", "topic", arguments={"alternate-exchange": "y"}, **options)
    vhost.declare_exchange("gone", "fanout", arguments={}, **options)
    declare(vhost, "ü" * 100, max_priority=3)
    declare(vhost, "deleted")
    vhost.bind("x", "queue", "ü" * 100, "a.#", {"n": 1}, None)
    vhost.bind("x", "queue", "deleted", "a.#", {}, None)
    vhost.delete_queue("deleted", None)
    vhost.delete_exchange("gone", if_unused=False)
    publish(vhost, b"1", b"2", exchange="x", key="a.b")
    taken = vhost.queues["ü" * 100].get()
    assert taken.message.body == b"1"
    store.close()

    store = qindex.open(tmp_path / "s", format=2, expire=False)
    vhost = VHost("/", turns, store)
    assert list(vhost.queues) == ["ü" * 100]
    assert "gone" not in vhost.exchanges
    assert vhost.exchanges["x"].alternate == "y"
    entry = vhost.queues["ü" * 100].get()
    assert (entry.message.body, entry.redelivered) == (b"1", True)
    assert [len(outcome.queues) for outcome in publish(vhost, b"3", exchange="x", key="a")] == [1]
    store.close()


def test_names_that_are_no_utf_8_are_kept():
    message = Message("\udcff", ["\udcfe", "b"], b"\0\0", b"body", persistent=True)
    found = from_table(message.to_table(), b"body", persistent=True, priority=0, queue="q")
    assert (found.exchange, found.routing_keys) == ("\udcff", ["\udcfe", "b"])


NAMES = st.text(max_size=20)


@given(
    NAMES, st.lists(NAMES, min_size=1, max_size=3), st.binary(max_size=40), st.integers(0, 2**62)
)
def test_a_message_is_the_same_after_a_store_had_it(exchange, keys, properties, expires_us):
    message = Message(exchange, keys, properties, b"body", expires_us=expires_us)
    table = message.to_table()
    found = from_table(table, b"body", persistent=False, priority=3, queue="q")
    assert (found.exchange, found.routing_keys) == (exchange, keys)
    assert (found.properties, found.expires_us, found.priority) == (properties, expires_us, 3)
    decoded = decode_table(table)
    assert decoded["properties"] == properties, "qindex peek and republish read it, too"


@given(st.dictionaries(NAMES, st.one_of(NAMES, st.integers(0, 9), st.lists(NAMES)), max_size=4))
def test_headers_of_other_programs_are_the_headers_of_the_message(headers):
    found = from_table(encode_table(headers), b"", persistent=True, priority=0, queue="q")
    assert found.headers == headers
    assert found.routing_keys == ["q"]
    assert found.decoded.delivery_mode == 2


def test_a_queue_with_very_many_bindings_is_deleted_for_good(turns, tmp_path, monkeypatch):
    monkeypatch.setattr("qindex.broker.catalog._PIECE_BYTES", 200)
    with qindex.open(tmp_path / "s", format=2, expire=False) as store:
        vhost = VHost("/", turns, store)
        declare(vhost)
        for number in range(20):
            vhost.bind("amq.direct", "queue", "q", "k", {"a": f"{number}" * 9000}, None)
        assert len(store.data) == 21
        vhost.delete_queue("q", None)
        assert len(store.data) == 0
