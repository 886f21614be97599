"""What a node has lost is said, and no client's declare and no new user makes it worse."""

from __future__ import annotations

import logging
import shutil

import pytest
from broker_rooms import NoSyncs, Turns, declare, drain, publish

import qindex
from qindex.broker.catalog import StoreCatalog
from qindex.broker.errors import Precondition, VHostDown
from qindex.broker.node import PASSWORD, USER, VHOST, Node
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
    assert sorted(path.name for path in (lost / "vhosts").iterdir()) == ["1", "3"]
    node.close()


def put_back(directory, copy):
    shutil.rmtree(directory / "node")
    shutil.copytree(copy, directory / "node")


def test_a_virtual_host_that_is_added_again_gets_its_own_store_and_no_other(lost, caplog):
    with caplog.at_level(logging.WARNING, "qindex.broker"):
        node = node_of(lost, {USER: "ann", PASSWORD: "long enough", VHOST: "app"})
    assert f"{lost / 'vhosts' / '1'} is the store of no virtual host" in caplog.messages[-1]
    assert "it is that of 'work', which gets it again when it is added" in caplog.messages[-1]
    assert not node.vhost("app").queues
    node.add_vhost("work")
    assert list(node.vhost("work").queues) == ["q"]
    node.close()
    caplog.clear()
    node_of(lost).close()
    assert not caplog.messages


def test_an_older_copy_of_the_node_gives_no_store_to_another_virtual_host(tmp_path):
    directory, copy = tmp_path / "d", tmp_path / "copy"
    node = node_of(directory)
    node.add_vhost("x")
    node.vhost("x")
    node.close()
    shutil.copytree(directory / "node", copy)
    node = node_of(directory)
    node.delete_vhost("x")
    node.add_vhost("secret")
    declare(node.vhost("secret"), "q")
    node.close()
    put_back(directory, copy)
    node = node_of(directory)
    with pytest.raises(VHostDown, match="vhosts/1' is gone"):
        node.vhost("x")
    node.delete_vhost("x")
    node.add_vhost("secret")
    assert list(node.vhost("secret").queues) == ["q"]
    node.close()


def test_a_store_in_the_place_of_another_one_is_refused_and_not_deleted(tmp_path, caplog):
    node = node_of(tmp_path)
    node.add_vhost("work")
    declare(node.vhost("work"), "q")
    node.vhost("/")
    node.close()
    shutil.rmtree(tmp_path / "vhosts" / "0")
    (tmp_path / "vhosts" / "1").rename(tmp_path / "vhosts" / "0")
    node = node_of(tmp_path)
    for _ in range(2):
        with pytest.raises(VHostDown, match="is the store of virtual host 'work': put that of '/'"):
            node.vhost("/")
    node.delete_vhost("/")
    node.delete_vhost("work")
    node.add_vhost("work")
    assert list(node.vhost("work").queues) == ["q"]
    node.close()


def test_a_store_that_could_not_be_deleted_comes_to_nobody(tmp_path, monkeypatch):
    node = node_of(tmp_path)
    node.add_vhost("work")
    declare(node.vhost("work"), "q")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, **options: None)
        node.delete_vhost("work")
    node.add_vhost("work")
    assert not node.vhost("work").queues
    assert (tmp_path / "vhosts" / "1").exists()
    node.close()
    node_of(tmp_path).close()
    assert sorted(path.name for path in (tmp_path / "vhosts").iterdir()) == ["2"]


def test_a_store_from_before_is_its_virtual_hosts_from_the_first_opening_on(tmp_path):
    node = node_of(tmp_path)
    node.vhost("/").catalog.apply({"vhost": None})
    node.close()
    node = node_of(tmp_path)
    assert dict(node.vhost("/").catalog.items())["vhost"] == b"/"
    node.close()


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_store_that_is_gone_is_not_served_empty(tmp_path, is_mount_point):
    node = node_of(tmp_path / "d")
    node.add_vhost("new")  # nobody has opened it: nothing can be missing
    declare(node.vhost("/"), "q")
    node.close()
    (tmp_path / "d" / "vhosts").rename(tmp_path / "away")
    if is_mount_point:
        (tmp_path / "d" / "vhosts" / "0").mkdir(parents=True)
    node = node_of(tmp_path / "d")
    assert not node.vhost("new").queues
    with pytest.raises(VHostDown, match="gone, with the messages of virtual host '/'"):
        node.vhost("/")
    shutil.copytree(tmp_path / "away" / "0", tmp_path / "d" / "vhosts" / "0", dirs_exist_ok=True)
    assert list(node.vhost("/").queues) == ["q"]
    node.close()


def test_a_rescue_that_is_refused_leaves_nothing(tmp_path):
    Node(tmp_path / "d", Turns(), NoSyncs, {}, is_rescue=True).close()
    assert not list(tmp_path.iterdir())
    (tmp_path / "d").mkdir()
    Node(tmp_path / "d", Turns(), NoSyncs, {}, is_rescue=True).close()
    assert not list((tmp_path / "d").iterdir())


def test_a_rescue_does_not_write_into_the_dead_node(tmp_path):
    rescue = Rescue(tmp_path, [], lambda call: None)
    for inside in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(StoreNested, match="where nothing is changed"):
            rescue.check_target(inside)
    with pytest.raises(UnknownFormat, match="no RabbitMQ node"):
        rescue.check_target(tmp_path.parent / "elsewhere")
