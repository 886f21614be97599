"""Whatever a reader gives back is stored, or said to be lost: no value ends a recovery."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import qindex
from qindex.brokers import recover
from qindex.brokers.amqp import Properties, encode_properties
from qindex.brokers.rabbitmq.message import Content
from qindex.brokers.rabbitmq.write import VhostWriter, encode_message
from qindex.brokers.reader import open_node, total
from qindex.brokers.recover import RecoverReport, recover_into
from qindex.brokers.storable import (
    EXPIRY_US_MAX,
    LEFT_OUT,
    NAME_BYTES_MAX,
    fit_headers,
    storable_name,
    unfit,
)
from qindex.cli.main import main
from qindex.field_table import decode_table, encode_table

from . import beanstalkd_files, gmq_files, nsq_files

BIT_63 = 1 << 63
ID = bytes(range(16))


def content(body: bytes, **properties: Any) -> Content:
    raw = encode_properties(Properties(delivery_mode=2, **properties))
    return Content("ex", ["key"], raw, body, ID, True)


def rabbitmq_v1(folder: Path, expiry_us: int = 0, journal_expiry_us: int = 0) -> None:
    """A queue q: one embedded body, one stored, one in the journal."""
    writer = VhostWriter(folder, b"/")
    queue = writer.queue(b"q")
    queue.publish(content(b"small", message_id="1", headers={"a": [1, {"b": None}]}), expiry_us)
    queue.publish(content(b"B" * 5000, priority=3), expiry_us)
    writer.close()
    term = encode_message(content(b"journal"), b"/")
    record = struct.pack(">Q16sQII", 2, ID, journal_expiry_us, 7, len(term)) + term
    (where,) = (writer.where / "queues").iterdir()
    (where / "journal.jif").write_bytes(record + struct.pack(">Q", 2 << 62 | 2))


def rabbitmq_v2(folder: Path) -> None:
    writer = VhostWriter(folder, b"/")
    writer.queue(b"q").publish(content(b"S" * 5000))
    writer.close()
    (where,) = (writer.where / "queues").iterdir()
    (where / "0.idx").unlink()
    (where / ".queue_name").write_bytes(b"VHOST: /\nQUEUE: q\nINDEX: v2\n")
    term = encode_message(content(b"in the queue"), b"/")
    head = struct.pack(">IBHB", len(term), 1, zlib.crc32(term) & 0xFFFF, 0)
    slots = [
        struct.pack(">BBBBQIIIQ", 1, 1, 0, 2, 64, len(term), 0, 12, 10**15 * 4),
        struct.pack(">BBBB16sIQ", 1, 1, 0, 1, ID, 5000, 0),
    ]
    heads = (struct.pack(">4sBQQ43x", magic, 2, 0, 4096) for magic in (b"RCQI", b"RCQS"))
    (where / "0.qi").write_bytes(next(heads) + b"".join(slots))
    (where / "0.qs").write_bytes(next(heads) + head + term)


def nsq(folder: Path) -> None:
    nsqd = struct.pack(">qH16s", 1_700_000_000 * 10**9, 3, b"0123456789abcdef")
    nsq_files.write_files(folder, [b"plain", nsqd + b"of nsqd"], 0)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "rabbitmq_v1": rabbitmq_v1,
    "rabbitmq_v2": rabbitmq_v2,
    "nsq": nsq,
    "gmq": lambda folder: gmq_files.write_files(folder, 4, 1, 2),
    "beanstalkd": lambda folder: beanstalkd_files.write_files(folder, 10),
}


def held(path: Path) -> dict[str, list[tuple[bytes, float | None]]]:
    with qindex.open(path, read_only=True, expire=False) as store:
        return {
            name: [(m.body, m.expires_at) for m in store.queue(name).browse()]
            for name in store.queues()
        }


@pytest.mark.parametrize("build", [(BIT_63, 0), (BIT_63 | 5 * 10**15, 0), (0, BIT_63)])
def test_an_expiry_that_is_no_date_is_left_out_and_said(
    build: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead, store = tmp_path / "dead", tmp_path / "store"
    dead.mkdir()
    rabbitmq_v1(dead, *build)
    assert main(["recover", str(dead), "--out", str(store), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    number = 2 if build[0] else 1
    assert not told["complete"]
    assert told["recovered"]["changed"] == number
    assert told["recovered"]["changes"] == {"an expiry that is no date was left out": number}
    assert told["recovered"]["unstorable"] == 0
    assert held(store) == {"q": [(b"small", None), (b"B" * 5000, None), (b"journal", None)]}
    shutil.rmtree(store)
    assert main(["recover", str(dead), "--out", str(store)]) == 1
    assert "an expiry that is no date was left out" in capsys.readouterr().out


@pytest.mark.parametrize("build", [(BIT_63, 0), (0, BIT_63), (0, 0)])
def test_check_and_recover_agree_about_values_that_no_store_takes(
    build: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    rabbitmq_v1(dead, *build)
    code = main(["recover", str(dead), "--out", str(tmp_path / "store"), "--json"])
    changes = json.loads(capsys.readouterr().out)["recovered"]["changes"]
    assert main(["check", str(dead), "--json"]) == code == int(any(build))
    told = json.loads(capsys.readouterr().out)
    assert (told["clean"], told["changes"]) == (not code, changes)
    assert main(["check", str(dead)]) == code
    out = capsys.readouterr().out
    assert ("a recovery has to change" in out) == bool(changes)
    assert all(each in out for each in changes)


def test_headers_that_no_store_takes_are_told_as_a_recovery_changes_them() -> None:
    headers = {"a": 1 << 64, "b": "fine"}
    kinds: list[str] = []
    fit_headers(headers, kinds)
    assert unfit(headers, None) == kinds != []
    assert unfit({"b": "fine"}, 5) == []
    assert unfit({"b": "fine"}, -1) == []


def test_an_ordinary_directory_needs_no_change(tmp_path: Path) -> None:
    for name, build in BUILDERS.items():
        (tmp_path / name).mkdir()
        build(tmp_path / name)
        with open_node(tmp_path / name) as node, qindex.open(tmp_path / f"{name}.s") as store:
            report = recover_into(node, store)
            assert report.messages == total(node.queues).live > 1, name
            assert not report.lost
            assert not node.findings


def recover_to_new_store(dead: Path, store: Path) -> RecoverReport:
    """The account adds up, and the store has what it says."""
    with open_node(dead) as node, qindex.open(store, sync="never", expire=False) as target:
        report = recover_into(node, target)
        for queue in report.queues:
            assert queue.adds_up
            assert len(target.queue(queue.into, create=False)) == queue.in_store
        assert target.check() == []
    return report


EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, BIT_63 - 1, BIT_63, (1 << 64) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_field_of_any_value_is_read_and_stored(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One or two fields of 1 to 8 bytes, anywhere in any file, become any value."""
    folder = tmp_path_factory.mktemp("mutated")
    dead, store = folder / "dead", folder / "store"
    dead.mkdir()
    try:
        BUILDERS[name](dead)
        files = sorted(file for file in dead.rglob("*") if file.is_file() and file.stat().st_size)
        for _ in range(data.draw(st.integers(1, 2))):
            file = data.draw(st.sampled_from(files))
            raw = bytearray(file.read_bytes())
            size = data.draw(st.sampled_from([1, 2, 4, 8]))
            at = data.draw(st.integers(0, max(0, min(len(raw), 6000) - size)))
            value = data.draw(st.sampled_from(EDGES) | st.integers(0, (1 << 64) - 1))
            order = data.draw(st.sampled_from(["big", "little"]))
            field = (value & ((1 << 8 * size) - 1)).to_bytes(size, order)
            raw[at : at + size] = field[: len(raw) - at]
            file.write_bytes(raw)
        recover_to_new_store(dead, store)
    except qindex.brokers.tree.UnknownFormat:
        pass  # it is refused before anything is written
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    expiry_us=st.integers(0, (1 << 64) - 1),
    exchange=st.binary(max_size=300),
    keys=st.lists(st.binary(max_size=300), max_size=4),
    properties=st.binary(max_size=60),
    body=st.binary(max_size=5000),
    queue=st.binary(min_size=1, max_size=300),
)
@example(BIT_63, b"", [], b"", b"", b"q")
@example(EXPIRY_US_MAX, b"\xff", [b"\xed\xa0\x80"], b"\xff\xff", b"x" * 4095, b"\xff" * 300)
@example(EXPIRY_US_MAX + 1, b"e" * 70_000, [b"k" * 70_000], b"", b"", b"\0")
def test_a_rabbitmq_record_of_any_value_is_stored(
    tmp_path_factory: pytest.TempPathFactory,
    expiry_us: int,
    exchange: bytes,
    keys: list[bytes],
    properties: bytes,
    body: bytes,
    queue: bytes,
) -> None:
    folder = tmp_path_factory.mktemp("record")
    try:
        writer = VhostWriter(folder / "dead", b"/")
        names = [key.decode("utf-8", "surrogateescape") for key in (exchange, *keys)]
        record = Content(names[0], names[1:], properties, body, ID, True)
        for each in (queue, queue + b"\0\x07"):
            writer.queue(each.replace(b"\n", b" ")).publish(record, expiry_us)
        writer.close()
        report = recover_to_new_store(folder / "dead", folder / "store")
        assert report.messages + report.expired + report.unreadable == report.live == 2
        assert report.unstorable == 0
    finally:
        shutil.rmtree(folder)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text("\ud800\udcffa")
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.complex_numbers()
)
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@pytest.mark.slow
@given(st.dictionaries(st.text(st.characters() | st.just("\ud800")), values))
@example({"k" * 300: 1, "k" * 299: 2})
@example({"n": 1 << 64, "d": Decimal(10) ** 40, "t": datetime(2020, 1, 1, 1, 1, 1, 5, UTC)})
def test_headers_of_any_kind_are_made_storable(headers: dict[str, Any]) -> None:
    kinds: list[str] = []
    fitted = fit_headers(headers, kinds)
    decode_table(encode_table(fitted))
    assert len(fitted) == len(headers)  # each is there, if only as text
    try:
        encode_table(headers)
    except (TypeError, ValueError):
        assert kinds
    else:
        assert (fitted, kinds) == (headers, []) or headers != headers  # NaN


