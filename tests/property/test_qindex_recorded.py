"""qindex as a foreign queue: real files and system calls, recorded, beside the simulated disk."""

import pytest

from qindex.testing import find
from qindex.testing.adapters.qindex import Qindex


@pytest.mark.slow
def test_qindex_keeps_its_promise_on_a_recorded_disk(capsys):
    assert find(Qindex, examples=25) is None
