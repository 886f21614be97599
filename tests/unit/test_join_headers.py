"""Headers of a batch as tables: what C writes and reads is what field_table.py does."""

import random
import re
from datetime import UTC, datetime

import pytest

from qindex.arguments import encode_headers
from qindex.calls import decode_headers, join_headers
from qindex.field_table import AmqpError, decode_table, encode_table

UNUSUAL = [
    "\udc80",  # no UTF-8
    {"a": 1},
    datetime(2020, 1, 1, tzinfo=UTC),
    [1, [2]],
    "x" * 5000,
    bytearray(b"x"),
]


def any_value(dice, deep=False):
    kind = dice.randrange(8 if deep else 9)
    if kind == 8:
        return [any_value(dice, True) for _ in range(dice.randrange(5))]
    return [
        None,
        True,
        False,
        dice.randrange(-(2**40), 2**40),
        dice.random(),
        "é" * dice.randrange(20),
        bytes(dice.randrange(30)),
        dice.choice(UNUSUAL),
    ][kind]


def any_headers(dice):
    if dice.random() < 0.2:
        return dice.choice([None, {}])
    keys = [dice.choice(["k", "long" * 20, "é"]) + str(i) for i in range(dice.randrange(6))]
    return {key: any_value(dice) for key in keys}


def joined(headers):
    tables, sizes = join_headers(headers, encode_headers)
    return tables, list(memoryview(sizes).cast("I"))


def test_a_batch_of_headers_is_the_tables_that_field_table_writes():
    dice = random.Random(4)
    wrong = 0
    for _ in range(3000):
        headers = [any_headers(dice) for _ in range(3)]
        told = ""
        try:
            tables = [encode_table(one) if one else b"" for one in headers]
        except ValueError as error:
            told = str(error)
        if told:
            wrong += 1
            with pytest.raises(ValueError, match=re.escape(told)):
                joined(headers)
        else:
            assert joined(headers) == (b"".join(tables), [len(table) for table in tables])
    assert 100 < wrong < 2900


def test_what_c_reads_of_a_table_is_what_field_table_reads():
    dice = random.Random(5)
    read = 0
    for _ in range(3000):
        headers = any_headers(dice) or {"k": [1, None, "x"]}
        try:
            table = encode_table(headers)
        except ValueError:
            continue
        found = decode_headers(table)
        if found is not None:
            read += 1
            assert found == decode_table(table) == headers
    assert read > 1000


@pytest.mark.parametrize("size", range(1, 30))
def test_a_table_that_is_cut_is_refused_by_both(size):
    table = bytearray(encode_table({"k": [1, "xyz", None], "n": 2}))
    del table[4 + size :]
    table[:4] = (len(table) - 4).to_bytes(4, "big")
    try:
        whole = decode_table(table)
    except AmqpError:
        whole = None
    assert decode_headers(bytes(table)) == whole


def test_a_batch_keeps_lists_in_headers(store):
    queue = store.queue("q")
    headers = [{"keys": ["a", "b", b"\xff", 7]}, None, {"keys": []}]
    queue.publish_many([b"1", b"2", b"3"], headers=headers)
    assert [queue.get().headers for _ in range(3)] == [headers[0], {}, headers[2]]
