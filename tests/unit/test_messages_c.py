"""The tests in C pass. They run beside the tests in Python: tests/rooms.py, tools/c_tests.py."""

import c_tests
import pytest


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in c_tests.LONG else ())
        for name in c_tests.C_TESTS
    ],
)
def test_a_room_passes_its_own_tests(name, rooms):
    outcome = rooms.outcome(name)
    assert outcome.code == 0, outcome.err
    assert outcome.out == f"{name}: all passed\n"
