"""The tests in C pass. They run beside the tests in Python: tests/rooms.py, tools/c_tests.py."""

import c_tests
import pytest

# The engine is compiled with sanitizers for its tests, and some of the others search for long.
SLOW = {name for name, parts in c_tests.C_TESTS.items() if parts is c_tests.engine} | c_tests.LONG


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in c_tests.C_TESTS
    ],
)
def test_a_room_passes_its_own_tests(name, rooms):
    outcome = rooms.outcome(name)
    assert outcome.code == 0, outcome.err
    assert outcome.out == f"{name}: all passed\n"
