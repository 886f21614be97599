"""Khepri's tree from commands: puts, deletes, conditions; transactions are never run."""

from __future__ import annotations

from typing import Any

import pytest

from qindex.brokers.rabbitmq.erlang import Atom
from qindex.brokers.rabbitmq.khepri.metadata import Metadata, is_in_force
from qindex.brokers.rabbitmq.khepri.tree import Khepri, KhepriError, Transaction

NONE = Atom("$__NO_PAYLOAD__")


def atoms(*names: Any) -> list[Any]:
    return [Atom(name) if isinstance(name, str) else name for name in names]


def command(*parts: Any) -> tuple[Any, ...]:
    return (Atom("$usr"), {}, parts, Atom("noreply"))


def put(path: list[Any], value: Any, options: Any = None) -> tuple[Any, ...]:
    return command(Atom("put"), path, (Atom("p_data"), value), options or {})


def delete(path: list[Any]) -> tuple[Any, ...]:
    return command(Atom("delete"), path, {})


def played(*entries: Any) -> dict[tuple[Any, ...], Any]:
    tree = Khepri()
    for index, entry in enumerate(entries):
        tree.apply(index, entry)
    assert tree.unknown == 0
    return dict(tree.nodes())


def test_what_was_put_last_is_there() -> None:
    assert played(put(atoms("a", b"x"), 1), put(atoms("a", b"y"), 2), put(atoms("a", b"x"), 3)) == {
        ("a", b"x"): 3,
        ("a", b"y"): 2,
    }


def test_a_delete_takes_what_is_below_it() -> None:
    entries = [put(atoms("a", b"x"), 1), put(atoms("a", b"x", b"below"), 2), put(atoms("b"), 3)]
    assert played(*entries, delete(atoms("a", b"x"))) == {("b",): 3}


def test_a_put_for_a_new_node_changes_no_old_one() -> None:
    def create(value: int) -> Any:
        component = (Atom("if_all"), [b"x", (Atom("if_node_exists"), Atom("false"))])
        return put([Atom("a"), component], value)

    assert played(create(1), create(2)) == {("a", b"x"): 1}


def test_an_update_of_another_version_is_not_carried_out() -> None:
    def update(version: int, value: int) -> Any:
        component = (Atom("if_all"), [b"x", (Atom("if_payload_version"), version)])
        return put([Atom("a"), component], value)

    start = put(atoms("a", b"x"), 1)
    assert played(start, update(1, 2), update(1, 3), update(2, 4)) == {("a", b"x"): 4}


def test_a_pattern_deletes_each_node_that_it_matches() -> None:
    star = (Atom("if_name_matches"), Atom("any"), Atom("undefined"))
    entries = [
        put(atoms("a", b"x", "q"), 1),
        put(atoms("a", b"y", "q"), 2),
        put(atoms("b", "q"), 3),
    ]
    assert played(*entries, delete([Atom("a"), star, Atom("q")])) == {("b", "q"): 3}
    deep = (Atom("if_path_matches"), Atom("any"), Atom("undefined"))
    assert played(*entries, delete([deep])) == {}


def test_a_node_that_is_kept_while_another_exists_goes_with_it() -> None:
    keep = {
        Atom("keep_while"): {tuple(atoms("users", b"u")): (Atom("if_node_exists"), Atom("true"))}
    }
    entries = [put(atoms("users", b"u"), 1), put(atoms("permissions", b"u"), 2, keep)]
    assert played(*entries) == {("users", b"u"): 1, ("permissions", b"u"): 2}
    assert played(*entries, delete(atoms("users", b"u"))) == {}


def test_a_command_is_found_within_its_wrappers() -> None:
    wrapped = (Atom("dedup"), 1, 2, (Atom("put"), atoms("a"), (Atom("p_data"), 1), {}))
    entry = (Atom("$usr"), {}, wrapped, Atom("noreply"))
    assert played(entry, command(Atom("dedup_ack"), 1)) == {("a",): 1}


