"""A rotation that a power cut took leaves frames of an epoch that is yet to come."""

import shutil

import pytest
from helpers import crash, queue_directory

import qindex


def journal(root, name):
    return queue_directory(root, "a") / name


@pytest.mark.parametrize("clean_ends", [0, 1, 2])
def test_messages_that_a_power_cut_took_do_not_come_back_with_a_later_one(tmp_path, clean_ends):
    """Found by the explorer: after a clean end in between, the frames were not expected any more.

    A power cut loses the start of the new journal and keeps a frame behind it. The epoch before
    goes on; when it is flushed the same file is begun again, with the same epoch. A MANIFEST of the
    same length ends where the lost frame begins, whose checksum is right.
    """
    data = tmp_path / "data"
    with qindex.open(data, sync="never") as store:
        store.queue("a").publish(b"kept")
    before = tmp_path / "before"
    shutil.copytree(data, before)

    store = qindex.open(data, sync="never")
    store.queue("a").flush()  # a rotation, to journal.alt
    store.queue("a").publish(b"lost")
    crash(store)
    alt = bytearray(journal(data, "journal.alt").read_bytes())
    lost = bytes(alt)
    alt[:8192] = bytes(8192)  # both copies of the header did not reach the medium
    shutil.rmtree(data)
    shutil.copytree(before, data)
    journal(data, "journal.alt").write_bytes(alt)

    for _ in range(clean_ends):
        qindex.open(data, sync="never").close()
    store = qindex.open(data, sync="never")
    assert [message.body for message in store.queue("a").browse()] == [b"kept"]
    store.queue("a").flush()
    crash(store)
    begun = journal(data, "journal.alt").read_bytes()
    assert begun[32:40] == lost[32:40]  # the same epoch again
    assert lost.count(b"lost") == 1
    assert b"lost" not in begun
    store = qindex.open(data, sync="never")
    assert [message.body for message in store.queue("a").browse()] == [b"kept"]
    crash(store)
