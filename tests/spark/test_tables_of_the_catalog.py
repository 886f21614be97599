"""CREATE TABLE ... USING qindex cannot work; what it says does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import qindex

STATEMENTS = [
    "CREATE TABLE of_qindex USING qindex OPTIONS (path '{path}')",
    "CREATE TABLE of_qindex (queue string) USING qindex OPTIONS (path '{path}')",
    "CREATE TABLE of_qindex USING qindex AS SELECT 'x' AS body, 'q' AS queue",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_table_of_the_catalog_fails_and_the_view_that_is_advised_works(
    spark: Any, tmp_path: Path, statement: str
) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.queue("orders").publish(b"x")

    def use() -> None:
        spark.sql(statement.format(path=tmp_path / "store")).collect()
        spark.sql("SELECT queue FROM of_qindex").collect()

    try:
        with pytest.raises(Exception, match="What works: ") as raised:
            use()
    finally:
        spark.sql("DROP TABLE IF EXISTS of_qindex")
    (advice,) = re.findall(r"(CREATE TEMPORARY VIEW .*?\))", str(raised.value))
    spark.sql(advice.replace("/brokers/*", str(tmp_path / "store")))
    assert spark.sql("SELECT queue, live FROM v").collect() == [("orders", 1)]
    spark.catalog.dropTempView("v")
