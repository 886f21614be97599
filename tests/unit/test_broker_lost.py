"""What a node has lost is said, and no client's declare and no new user makes it worse."""

from __future__ import annotations

import logging
import shutil

import pytest
from broker_rooms import NoSyncs, Turns, declare, drain, publish

import qindex
from qindex.broker.catalog import StoreCatalog
from qindex.broker.errors import Precondition
from qindex.broker.node import PASSWORD, USER, Node
from qindex.broker.rescue.rescue import Rescue
from qindex.broker.vhost import VHost
from qindex.brokers.tree import UnknownFormat
from qindex.errors import NotAStore, StoreNested


def opened(store):
    return VHost("/", Turns(), store)


def test_a_queue_without_a_definition_is_served_and_no_declare_removes_it(tmp_path, caplog):
    with qindex.open(tmp_path, format=2) as store:
        vhost = opened(store)
        declare(vhost, "orders", max_length=100)
        publish(vhost, b"1", b"2", key="orders")
        declare(vhost, "empty")
        StoreCatalog(store).apply({"queue/orders": None, "queue/empty": None})
        with caplog.at_level(logging.WARNING):
            vhost = opened(store)
        assert ["'orders' has 2 messages" in each for each in caplog.messages] == [True]
        assert set(vhost.queues) == {"orders"}
        with pytest.raises(Precondition):
            declare(vhost, "orders", max_length=100)
        declare(vhost, "orders")
        caplog.clear()
        vhost = opened(store)  # it has a definition now
        assert not caplog.messages
        assert drain(vhost.queues["orders"]) == [b"1", b"2"]


def test_a_declare_keeps_what_came_into_the_store_behind_the_open(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        vhost = opened(store)
        store.queue("late").publish(b"by somebody else")
        assert len(declare(vhost, "late")) == 1


def test_a_queue_whose_folder_is_gone_is_named(tmp_path, caplog):
    with qindex.open(tmp_path, format=2) as store:
        declare(opened(store), "orders")
        folder = tmp_path / store.queue_directory("orders")
    shutil.rmtree(folder)
    with qindex.open(tmp_path) as store, caplog.at_level(logging.WARNING, "qindex.broker"):
        opened(store)
        assert any("'orders' has no folder any more" in each for each in caplog.messages)


def node_of(directory, environment=None):
    return Node(directory, Turns(), NoSyncs, environment or {})


@pytest.fixture
def lost(tmp_path):
    """A node whose users and virtual hosts are lost, but not the messages."""
    node = node_of(tmp_path)
    node.add_vhost("work")
    declare(node.vhost("work"), "q")
    node.close()
    shutil.rmtree(tmp_path / "node")
    return tmp_path


def test_a_node_that_has_lost_its_users_lets_nobody_in_as_guest(lost):
    for _ in range(2):
        with pytest.raises(NotAStore, match=f"names no users .* set {USER} and {PASSWORD}"):
            node_of(lost)


def test_it_goes_on_with_a_user_who_was_named_and_gives_no_store_away(lost):
    node = node_of(lost, {USER: "ann", PASSWORD: "long enough"})
    node.add_vhost("new")
    assert not node.vhost("new").queues
    assert sorted(path.name for path in (lost / "vhosts").iterdir()) == ["1", "2"]
    node.close()


def test_a_rescue_does_not_write_into_the_dead_node(tmp_path):
    rescue = Rescue(tmp_path, [], lambda call: None)
    for inside in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(StoreNested, match="where nothing is changed"):
            rescue.check_target(inside)
    with pytest.raises(UnknownFormat, match="no RabbitMQ node"):
        rescue.check_target(tmp_path.parent / "elsewhere")
