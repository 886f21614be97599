"""Writes the tables of the columns that qindex.spark reads, from its schema."""

from pathlib import Path
from typing import Final

from qindex.spark.schema import TABLES

FILE: Final = Path(__file__).with_name("spark") / "columns.inc"


def write_columns() -> None:
    """Write the file; leave one that did not change."""
    parts = []
    for table, columns in TABLES.items():
        parts += [table, "-" * len(table), "", ".. list-table::", "   :header-rows: 1"]
        parts += ["   :widths: 24 20 56", "", "   * - column", "     - type", "     - meaning"]
        for column in columns:
            parts += [f"   * - ``{column.name}``", f"     - {column.type}"]
            parts += [f"     - {column.meaning.replace('*', chr(92) + '*')}"]
        parts += [""]
    text = "\n".join(parts)
    if not FILE.exists() or FILE.read_text("utf-8") != text:
        FILE.write_text(text, "utf-8")
