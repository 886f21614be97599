"""What a damaged frame of a journal cost stands in the audit, as lost messages of its queue."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from helpers import crash, queue_directory

import qindex

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

from qindex.spark.examine import Limits, examine
from qindex.spark.plan import find


def test_the_messages_of_a_damaged_frame_are_lost_and_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = qindex.open(root, idle=3600)
    for count in (17, 3, 5):
        store.queue("17 orders").publish_many([b"x" * 50] * count)
        store.sync()
    crash(store)
    journal = queue_directory(root, "17 orders") / "journal.jif"
    raw, offset, seen = bytearray(journal.read_bytes()), 8192, 0
    while seen < 2:
        (word,) = struct.unpack_from(">I", raw, offset)
        seen += word >> 28 == 1
        last, offset = offset, offset + 8 + (word & 0xFFFFFFF)
    raw[last + 60] ^= 1
    journal.write_bytes(raw)
    (unit,) = find([str(tmp_path)])
    examination = examine(unit, Limits())
    [row] = examination.queues
    assert (row["found"], row["live"], row["gone"], row["lost"]) == (25, 22, 0, 3)
    [finding] = [each for each in examination.findings if each["severity"] == "damage"]
    assert (finding["kind"], finding["count"]) == ("lost", 3)
    assert finding["queue"] == "17 orders"
    assert "messages 17 to 19 (3) are lost" in finding["text"]
