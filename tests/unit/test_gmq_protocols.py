"""gmq's protocols without a server: bytes in, requests out, whatever pieces the bytes come in."""

from __future__ import annotations

import random
import re
import time

import pytest

from qindex.gmq import commands, jsonrpc
from qindex.gmq.commands import Command, Wrong
from qindex.gmq.patterns import Pattern, PatternError
from qindex.gmq.text import Snowflakes, go_json, to_bytes, whole_number


def test_requests_are_found_in_whatever_pieces_they_come():
    stream = (
        b' {"method":"Service.Push","params":[{"body":"a}\\"{\\\\"}],"id":1}\n'
        b'{"method":"Service.Pop","params":[["t"]],"id":"x"}'
        b'{"method":"Service.Ack","params":["1"],"id":2}'
    )
    expected = [
        jsonrpc.Request(1, "Service.Push", [{"body": 'a}"{\\'}]),
        jsonrpc.Request("x", "Service.Pop", [["t"]]),
        jsonrpc.Request(2, "Service.Ack", ["1"]),
    ]
    for size in (1, 2, 3, 7, len(stream)):
        reader = jsonrpc.Reader()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [request for piece in pieces for request in reader.feed(piece)] == expected


@pytest.mark.parametrize(
    ("raw", "number", "text", "is_last"),
    [
        (b'{"method":"x","params":[1],"id":5}', 5, "rpc: service/method request ill-formed: x", 0),
        (b'{"method":"S.P","id":5}', 5, "jsonrpc: request body missing params", 0),
        (b'{"method":"S.P","params":[1,2],"id":5}', 5, "jsonrpc: request body missing params", 0),
        (b"[1]", None, "a request is an object", 1),
        (b"hello", None, "invalid JSON", 1),
        (b'{"a": nothing}', None, "invalid JSON: line 1, column 7: a value is missing", 1),
        (b'{"a": "\xff"}', None, "invalid JSON: it is no UTF-8", 1),
        (b'{"a": 1%s}' % (b"0" * 5000), None, "invalid JSON: a whole number has too many", 1),
        (b"[" * 100_000 + b"]" * 100_000, None, "invalid JSON: it is nested too deeply", 1),
    ],
)
def test_a_wrong_request_is_answered_and_ends_the_stream_if_it_must(raw, number, text, is_last):
    reader = jsonrpc.Reader()
    (found,) = reader.feed(raw)
    assert (found.id, found.wrong[: len(text)], found.is_last) == (number, text, bool(is_last))
    follows = reader.feed(b'{"method":"Service.Ack","params":["1"],"id":2}')
    assert len(follows) == (0 if is_last else 1)


def test_a_request_that_never_ends_is_refused():
    reader = jsonrpc.Reader(bytes_max=1000)
    assert reader.feed(b'{"a":"' + b"x" * 900) == []
    (found,) = reader.feed(b"x" * 900)
    assert found.is_last
    assert found.wrong == "a request may have 1000 bytes"


