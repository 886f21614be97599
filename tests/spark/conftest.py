"""One session for all tests: it takes seconds to start, a small query a few tenths of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if "san.so" in os.environ.get("LD_PRELOAD", ""):
    # Java hangs with a sanitizer loaded into it: here Spark is not installed.
    sys.modules["pyspark"] = None  # type: ignore[assignment]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")
    from qindex.spark import register, start_session

    # Workers are new processes: they find this tree as the tests do.
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [root, os.environ.get("PYTHONPATH", "")])
    )
    spark = register(start_session("local[2]", short_lived=True))
    yield spark
    spark.stop()
