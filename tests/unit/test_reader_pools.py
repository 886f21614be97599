"""What a queue keeps of the buffers of its gets."""

from __future__ import annotations

from pathlib import Path

import qindex
from qindex.buffers import BATCH_KEPT_MAX, READER_KEPT_MAX

BIG = 40 << 20


def test_a_big_message_leaves_no_big_buffer(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "s", sync="never") as store:
        queue = store.queue("q")
        for body in (bytes(BIG), b"small", bytes(BIG), b"small", bytes(BIG), bytes(BIG)):
            queue.publish(body, headers={"a": 1})
        messages = [queue._get(), queue._get(), *queue._get_many(1), *queue._get_many(1)]
        messages += [queue.get_newest(), store.get(["q"], create=True)]
        assert [len(message.body) for message in messages if message] == [BIG, 5, BIG, 5, BIG, BIG]
        queue.publish_many([b"small", b"small"], headers={"a": 1})
        messages += [queue._get(), *queue._get_many(1)]
        assert all(reader.struct.room <= READER_KEPT_MAX for reader in queue._readers)
        assert all(reader.room <= BATCH_KEPT_MAX for reader in queue._batch_readers)
        assert queue._readers
        assert queue._batch_readers
