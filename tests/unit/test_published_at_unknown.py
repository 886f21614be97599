"""No message gets another one's time: behind a session, a batch and damage the last one is over.

The frame that says a time is made one of a kind that nobody knows, and that readers skip. So what
stands behind it is as older code of format 2 writes it: with no time of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import queue_directory

import qindex
from qindex.native.frames import (
    EXTENDED,
    FRAME_BYTES,
    JOURNAL_START,
    Frame,
    Frames,
    crc,
    journal_header,
    segment_header,
)

UNKNOWN = b"\x80\xff"
MOMENT, MOMENTS = b"\x80\x01", b"\x80\x02"
SEGMENT_START = 64


def frames_of(data: bytes) -> tuple[Frames, list[Frame]]:
    journal = journal_header(data)
    header = journal or segment_header(data)
    assert header is not None
    frames, found = Frames(data, header), []
    at = JOURNAL_START if journal else SEGMENT_START
    while (frame := frames.at(at)) is not None:
        found.append(frame)
        at = frame.end
    return frames, found


def times_at(data: bytes) -> list[Frame]:
    """The frames that say when what follows was published."""
    frames, found = frames_of(data)
    kinds = (MOMENT, MOMENTS)
    return [each for each in found if each.type == EXTENDED and frames.payload(each)[:2] in kinds]


def hide_last_time(path: Path, count: int) -> None:
    """Make the last of `count` such frames one that nobody knows."""
    data = path.read_bytes()
    found = times_at(data)
    assert len(found) == count
    frames, frame = frames_of(data)[0], found[-1]
    payload = UNKNOWN + frames.payload(frame)[2:]
    head = data[frame.offset : frame.offset + 4]
    checksum = crc(frames._seed, frame.offset.to_bytes(8) + head + payload)
    sealed = head + checksum.to_bytes(4) + payload
    path.write_bytes(data[: frame.offset] + sealed + data[frame.end :])


def spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def known(path: Path) -> dict[bytes, bool]:
    with qindex.open(path) as store:
        found = store.queue("q").browse()
        return {message.body: message.published_at is not None for message in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return queue_directory(tmp_path, "q")


def publish(path: Path, body: bytes, *, flush: bool = False) -> None:
    with qindex.open(path, format=2) as store:
        queue = store.queue("q")
        if flush:
            queue.flush()
        queue.publish(body)


def test_a_session_ends_what_the_one_before_said(tmp_path: Path, folder: Path) -> None:
    for body in (b"a", b"b"):
        publish(tmp_path, body)
    hide_last_time(folder / "journal.jif", 2)
    assert known(tmp_path) == {b"a": True, b"b": False}


def test_a_batch_has_its_own_times_or_none(tmp_path: Path, folder: Path) -> None:
    publish(tmp_path, b"a")
    publish(tmp_path, b"b", flush=True)  # which leaves a batch with the time of a
    (journal,) = (file for file in folder.glob("journal.*") if journal_header(file.read_bytes()))
    hide_last_time(journal, 1)
    with qindex.open(tmp_path) as store:
        store.queue("q").flush()
    (segment,) = folder.glob("0.*")
    assert len(times_at(segment.read_bytes())) == 1
    assert known(tmp_path) == {b"a": True, b"b": False}


def test_damage_ends_what_a_batch_said(tmp_path: Path, folder: Path) -> None:
    """The end of the first batch and the times of the second one are damaged."""
    publish(tmp_path, b"a")
    publish(tmp_path, b"b", flush=True)
    with qindex.open(tmp_path) as store:
        store.queue("q").flush()
    (segment,) = folder.glob("0.*")
    data = segment.read_bytes()
    last = times_at(data)[1]
    _, found = frames_of(data)
    summary = found[found.index(last) - 1]
    for frame in (summary, last):
        spoil(segment, frame.offset + FRAME_BYTES)
    with qindex.open(tmp_path) as store:
        assert store.check()
    assert known(tmp_path) == {b"a": True, b"b": False}
