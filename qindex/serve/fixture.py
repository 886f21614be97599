"""A broker for tests: the fixture `qindex_broker`.

In a conftest.py: ``pytest_plugins = ["qindex.serve.fixture"]``. A test that asks for the fixture
has a broker of its own, in memory, on a port that the system chose, with guest and guest.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qindex.serve.embedded import Broker


@pytest.fixture
def qindex_broker() -> Iterator[Broker]:
    """A broker in memory, in a thread beside the test: `url`, `host` and `port` say where."""
    with Broker() as broker:
        yield broker
