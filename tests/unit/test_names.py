r"""The written form of names that are not valid Unicode."""

import doctest
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qindex import names
from qindex.names import as_bytes, unwritten, written

PIECES = ["\\", "\\\\", "x{e9}", "\\x{e9}", "u{d800}", "\\u{dce9}", "\udce9", "\ud800", "\udfff"]
PIECES += ["x", "{", "}", "a", "é", "\0", "\n", "\x1b[31m", "💥", "x{7f}", "\udc7f"]
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=6).map("".join)


@given(hostile)
@example("\ud800")
@example("\\u{d800}")
@example("\\\\u{d800}\ud800")
def test_a_written_name_is_valid_unicode_and_comes_back(name):
    text = written(name)
    assert text.encode().decode() == text
    assert unwritten(text) == name


@given(hostile, hostile)
@example("\ud800", "\\u{d800}")
@example("\udce9", "\\x{e9}")
def test_two_names_have_two_written_forms(one, other):
    assert (written(one) == written(other)) == (one == other)


@pytest.mark.parametrize("name", ["", "orders", "a/b", "café", "C:\\x", "\\u00e9", "\0", "💥"])
def test_names_without_an_escape_stay_as_they_are(name):
    assert written(name) == name
    assert json.loads(json.dumps(written(name))) == name


def test_bytes_that_are_not_utf8_are_written_as_bytes():
    assert written(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\\x{e9}"
    assert as_bytes(b"caf\xe9".decode("utf-8", "surrogateescape")) == b"caf\xe9"
    assert as_bytes("\ud800") == b"\\u{d800}"


def test_the_examples_are_true():
    assert doctest.testmod(names).failed == 0
