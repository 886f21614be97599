"""Where a stream begins that is asked for what was published at some time or later.

A message does not say when it was published. A journal says when it was created, and at each sync
how much of it was written by then. So of some messages it is known that they are older: those in
the segments of journals that were finished before, and those in front of such a sync. A stream
begins behind them; so it may begin too early, by a sync's interval or by a journal, never too late.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.native.frames import CLOSE, MARK, RECORDS, CannotReplay, Frames, records_of
from qindex.native.journals import NativeJournals
from qindex.spark.stream_store import QueueView, lane_of

log: Final = logging.getLogger("qindex.spark")
_CREATED: Final = Struct(">Q")
_CREATED_AT: Final = (40, 4096 + 40)  # in both copies of a journal's header
_MARK: Final = Struct(">QQ")  # offset, clock
_PUBLISHES: Final = (0, 1)


def published_since(since_us: int, views: Mapping[str, Mapping[str, QueueView]]) -> dict[str, Any]:
    """As startingOffsets: store -> queue -> ReqIds, one for each lane. All of it is behind them."""
    found: dict[str, Any] = {}
    for path, queues in views.items():
        with qindex.open(path, read_only=True, create=False) as store:
            tree = Tree(path, Findings())
            try:
                found[path] = {
                    name: _since(tree, store.queue_directory(name), view, since_us)
                    for name, view in queues.items()
                }
            finally:
                tree.close()
    return found


def _since(tree: Tree, folder: str, view: QueueView, since_us: int) -> list[int]:
    try:
        firsts = _first_news(NativeJournals(tree, folder), since_us)
    except (CannotReplay, OSError) as error:
        log.warning("%s: the stream begins at the beginning of this queue: %s", folder, error)
        return []
    if firsts is None:
        return []  # even what is in the segments may be as young
    return [firsts.get(lane, last + 1) for lane, last in view.lasts.items()]


def _first_news(journals: NativeJournals, since_us: int) -> dict[int, int] | None:
    """Lane -> the first ReqId that is not known to be older; None: nothing is known."""
    found: dict[int, int] = {}
    is_first = True
    for journal in journals.all:
        frames = journals.frames_of(journal)
        if is_first and not _created_us(frames) < since_us:
            return None
        if _created_us(frames) < since_us:
            found.clear()  # all journals before it were finished by then
        is_first = False
        older, publishes = 0, []
        for frame in journals.walk(journal, 8192):
            payload = frames.payload(frame)
            if frame.type in (MARK, CLOSE):
                offset, clock = _MARK.unpack_from(payload)
                older = max(older, offset if clock < since_us else 0)
            elif frame.type == RECORDS:
                publishes += [
                    (frame.offset, req_id)
                    for _, kind, req_id in records_of(payload)
                    if kind in _PUBLISHES
                ]
        for offset, req_id in publishes:
            if offset >= older:
                lane = lane_of(req_id)
                found[lane] = min(found.get(lane, req_id), req_id)
    return found


def _created_us(frames: Frames) -> int:
    """Of a journal whose header is gone: the greatest number, so that nothing is left out."""
    stamps = [_CREATED.unpack_from(frames.data, at)[0] for at in _CREATED_AT]
    return max(stamps) or (1 << 63)
