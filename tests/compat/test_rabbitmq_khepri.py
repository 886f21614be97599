"""A Khepri store that Khepri 0.17.7 wrote on Ra 2.17.3, compared with what it gives itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import unpack

from qindex.brokers.rabbitmq import erlang
from qindex.brokers.rabbitmq.khepri.metadata import find_server, read_metadata
from qindex.brokers.rabbitmq.khepri.tree import Khepri
from qindex.brokers.rabbitmq.ra.system import System, open_system
from qindex.brokers.rabbitmq.streams.names import coordinator_names, find_coordinator
from qindex.brokers.tree import Findings, Tree

from .conftest import SHARED


def coordination(name: str, where: str, folder: Path) -> tuple[System, Findings, dict[str, Any]]:
    archive = SHARED / "rabbitmq_quorum" / f"{name}.tar.xz"
    if not archive.exists():
        pytest.skip("what real brokers wrote, ../shared/fixtures, is not here")
    findings = Findings()
    tree = Tree(unpack(archive, folder), findings)
    truth = json.loads(archive.with_name(f"{name}.json").read_text(encoding="utf-8"))
    return open_system(tree, where, findings), findings, truth


def written(name: Any) -> str:
    if isinstance(name, bytes):
        return f'<<"{name.decode()}">>' if name else "<<>>"
    return str(name)


def test_the_tree_is_what_khepri_gives_but_for_what_transactions_did(tmp_path: Path) -> None:
    system, findings, truth = coordination("k17", "coordination/qnk@localhost", tmp_path)
    server = find_server(system)
    assert server is not None
    tree = Khepri()
    (snapshot,) = server.snapshots
    tree.load(erlang.decode(snapshot.state()), snapshot.machine_version)
    for entry in server.log.entries(snapshot.index + 1):
        tree.apply(entry.index, erlang.decode(entry.data))
    told = {
        re.split(" => ", line, maxsplit=1)[0]
        for line in truth["tree"]
        if not line.endswith("=> undefined")
    }
    found = {f"[{','.join(map(written, path))}]" for path, _ in tree.nodes()}
    prefix = '[rabbitmq,vhosts,<<"/">>,queues,'
    assert told - found == {f'{prefix}<<"intx">>]'}
    assert found - told == {f'{prefix}<<"qk1">>]'}
    assert findings.kept == []


def test_counts_are_those_of_the_tree(tmp_path: Path) -> None:
    """Of exchanges, users, permissions: none of them was changed by a transaction."""
    system, findings, truth = coordination("k17", "coordination/qnk@localhost", tmp_path)
    server = find_server(system)
    assert server is not None
    facts = read_metadata(server, findings).facts()
    paths = [
        line.partition(" => ")[0] for line in truth["tree"] if not line.endswith("=> undefined")
    ]
    exchanges = [p for p in paths if re.fullmatch(r"\[rabbitmq,vhosts,[^,]*,exchanges,[^,]*\]", p)]
    users = [p for p in paths if re.fullmatch(r"\[rabbitmq,users,<<.*?>>\]", p)]
    permissions = [p for p in paths if re.search(r",user_permissions,<<.*?>>\]", p)]
    assert facts["exchanges"] == len(exchanges) == len(set(exchanges)) > 1
    assert len(facts["users"]) == len(users)
    assert facts["permissions"] == len(permissions)
    assert facts["policies"] == []


def test_what_a_transaction_may_have_deleted_is_marked(tmp_path: Path) -> None:
    system, findings, _ = coordination("k17", "coordination/qnk@localhost", tmp_path)
    server = find_server(system)
    assert server is not None
    metadata = read_metadata(server, findings)
    assert set(metadata.vhosts) == {b"/", "vh/ü".encode()}
    assert metadata.perhaps_deleted == {(b"/", b"qk1")}
    assert (metadata.snapshot_index, metadata.last_index) == (4096, 5234)
    assert len(metadata.transactions) == 2
    assert len(metadata.bindings) == 8
    assert set(metadata.parameters) == {("runtime_params", b"p%d" % n) for n in range(10)}
    (finding,) = findings.kept
    assert "2 changes behind the snapshot" in finding.text


@pytest.mark.parametrize("name", ["s1", "s2", "m1"])
def test_the_coordinator_knows_the_streams_by_their_directories(name: str, tmp_path: Path) -> None:
    system, findings, truth = coordination(
        name, "quo@localhost/coordination/quo@localhost", tmp_path
    )
    server = find_coordinator(system)
    assert server is not None
    names = coordinator_names(server, findings)
    told = {
        (queue["vhost"], queue["name"]) for queue in truth["queues"] if queue["type"] == "stream"
    }
    assert {(vhost.decode(), queue.decode()) for vhost, queue in names.values()} == told
    folders = {path.name for path in tmp_path.glob("**/stream/*")}
    assert set(names) == folders
    assert findings.kept == []
