"""Values as a person reads them."""

import pytest

from qindex.look import text


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (4_561_120, "4.56 MB"), (999_600, "1 MB")],
)
def test_a_size_has_three_digits_and_a_decimal_unit(number, shown):
    assert text.size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.00042, "0.42 ms"),
        (0.0424, "42 ms"),
        (0.0996, "100 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_duration_has_the_unit_that_fits(seconds, shown):
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(412, "412"), (999.4, "999"), (999.6, "1 k"), (999_700, "1 M"), (38_100, "38.1 k")],
)
def test_a_rate_never_needs_an_exponent(number, shown):
    assert text.rate(number, 1) == shown


def test_a_rate_without_time_is_a_dash():
    assert text.rate(5, 0) == "-"


def test_a_count_agrees_with_its_noun():
    assert text.count(1, "queue") == "1 queue"
    assert text.count(1204, "queue") == "1,204 queues"
    assert text.count(2, "body", "bodies") == "2 bodies"


def test_a_foreign_name_cannot_steer_the_terminal():
    assert text.printable("заказы/queue ☃") == "заказы/queue ☃"
    assert text.printable("\x1b]0;owned\x07\n") == "\\x1b]0;owned\\x07\\n"
    assert text.printable("a\udcff\u202eb") == "a\\x{ff}\\u202eb"
    assert text.printable(text.printable("a\udcff\u202eb")) == "a\\x{ff}\\u202eb"


def test_wide_characters_count_twice_and_accents_not_at_all():
    assert text.width("queue") == 5
    assert text.width("注文") == 4
    assert text.width("e\u0301") == 1


@pytest.mark.parametrize("columns", range(3, 12))
def test_a_shortened_line_fits_and_keeps_both_ends(columns):
    for line in ("orders.from.everywhere", "注文注文注文注文注文"):
        short = text.shorten(line, columns)
        assert text.width(short) <= columns
        assert "…" in short
    assert text.shorten("short", 5) == "short"