def test_a_transaction_is_kept_and_changes_nothing() -> None:
    queue = (Atom("resource"), b"/", Atom("queue"), b"orders")
    names = {(Atom("run"), 0): (Atom("rabbit_db_queue"), Atom("-delete_in_khepri/2-fun-0-"), 0)}
    function = (Atom("horus_fun"), Atom("m"), b"FOR1", 0, [], names, [[queue]], Atom("undefined"))
    tree = Khepri()
    tree.apply(7, command(Atom("tx"), function, []))
    assert tree.transactions == [
        Transaction(7, "rabbit_db_queue:-delete_in_khepri/2-fun-0-", (("queue", b"/", b"orders"),))
    ]
    assert dict(tree.nodes()) == {}
    record = (Atom("amqqueue"),)
    metadata = Metadata("", queues={(b"/", b"orders"): record, (b"/", b"other"): record})
    metadata.transactions = tree.transactions
    assert metadata.perhaps_deleted == {(b"/", b"orders")}
    assert not metadata.is_exact


def test_a_binding_of_rabbitmq_deletes_no_queue() -> None:
    bind = Transaction(1, "rabbit_db_binding:-create_in_khepri/2-fun-0-", (("queue", b"/", b"q"),))
    metadata = Metadata("", queues={(b"/", b"q"): ()}, transactions=[bind])
    assert metadata.perhaps_deleted == set()


def test_an_unknown_command_is_counted() -> None:
    tree = Khepri()
    tree.apply(1, command(Atom("turn"), 1))
    tree.apply(2, (Atom("something"), 1))
    tree.apply(3, (Atom("noop"), {}, 2))
    tree.apply(4, (Atom("$ra_cluster_change"), 1))
    assert tree.unknown == 2


def snapshot(children: dict[Any, Any], conditions: Any = None) -> Any:
    root = (Atom("node"), {}, NONE, children)
    tree = (Atom("tree"), root, conditions or {}, {})
    return (Atom("khepri_machine"), (), tree, {}, [], {}, {}, {})


def test_a_snapshot_is_where_the_log_goes_on() -> None:
    node = (Atom("node"), {Atom("payload_version"): 5}, (Atom("p_data"), 1), {})
    tree = Khepri()
    tree.apply(1, put(atoms("old"), 1))
    tree.load(snapshot({Atom("a"): (Atom("node"), {}, NONE, {b"x": node})}), 2)
    component = (Atom("if_all"), [b"x", (Atom("if_payload_version"), 5)])
    tree.apply(9, put([Atom("a"), component], 2))
    assert dict(tree.nodes()) == {("a", b"x"): 2}


@pytest.mark.parametrize(
    ("state", "version"),
    [(snapshot({}), 4), ((Atom("other"),), 2), (snapshot({Atom("a"): 7}), 2), (None, 0)],
)
def test_a_snapshot_of_another_shape_is_refused(state: Any, version: int) -> None:
    with pytest.raises(KhepriError):
        Khepri().load(state, version)


@pytest.mark.slow
def test_a_deep_tree_needs_no_recursion() -> None:
    node: Any = (Atom("node"), {}, (Atom("p_data"), 1), {})
    for _ in range(20_000):
        node = (Atom("node"), {}, NONE, {Atom("a"): node})
    tree = Khepri()
    tree.load(snapshot({Atom("a"): node}), 2)
    ((path, payload),) = tree.nodes()
    assert (len(path), payload) == (20_001, 1)


def test_the_feature_flag_decides_where_it_can_be_read() -> None:
    assert is_in_force(b"[feature_flags_v2,khepri_db,quorum_queue].\n", has_server=False)
    assert not is_in_force(b"[quorum_queue].\n", has_server=True)
    assert is_in_force(None, has_server=True)
    assert not is_in_force(None, has_server=False)