def test_commands_are_found_in_whatever_pieces_they_come():
    stream = (
        b"pub t k 0\n\0\0\0\5a\nb\0c"
        b"mpub t 2\r\n\0\0\0\2{}\0\0\0\0"
        b"pop t \nping\nnonsense 1\nset t 1\npublish c\n\0\0\0\1x"
    )
    expected = [
        Command("pub", ["t", "k", "0"], [b"a\nb\0c"]),
        Command("mpub", ["t", "2"], [b"{}", b""]),
        Command("pop", ["t", ""], []),
        Command("ping", [], []),
        Wrong("E_INVALID_CMD", "unkown cmd: nonsense"),
        Command("set", ["t", "1"], []),
        Command("publish", ["c"], [b"x"]),
    ]
    for size in (1, 2, 3, 7, len(stream)):
        reader = commands.Reader()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [command for piece in pieces for command in reader.feed(piece)] == expected


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\n", b"E_INVALID_CMD - cmd is empty"),
        (b"pop t\n", b"E_INVALID_PARAMS - 2 parameters required."),
        (b"set t\n", b"E_INVALID_PARAMS - 2 to 5 parameters required"),
        (b"mpub t 1001\n", b"E_INVALID_PUSHNUM - number of push must be between 1 and 1000"),
        (b"mpub t -1\n", b"E_INVALID_PUSHNUM - number of push must be between 1 and 1000"),
        (b"pop \xff k\n", b"E_INVALID_PARAMS - names are UTF-8"),
        (b"x" * 20_000, b"E_INVALID_PARAMS - a line may have 16384 bytes"),
        (b"pub t k 0\n\xff\xff\xff\xff", b"E_INVALID_READ - a body may have 134217728 bytes, not"),
    ],
)
def test_what_cannot_be_gone_on_behind_ends_the_stream(line, text):
    reader = commands.Reader()
    (found,) = reader.feed(line)
    assert found.is_fatal
    assert found.data.startswith(text)
    assert reader.feed(b"ping\n") == []


def test_json_is_what_go_writes():
    assert go_json({"b": "<a&b>", "a": [1, None, "é\u2028"]}) == (
        b'{"b":"\\u003ca\\u0026b\\u003e","a":[1,null,"\xc3\xa9\\u2028"]}'
    )
    assert to_bytes("a\ud800b") == "a\ufffdb".encode()
    assert to_bytes("\ud83d\ude00") == "\U0001f600".encode()


@pytest.mark.parametrize("value", ["-1", "1.5", "x", -1, 1.5, True, [], "9" * 13, 101])
def test_a_number_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match="delay must be"):
        whole_number(value, "delay", 100)
    assert [whole_number(each, "delay", 100) for each in (None, "", "7", 7)] == [0, 0, 7, 7]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (True, "must be a whole number that is not negative, not true"),
        ({"a": None}, 'must be a whole number that is not negative, not {"a": null}'),
        ("x", "must be a whole number that is not negative, not 'x'"),
        (10**30, "must be at most 100, not 1000000"),
        ("9" * 30, "must be at most 100, not 999"),
    ],
)
def test_a_number_is_refused_in_the_words_of_json_or_with_its_range(value, why):
    with pytest.raises(ValueError, match="delay must be") as raised:
        whole_number(value, "delay", 100)
    assert why in str(raised.value)


def test_ids_grow_also_if_the_clock_goes_back():
    times = iter([1_700_000_000.0] * 5000 + [1_600_000_000.0] * 10 + [1_700_000_001.0])
    ids = Snowflakes(lambda: next(times))
    found = [ids.next() for _ in range(5011)]
    assert found == sorted(set(found))
    assert (found[0] >> 22) + 1_483_228_800_000 == 1_700_000_000_000
    assert (found[0] >> 12) & 1023 == 1


def test_patterns_say_what_pythons_say():
    dice = random.Random(3)
    compared = 0
    while compared < 3000:
        text = "".join(dice.choice(r"ab.*+?|()[]^$-\d") for _ in range(dice.randint(1, 7)))
        key = "".join(dice.choice("abd1-]") for _ in range(dice.randint(0, 6)))
        try:
            found = Pattern(text)
            theirs = re.compile(text.replace("[[", r"[\["), re.ASCII)
        except (PatternError, re.error, FutureWarning):
            continue
        assert found.is_in(key) == bool(theirs.search(key)), (text, key)
        compared += 1


def test_no_pattern_can_hang_the_server():
    began = time.process_time()
    assert not Pattern("(a+)+b").is_in("a" * 255)
    assert not Pattern("(a|a|aa)*" * 20 + "c").is_in("ab" * 127)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["a{2}", "(", ")", "[a", "*", "a**", "(?i)a", r"\1", "x" * 256])
def test_a_pattern_that_is_not_there_is_refused(text):
    with pytest.raises(PatternError):
        Pattern(text)