def test_headers_that_are_too_long_lose_the_longest() -> None:
    kinds: list[str] = []
    headers = {"a": 1, "properties": b"p" * (15 << 20), "more": b"m" * (14 << 20), "z": "z"}
    fitted = fit_headers(headers, kinds)
    assert fitted == {"a": 1, "more": headers["more"], "z": "z", LEFT_OUT: ["properties"]}
    assert len(kinds) == 1
    assert "'properties' was left out" in kinds[0]


def test_a_name_that_is_too_long_is_cut_and_stays_unique(tmp_path: Path) -> None:
    names = ["n" * NAME_BYTES_MAX, "n" * 70_000, "n" * 70_001, "\udcff" * 60_000]
    short = [storable_name(name) for name in names]
    assert short[0] == names[0]
    assert len(set(short)) == 4
    with qindex.open(tmp_path / "s") as store:
        for name in short:
            store.queue(name).publish(b"x")
        assert store.queues() == sorted(short)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("a bug"), 2),
        (qindex.DiskFull("no space"), 2),
        (OSError(5, "Input/output error"), 2),
        (MemoryError(), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_recovery_that_is_stopped_in_the_middle_says_so(
    error: BaseException,
    code: int,
    demo_node: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish, calls = recover._publish, []

    def fails_later(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise error
        publish(*arguments)

    monkeypatch.setattr(recover, "_publish", fails_later)
    page = tmp_path / "page.html"
    arguments = ["recover", str(demo_node.path), "--out", str(tmp_path / "s"), "--keep-expired"]
    assert main([*arguments, "--json", "--report", str(page)]) == code
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert not told["complete"]
    stored = told["recovered"]["messages"]
    assert 0 < stored < 339
    assert stored == sum(len(messages) for messages in held(tmp_path / "s").values())
    assert type(error).__name__ in told["recovered"]["stopped"]
    assert "holds a part of the messages: delete it" in err
    assert "The recovery was stopped" in page.read_text()
    shutil.rmtree(tmp_path / "s")
    calls.clear()
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert "it was stopped" in out
    assert "synced" not in out
    assert "holds a part of the messages: delete it" in err


def strange_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records have what the surface refuses: times beyond any date."""
    with qindex.open(path) as store, monkeypatch.context() as patch:
        queue = store.queue("q")
        queue.publish_many([b"1", b"2"])
        patch.setattr("qindex.queue.to_expiry_us", lambda *_: BIT_63 | 7)
        queue.publish_many([b"3"], expires_at=1.0)
        patch.setattr("qindex.queue.to_due_us", lambda *_: 1 << 55)
        queue.publish_many([b"4"], due=1.0)
        patch.undo()
        queue.publish_many([b"5"], headers=[{"x": 1}])


def test_a_salvage_stores_what_no_surface_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strange_store(tmp_path / "s", monkeypatch)
    for lose in (False, True):
        if lose:
            (tmp_path / "s" / "store.meta").unlink()
        assert main(["salvage", str(tmp_path / "s"), "--out", str(tmp_path / f"{lose}"), "--json"])
        out, err = capsys.readouterr()
        (queue,) = json.loads(out)["queues"]
        assert queue["messages"] == 5
        assert queue["changes"]["an expiry that is no date was left out"] >= 1
        assert "an expiry that is no date was left out" in err
        bodies = [body for body, _ in held(tmp_path / f"{lose}")["q"]]
        assert sorted(bodies) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_salvage_that_is_stopped_in_the_middle_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with qindex.open(tmp_path / "s") as store:
        for name in ("a", "b"):
            store.queue(name).publish_many([b"x"] * 3)

    def fails(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("qindex.cli.salvage.command.put", fails)
    assert main(["salvage", str(tmp_path / "s"), "--out", str(tmp_path / "o"), "--json"]) == 2
    out, err = capsys.readouterr()
    assert "RuntimeError: a bug" in json.loads(out)["stopped"]
    assert "holds a part of the messages: delete it" in err


def test_a_queue_whose_name_no_store_takes_is_recovered(tmp_path: Path) -> None:
    writer = VhostWriter(tmp_path / "dead", b"/")
    for name in (b"\xff" * 20_000, b"\xff" * 20_001):
        writer.queue(name).publish(content(name[-1:]))
    writer.close()
    report = recover_to_new_store(tmp_path / "dead", tmp_path / "s")
    assert report.messages == 2
    assert len(held(tmp_path / "s")) == 2
