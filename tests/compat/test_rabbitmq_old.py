"""RabbitMQ 3.5 and 3.6: one message store, and queues in the node's own directory.

No such node can be had here. The records are those of 3.7 and later (rabbit_queue_index.erl of both
has the same), so the layout is made of a real node's files: its directories under other names.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qindex.brokers.rabbitmq.definitions import old_queue_folder, queue_folder
from qindex.brokers.rabbitmq.directory import open_node

from .conftest import DeadNode
from .test_rabbitmq_damage import account


def test_a_directory_is_called_after_the_queues_term() -> None:
    # erlang:md5(term_to_binary({resource, <<"/">>, queue, <<"test">>})), as OTP 25 has it.
    assert old_queue_folder(b"/", b"test") == "EQPHTZTF4T591MHYF1FQ77D2L"
    assert old_queue_folder(b"/", b"test") != queue_folder(b"/", b"test")


@pytest.fixture
def old(demo_copy: DeadNode) -> Path:
    """The demo node as 3.6 would have kept it, without the terms of an orderly stop."""
    (node,) = (path.parent for path in demo_copy.path.glob("*/msg_stores"))
    (node / "queues").mkdir()
    (node / "msg_store_persistent").mkdir()
    with open_node(node) as opened:
        parts = [
            (vhost.name, queue.name, part.priority, node / part.where)
            for vhost in opened.vhosts
            for queue in vhost.queues
            for part in queue.parts
        ]
    for vhost, name, priority, where in parts:
        raw = name.encode() + (b"" if priority is None else bytes([0, priority]))
        where.rename(node / "queues" / old_queue_folder(vhost.encode(), raw))
    for number, file in enumerate(sorted(node.glob("msg_stores/vhosts/*/*/*.rdq"))):
        file.rename(node / "msg_store_persistent" / f"{number}.rdq")
    shutil.rmtree(node / "msg_stores")
    for file in node.glob("queues/*/.queue_name"):
        file.unlink()
    return node


def test_an_old_node_has_the_same_messages(demo_node: DeadNode, old: Path) -> None:
    whole, _ = account(demo_node.path)
    found, node = account(old)
    assert found == whole
    assert [vhost.name for vhost in node.vhosts] == ["/", "vh-два"]
    assert not [finding for finding in node.findings if finding.severity == "damage"]
    with open_node(demo_node.path) as new:
        told = {(q.vhost.name, q.name, len(q.parts)) for q in new.queues}
        orphans = sum(vhost.orphan_bodies for vhost in new.vhosts)
    assert {(q.vhost.name, q.name, len(q.parts)) for q in node.queues} == told
    assert sum(vhost.orphan_bodies for vhost in node.vhosts) == orphans


def test_without_definitions_an_old_queue_has_the_name_of_its_directory(
    demo_node: DeadNode, old: Path
) -> None:
    whole, _ = account(demo_node.path)
    (old / "LATEST.LOG").unlink()
    found, node = account(old)
    assert {digest for _, digest in found} == {digest for _, digest in whole}
    assert node.counts.live == 339
    assert {vhost.name for vhost in node.vhosts} == {"/"}
    names = {finding.kind for finding in node.findings}
    assert names == {"name"}
    assert {queue.name for queue in node.queues} == {p.name for p in (old / "queues").iterdir()}


def test_a_virtual_hosts_own_directory_is_no_old_node(demo_node: DeadNode) -> None:
    (vhost,) = demo_node.path.glob("**/628WB79CIFDYO9LJI6DKMI09L")
    with pytest.raises(ValueError, match="no RabbitMQ node"):
        open_node(vhost)
