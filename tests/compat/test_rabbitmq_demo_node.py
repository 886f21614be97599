"""The dead node that ships with qindex, message by message, and the ways to name its directory."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq.definitions import RecoveryTerms
from qindex.brokers.rabbitmq.directory import Counts, Message, open_node
from qindex.brokers.tree import Tree, UnknownFormat

if TYPE_CHECKING:
    from .conftest import DeadNode

NODE = "qix@localhost"


def row(message: Message) -> list[object]:
    number = decode_properties(message.properties).message_id
    digest = hashlib.sha256(message.body).hexdigest()[:32]
    exchange, key = message.exchange, message.routing_keys[0]
    return [int(number or -1), int(message.redelivered), exchange, key, len(message.body), digest]


def test_every_message_is_the_one_that_the_node_gave_back(demo_node: DeadNode) -> None:
    told = {(q["vhost"], q["name"]): q for q in demo_node.truth["queues"]}
    with open_node(demo_node.path) as node:
        assert node.name == demo_node.truth["node"] == NODE
        assert [vhost.name for vhost in node.vhosts] == ["/", "vh-два"]
        assert node.vhosts[0].segment_entry_count == 2048
        for vhost in node.vhosts:
            for queue in vhost.queues:
                truth = told.pop((vhost.name, queue.name))
                assert [row(message) for message in queue.messages()] == truth["messages"]
                assert queue.counts.live == len(truth["messages"])
                assert queue.arguments == truth["arguments"]
        assert not node.findings
    assert not told


def test_a_priority_queue_is_one_queue_that_gives_the_highest_first(demo_node: DeadNode) -> None:
    with open_node(demo_node.path) as node:
        (queue,) = (q for vhost in node.vhosts for q in vhost.queues if q.name == "q.prio")
        assert [part.priority for part in queue.parts] == [5, 4, 3, 2, 1, 0]
        priorities = [message.priority for message in queue.messages()]
        assert priorities == sorted(priorities, key=lambda priority: -(priority or 0))
        assert len(priorities) == 36


def test_a_message_tells_where_it_is(demo_node: DeadNode) -> None:
    with open_node(demo_node.path) as node:
        counts = node.counts
        places = [m for vhost in node.vhosts for queue in vhost.queues for m in queue.messages()]
        assert sum(message.stored for message in places) == counts.stored == 141
        assert sum(len(message.body) for message in places) == counts.live_body_bytes
        for message in places:
            assert message.file.endswith(".rdq" if message.stored else ".idx")
            with (demo_node.path / NODE / message.file).open("rb") as file:
                file.seek(message.offset)
                assert file.read(1) == b"\x83"


def test_transient_messages_are_counted_and_left_out(demo_node: DeadNode) -> None:
    with open_node(demo_node.path) as node:
        transient = {q.name: q.counts.transient for v in node.vhosts for q in v.queues}
        assert {name: count for name, count in transient.items() if count} == {"q.lazy": 5}


def test_bodies_that_no_queue_wants_are_counted(demo_node: DeadNode) -> None:
    with open_node(demo_node.path) as node:
        slash = node.vhosts[0]
        assert (slash.orphan_bodies, len(slash.store), slash.store.copies) == (11, 124, 0)
        assert slash.orphan_bytes > 0


@pytest.mark.parametrize("below", ["", NODE, f"{NODE}/msg_stores", f"{NODE}/msg_stores/vhosts"])
def test_the_node_is_found_from_around_and_inside_it(demo_node: DeadNode, below: str) -> None:
    with open_node(demo_node.path / below) as node:
        assert (node.name, len(node.vhosts), node.has_definitions) == (NODE, 2, True)


def test_the_node_is_found_by_a_relative_path(
    demo_node: DeadNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo_node.path / NODE / "msg_stores" / "vhosts")
    for path in (".", "../..", os.pardir):
        with open_node(path) as node:
            assert node.counts.live == 339


def test_without_definitions_the_queues_name_themselves(demo_copy: DeadNode) -> None:
    (demo_copy.path / NODE / "LATEST.LOG").unlink()
    with open_node(demo_copy.path) as node:
        names = [queue.name for vhost in node.vhosts for queue in vhost.queues]
        assert (node.has_definitions, node.counts.live) == (False, 339)
        assert "q.prio" in names
        assert "q.empty" not in names  # it never had a directory
        assert all(q.durable is None for vhost in node.vhosts for q in vhost.queues)
        assert not node.findings


def test_without_recovery_terms_every_message_may_have_been_seen(demo_copy: DeadNode) -> None:
    for terms in demo_copy.path.glob("**/recovery.dets"):
        terms.unlink()
    with open_node(demo_copy.path) as node:
        assert node.counts.redelivered == node.counts.live == 339
        assert all(m.redelivered for v in node.vhosts for q in v.queues for m in q.messages())


def test_a_queue_whose_name_is_lost_is_named_by_the_definitions(demo_copy: DeadNode) -> None:
    for name in demo_copy.path.glob("**/.queue_name"):
        name.unlink()
    with open_node(demo_copy.path) as node:
        names = {queue.name for vhost in node.vhosts for queue in vhost.queues}
        assert {"q.prio", "заказы/queue ☃", "evil VHOST: x QUEUE: fake"} <= names
        assert node.counts.live == 339
        assert {finding.kind for finding in node.findings} == {"name"}


def test_a_queue_whose_name_is_lost_for_good_is_named_by_its_directory(demo_copy: DeadNode) -> None:
    (demo_copy.path / NODE / "LATEST.LOG").unlink()
    (folder,) = demo_copy.path.glob("**/8HKCHMCHLHJ9DDASIPO7XLLO6")
    (folder / ".queue_name").write_bytes(b"VHOST: /\nQUEUE: another\n")
    with open_node(demo_copy.path) as node:
        (queue,) = (q for q in node.vhosts[0].queues if q.name == folder.name)
        assert queue.counts.live == 65
        assert "not the one of this directory" in node.findings[0].text


def test_a_missing_segment_count_is_the_one_of_old_nodes(demo_copy: DeadNode) -> None:
    configs = list(demo_copy.path.glob("**/.config"))
    configs[0].unlink()
    configs[1].write_bytes(b"{segment_entry_count, 0}.")
    with open_node(demo_copy.path) as node:
        assert {vhost.segment_entry_count for vhost in node.vhosts} == {16384}
        assert [finding.kind for finding in node.findings] == ["config"]


def test_a_directory_that_is_no_node_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UnknownFormat, match=r"no RabbitMQ node|no such directory"):
            open_node(path)
    (tmp_path / "msg_store_persistent").mkdir()
    with pytest.raises(UnknownFormat, match="no RabbitMQ node"):
        open_node(tmp_path)


def test_several_nodes_are_not_mixed(demo_copy: DeadNode) -> None:
    shutil.copytree(demo_copy.path / NODE, demo_copy.path / "other@host")
    with pytest.raises(
        UnknownFormat,
        match="several at once \\(RabbitMQ node other@host, RabbitMQ node qix@localhost\\)",
    ):
        open_node(demo_copy.path)
    with open_node(demo_copy.path / "other@host") as node:
        assert node.name == "other@host"


def test_reading_changes_nothing(demo_copy: DeadNode) -> None:
    def state() -> list[tuple[str, int, int, bytes]]:
        files = sorted(path for path in demo_copy.path.rglob("*") if path.is_file())
        return [(str(f), f.stat().st_mtime_ns, f.stat().st_size, f.read_bytes()) for f in files]

    before = state()
    for path in demo_copy.path.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    with open_node(demo_copy.path) as node:
        assert sum(1 for v in node.vhosts for q in v.queues for _ in q.messages()) == 339
    assert state() == before
    for path in demo_copy.path.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def test_links_inside_a_node_are_not_followed(demo_copy: DeadNode, tmp_path: Path) -> None:
    folder = next(demo_copy.path.glob("**/8HKCHMCHLHJ9DDASIPO7XLLO6"))
    shutil.move(folder / "0.idx", tmp_path / "0.idx")
    (folder / "0.idx").symlink_to(tmp_path / "0.idx")
    moved = next(demo_copy.path.glob("**/44IN0P19FYOYPRODN9R48HDO2"))
    shutil.move(moved, tmp_path / "queue")
    moved.symlink_to(tmp_path / "queue")
    with open_node(demo_copy.path) as node:
        assert node.counts.live == 339 - 65 - 30
        assert {finding.kind for finding in node.findings} == {"count", "missing"}


def test_a_closed_node_holds_no_file(demo_node: DeadNode) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with open_node(demo_node.path) as node:
        messages = node.vhosts[0].queues[3].messages()
        next(messages)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_queue_that_may_not_be_listed_does_not_hide_the_others(
    demo_copy: DeadNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Tree.files

    def denied(tree: Tree, where: str = "") -> list[str]:
        if where.endswith("8HKCHMCHLHJ9DDASIPO7XLLO6"):
            raise PermissionError(13, "Permission denied")
        return files(tree, where)

    monkeypatch.setattr(Tree, "files", denied)
    with open_node(demo_copy.path) as node:
        assert node.counts.live == 339 - 65
        assert {finding.kind for finding in node.findings} == {"missing", "count"}


@pytest.mark.parametrize(("next_deliver", "all_redelivered"), [(1 << 80, True), (-5, False)])
def test_a_damaged_number_of_the_last_delivery_stops_nothing(
    demo_node: DeadNode, next_deliver: int, all_redelivered: bool
) -> None:
    with open_node(demo_node.path) as node:
        for vhost in node.vhosts:
            for queue in vhost.queues:
                for part in queue.parts:
                    part.terms, part.counts = RecoveryTerms(next_deliver, None), Counts()
                    vhost.count(part)
                    wanted = part.counts.live if all_redelivered else 0
                    assert part.counts.redelivered == wanted
        flags = {message.redelivered for queue in node.queues for message in queue.messages()}
        assert flags == {all_redelivered}
