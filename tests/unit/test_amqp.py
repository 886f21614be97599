"""Field tables and property lists: what goes in comes out; bad bytes only raise ValueError."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex.brokers.amqp import (
    AmqpError,
    Properties,
    decode_properties,
    decode_table,
    encode_properties,
    encode_table,
)
from qindex.field_table import SHORTSTR_BYTES_MAX, TABLE_DEPTH_MAX

dates = st.datetimes(timezones=st.just(UTC)).map(lambda d: d.replace(microsecond=0))
decimals = st.builds(
    lambda number, scale: Decimal(f"{number}E-{scale}"),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | dates
    | decimals
)
values = st.recursive(scalars, lambda v: st.lists(v) | st.dictionaries(keys, v), max_leaves=20)
tables = st.dictionaries(keys, values)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are three things in a table."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.slow
@given(tables)
def test_a_table_comes_back_as_it_was_written(table: dict[str, Any]) -> None:
    raw = encode_table(table)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    assert same(decode_table(raw), table)


@given(st.binary())
def test_any_bytes_give_a_table_or_a_value_error(data: bytes) -> None:
    for raw in (data, len(data).to_bytes(4, "big") + data):
        try:
            decode_table(raw)
        except ValueError:
            continue


@given(tables, st.data())
@pytest.mark.slow
def test_a_flipped_or_cut_table_never_raises_anything_else(
    table: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(encode_table(table))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(raw), bytes(raw[: data.draw(st.integers(0, len(raw)))])):
        try:
            decode_table(damaged)
        except ValueError:
            continue


def test_the_tags_are_the_ones_that_rabbitmq_writes() -> None:
    table = {
        "a": None, "b": True, "c": -1, "d": 2**40, "e": 1.5, "f": "é", "g": b"\xff",
        "h": datetime(1970, 1, 2, tzinfo=UTC), "i": Decimal("-1.5"), "j": [1], "k": {"x": "y"},
    }  # fmt: skip
    assert encode_table(table)[4:] == (
        b"\x01aV"
        b"\x01bt\x01"
        b"\x01cI\xff\xff\xff\xff"
        b"\x01dl\x00\x00\x01\x00\x00\x00\x00\x00"
        b"\x01ed\x3f\xf8\x00\x00\x00\x00\x00\x00"
        b"\x01fS\x00\x00\x00\x02\xc3\xa9"
        b"\x01gx\x00\x00\x00\x01\xff"
        b"\x01hT\x00\x00\x00\x00\x00\x01\x51\x80"
        b"\x01iD\x01\xff\xff\xff\xf1"
        b"\x01jA\x00\x00\x00\x05I\x00\x00\x00\x01"
        b"\x01kF\x00\x00\x00\x08\x01xS\x00\x00\x00\x01y"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xff", -1),
        (b"u\xff\xff", 65535),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xff", -1),
        (b"f\x3f\xc0\x00\x00", 1.5),
        (b"t\x07", True),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
        (b"T\x00\x00\x01\x8c\xc2\x51\xf4\x00", 0x18CC251F400),  # milliseconds by mistake
    ],
)
def test_tags_that_are_only_read_have_the_nearest_python_value(field: bytes, value: Any) -> None:
    raw = b"\x01k" + field
    assert same(decode_table(len(raw).to_bytes(4, "big") + raw), {"k": value})


class Colour(IntEnum):
    RED = 1


class Text(str):
    pass


def test_subclasses_are_written_as_what_they_are() -> None:
    table = {"a": Colour.RED, "b": Text("x"), "c": bytearray(b"y")}
    assert same(decode_table(encode_table(table)), {"a": 1, "b": "x", "c": b"y"})


def test_a_time_with_another_zone_is_the_same_instant() -> None:
    noon = datetime(2024, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert decode_table(encode_table({"t": noon})) == {"t": noon}


@pytest.mark.parametrize(
    ("table", "error", "text"),
    [
        ([], TypeError, r"headers: a dict is needed, not list"),
        ({1: 2}, TypeError, r"headers\[1\]: a str is needed, not int"),
        ({"a": {"b": {2: 3}}}, TypeError, r"headers\['a'\]\['b'\]\[2\]: a str is needed"),
        (
            {"a": [0, {"b": object()}]},
            TypeError,
            r"headers\['a'\]\[1\]\['b'\]: .* object has no place",
        ),
        ({"a": (1,)}, TypeError, r"headers\['a'\]: .* tuple has no place"),
        ({"a": [2**63]}, ValueError, r"headers\['a'\]\[0\]: a whole number must fit into 64 bits"),
        ({"a": "\ud800"}, ValueError, r"headers\['a'\]: a text has half"),
        ({"a": datetime(2024, 1, 1)}, ValueError, r"headers\['a'\]: .* time zone"),  # noqa: DTZ001
        ({"a": datetime.max.replace(tzinfo=UTC)}, ValueError, r"whole seconds"),
        ({"a": Decimal("NaN")}, ValueError, r"headers\['a'\]: a Decimal must"),
        ({"a": Decimal("1E+10")}, ValueError, r"headers\['a'\]: a Decimal must"),
        ({"a": Decimal("1E-256")}, ValueError, r"headers\['a'\]: a Decimal must"),
        ({"x" * (SHORTSTR_BYTES_MAX + 1): 1}, ValueError, r"256 bytes, 255 are allowed"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named_by_its_place(
    table: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        encode_table(table)


def nested(depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(depth - 1):
        table = {"t": table}
    return table


def test_depth_has_the_same_limit_both_ways() -> None:
    deepest = nested(TABLE_DEPTH_MAX)
    raw = encode_table(deepest)
    assert decode_table(raw) == deepest
    with pytest.raises(ValueError, match="nested deeper"):
        encode_table(nested(TABLE_DEPTH_MAX + 1))
    inside = b"\x01tF" + raw
    with pytest.raises(AmqpError, match="nested deeper"):
        decode_table(len(inside).to_bytes(4, "big") + inside)


@pytest.mark.slow
def test_a_table_that_holds_itself_is_refused_in_time() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        encode_table({"l": loop})
    wide: list[Any] = []
    for _ in range(50):
        wide = [wide, wide]
    with pytest.raises(ValueError, match="more than 16777216 bytes"):
        encode_table({"l": wide})


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "cut"),
        (b"\x00\x00\x00\x05", "table of 9 bytes at 0, 4 are left"),
        (b"\x00\x00\x00\x00x", "1 byte follows"),
        (b"\x00\x00\x00\x03\x01k?", "unknown tag 63"),
        (b"\x00\x00\x00\x07\x01kF\x00\x00\x00\x01", "longer than the one it stands in"),
        (b"\x00\x00\x00\x0e\x01kF\x00\x00\x00\x03\x01kI\x00\x00\x00\x01", "crosses the end"),
        (b"\x00\x00\x00\x07\x01kS\x00\x00\x00\x01", "crosses the end"),
    ],
)
def test_a_broken_table_says_what_is_wrong(raw: bytes, text: str) -> None:
    with pytest.raises(AmqpError, match=text):
        decode_table(raw)


octets = st.integers(0, 255)
shortstrs = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@given(
    st.builds(
        Properties,
        content_type=optional(shortstrs),
        content_encoding=optional(shortstrs),
        headers=optional(tables),
        delivery_mode=optional(octets),
        priority=optional(octets),
        correlation_id=optional(shortstrs),
        reply_to=optional(shortstrs),
        expiration=optional(shortstrs),
        message_id=optional(shortstrs),
        timestamp=optional(dates),
        type=optional(shortstrs),
        user_id=optional(shortstrs),
        app_id=optional(shortstrs),
        cluster_id=optional(shortstrs),
    )
)
def test_properties_come_back_as_they_were_written(properties: Properties) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.binary())
def test_any_bytes_give_properties_or_a_value_error(data: bytes) -> None:
    for raw in (data, b"\xff\xfc" + data):
        try:
            decode_properties(raw)
        except ValueError:
            continue


def test_the_property_list_of_a_real_node_is_read() -> None:
    raw = bytes.fromhex(
        "bff80a746578742f706c61696e0000001f016b530000000176016e49000000070243434100000008"
        "5300000003636331"
        "020504636f727203726570053630303030056d69642d31000000006553f100027479056775657374"
        "03617070"
    )
    assert decode_properties(raw) == Properties(
        content_type="text/plain",
        headers={"k": "v", "n": 7, "CC": ["cc1"]},
        delivery_mode=2,
        priority=5,
        correlation_id="corr",
        reply_to="rep",
        expiration="60000",
        message_id="mid-1",
        timestamp=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        type="ty",
        user_id="guest",
        app_id="app",
    )
    assert encode_properties(decode_properties(raw)) == raw


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "flags are cut"),
        (b"\x00\x01\x00\x00", "beyond the fourteen"),
        (b"\x80\x00", "cut"),
        (b"\x80\x00\x05abc", "values end at"),
        (b"\x00\x00x", "values end at 2"),
        (b"\x00\x40\x00\x00", "values end at 10"),
    ],
)
def test_a_broken_property_list_says_what_is_wrong(raw: bytes, text: str) -> None:
    with pytest.raises(AmqpError, match=text):
        decode_properties(raw)


@pytest.mark.parametrize(
    ("properties", "error", "text"),
    [
        (Properties(priority=256), ValueError, "priority: "),
        (Properties(type=7), TypeError, "type: a str is needed"),  # type: ignore[arg-type]
        (Properties(app_id="x" * 256), ValueError, "app_id: a short string of 256 bytes"),
        (Properties(headers={"a": 2**70}), ValueError, r"headers: table\['a'\]: a whole number"),
        (Properties(timestamp=2**70), ValueError, "timestamp: "),
    ],
)
def test_a_property_that_cannot_be_written_is_named(
    properties: Properties, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        encode_properties(properties)
