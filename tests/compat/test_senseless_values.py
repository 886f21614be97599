"""Values that no node has, in records whose checksums match: what they are in is given or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ra_files import pid, snapshot, snapshot_folder, term

from qindex.brokers.rabbitmq.container import annotate
from qindex.brokers.rabbitmq.definitions import read_definitions
from qindex.brokers.rabbitmq.erlang import Atom, ErlangError, decode
from qindex.brokers.rabbitmq.khepri.tree import Khepri
from qindex.brokers.rabbitmq.properties import MessageError, encode_typed_table
from qindex.brokers.rabbitmq.quorum.state import StateError, read_state
from qindex.brokers.tree import Findings, Tree

from .test_quorum_adversary import (
    CONFIG,
    LOG,
    M20,
    NOTHING,
    SYSTEM,
    UID,
    Read,
    entries,
    rows,
    state,
    user,
    wal,
)

HUGE = 1 << 1000
KEY = (b"tag", pid(20))
JOIN = user(Atom("checkout"), KEY, (Atom("auto"), 5, Atom("simple_prefetch")), {})
CONTENT = (Atom("content"), 60, Atom("none"), b"\0\0", Atom("rabbit"), [b"m21"])


def container(notes: dict[Any, Any]) -> Any:
    return (Atom("mc"), Atom("mc_amqpl"), CONTENT, {Atom("rk"): [b"q"], Atom("x"): b"", **notes})


def read(path: Path, *more: bytes, version: int = 4, hole: bool = False) -> Read:
    """Of twenty messages, and these entries behind them."""
    log = wal(rows(entries(20, version)))
    for index, data in enumerate(more, 23 + hole):
        log.add(UID, index, data)
    return Read(path, {**CONFIG, LOG: log.data})


@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        (Atom("enqueue"), [[]], 1, b"x"),  # a publisher that is a list
        (Atom("enqueue"), {1: []}, 21, b"x"),
        (Atom("settle"), (b"tag", [1]), [0]),  # a consumer that has one in it
        (Atom("settle"), [[]], [0]),
        (Atom("return"), (b"tag", {}), [0]),
        (Atom("register_enqueuer"), [], pid(1)),
        (Atom("checkout"), (b"tag", []), (Atom("auto"), 5, Atom("simple_prefetch")), {}),
        (Atom("credit"), [[]], HUGE, -HUGE, Atom("true")),
        (Atom("down"), [], Atom("noproc")),
        (Atom("update_config"), {Atom("msg_ttl"): -HUGE, Atom("max_length"): HUGE}),
    ],
)
def test_a_command_of_senseless_values_costs_no_message(
    tmp_path: Path, command: Any, hole: bool
) -> None:
    told = read(tmp_path, JOIN, user(*command), hole=hole)
    assert set(M20) <= set(told.bodies["q"])


@pytest.mark.parametrize("version", [4, 7, 8])
@pytest.mark.parametrize(
    ("notes", "sizes"),
    [
        ({Atom("ttl"): HUGE}, (0, 3)),
        ({Atom("ttl"): (1 << 63) - 1}, (0, 3)),
        ({Atom("delivery_count"): HUGE}, (0, 3)),
        ({Atom("p"): -HUGE}, (0, 3)),
        ({}, (-1, -1)),
        ({}, (HUGE, HUGE)),
        ({}, (0, 1 << 63)),
    ],
)
def test_a_message_of_senseless_values_is_given(
    tmp_path: Path, notes: dict[Any, Any], sizes: tuple[int, int], version: int
) -> None:
    command = (Atom("e"), 21, container(notes), sizes)
    reply = (Atom("notify"), 1, pid(10))
    late = term((Atom("$usr"), {Atom("ts"): HUGE}, (Atom("e"), 22, *command[2:]), reply))
    usual = term((Atom("$usr"), {Atom("ts"): 1}, command, reply))
    told = read(tmp_path, usual, late, version=version)
    assert sorted(told.bodies["q"]) == sorted([*M20, b"m21", b"m21"])


def consumer(**changes: Any) -> Any:
    told = {"pid": pid(20), "mode": (Atom("simple_prefetch"), 5), "checked": {0: 1}, "next": 1}
    told = {**told, "credit": 4, "count": 1, "priority": 0, **changes}
    cfg = (Atom("consumer_cfg"), {}, told["pid"], b"tag", told["mode"], Atom("auto"))
    status = (Atom("up"), told["next"], told["checked"], told["credit"], told["count"])
    return (Atom("consumer"), (*cfg, told["priority"]), *status)


def of_state(changes: dict[int, Any]) -> Any:
    whole = list(state([]))
    for at, value in changes.items():
        whole[at] = value
    return tuple(whole)


@pytest.mark.parametrize(
    "changes",
    [
        {9: {KEY: consumer(checked={b"": 1})}},  # as numbers of deliveries: they are sorted
        {9: {KEY: consumer(checked={Atom("a"): 1})}},
        {9: {KEY: consumer(next=HUGE)}},
        {9: {KEY: consumer(credit=1.5)}},
        {9: {KEY: consumer(count=[])}},
        {9: {KEY: consumer(priority=b"")}},
        {9: {KEY: consumer(mode=())}},
        {9: {KEY: consumer(mode=(Atom("simple_prefetch"), b""))}},
        {9: {1: consumer(pid=[[]])}},
        {6: {pid(1): (Atom("enqueuer"), b"")}},
        {6: {pid(1): (Atom("enqueuer"), HUGE)}},
        {2: (1, [], [HUGE << 60])},
    ],
)
def test_a_state_of_senseless_values_is_no_state(tmp_path: Path, changes: dict[int, Any]) -> None:
    said = of_state(changes)
    if 2 not in changes:  # a number that long is an index in its lowest bits
        with pytest.raises((StateError, ErlangError)):
            read_state(term(said), 3)
    folder = f"{SYSTEM}/{UID}/snapshots/{snapshot_folder(2, 1)}/snapshot.dat"
    files = {**CONFIG, LOG: wal(rows(entries(20))).data, folder: snapshot(2, 1, said, 3)}
    told = Read(tmp_path, files)
    assert told.bodies["q"] == M20  # by the log, which goes back to its beginning


def test_the_same_state_with_usual_values_is_one() -> None:
    state = of_state({9: {KEY: consumer()}, 6: {pid(1): (Atom("enqueuer"), 7)}})
    assert read_state(term(state), 3).live == 1


@pytest.mark.parametrize("index", [-1, HUGE, b"", 1.5])
def test_a_snapshot_of_no_place_is_none(tmp_path: Path, index: Any) -> None:
    data = snapshot(index, 1, state([]))
    folder = f"{SYSTEM}/{UID}/snapshots/{snapshot_folder(2, 1)}/snapshot.dat"
    told = Read(tmp_path, {**CONFIG, LOG: wal(rows(entries(20))).data, folder: data})
    assert told.bodies["q"] == M20
    assert told.says("it does not say what it is of")


def test_a_number_that_cannot_be_written_as_text_is_none() -> None:
    with pytest.raises(ErlangError, match="a number of 5001 bytes, allowed 1024"):
        decode(b"\x83o\0\0\x13\x89\0" + bytes(5000) + b"\1")
    assert decode(b"\x83o\0\0\4\0\0" + b"\xff" * 1024) == (1 << 8192) - 1


@pytest.mark.parametrize(
    "header",
    [
        (1 << 62, "long", 1),  # as a key: a number is no text of so many bytes
        (b"k" * 256, "long", 1),
        (b"k", "longstr", 1 << 62),
        (b"k", "longstr", 7),
        (b"k", "longstr", [256]),
        (b"k", "signedint", 1e308),
        (b"k", "signedint", 1 << 31),
        (b"k", "double", b""),
        (b"k", "decimal", 1),
        (b"k", "table", 1),
        (b"k", "array", [1]),
        1,
    ],
)
def test_a_header_of_senseless_values_is_a_value_error(header: Any) -> None:
    with pytest.raises(ValueError):
        encode_typed_table([header])


def test_a_note_of_senseless_values_is_an_error_of_its_message() -> None:
    with pytest.raises(MessageError):
        annotate(b"\0\0", {Atom("deaths"): [(b"q", Atom("death"))]})


def test_a_queue_s_definition_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def queue(name: bytes, arguments: list[Any], *more: Any) -> Any:
        resource = (Atom("resource"), b"/", Atom("queue"), name)
        fixed = (resource, Atom("true"), Atom("false"), Atom("none"), arguments)
        return (Atom("amqqueue"), *fixed, Atom("rabbit_quorum_queue"), *more)

    good = queue(b"good", [(b"x-queue-type", Atom("longstr"), b"quorum")])
    bad = queue(b"bad", [(b"x-max-length", Atom("long"), HUGE)], {Atom("nodes"): [HUGE, Atom("n")]})
    write = [((Atom("rabbit_durable_queue"), b"k"), each, Atom("write")) for each in (good, bad)]
    items = b"".join(len(t).to_bytes(4) + b"bWLA" + t for t in map(term, write))
    (tmp_path / "LATEST.LOG").write_bytes(b"\1\2\3\4\6\7\x08\x09" + items)
    findings = Findings()
    found = read_definitions(Tree(tmp_path, findings), findings)
    assert found is not None
    assert {name for _, name in found} == {b"good", b"bad"}
    assert found[b"/", b"bad"].nodes == {"n"}
    assert found[b"/", b"bad"].arguments == {}
    (told,) = findings.kept
    assert told.severity == "damage"
    assert "the arguments of queue bad in /" in told.text


@pytest.mark.parametrize(
    "command",
    [
        (Atom("delete"), [()], {}),
        (Atom("delete"), [], {}),
        (Atom("put"), [()], (Atom("p_data"), 1), {}),
        (Atom("put"), [1 << 70], (Atom("p_data"), 1), {}),
        (Atom("put"), [Atom("a")], (Atom("p_data"), 1), [[]]),
        (Atom("tx"), (), []),
    ],
)
def test_a_change_of_metadata_of_senseless_values_changes_nothing(command: Any) -> None:
    tree = Khepri()
    before = (Atom("$usr"), {}, (Atom("put"), [Atom("b")], (Atom("p_data"), 7), {}), 0)
    tree.apply(1, before)
    tree.apply(2, (Atom("$usr"), {}, command, Atom("noreply")))
    assert (("b",), 7) in set(tree.nodes())


def test_a_tree_of_metadata_with_a_condition_on_no_path_is_loaded() -> None:
    root = (Atom("node"), {}, NOTHING, {})
    conditions = {1: {(Atom("a"),): (Atom("if_node_exists"), Atom("true"))}}
    Khepri().load((Atom("khepri_machine"), 0, (Atom("tree"), root, conditions)), 1)
