"""How long consumers have had what they have not acked.

Nobody writes down when a message was delivered. But delivery tags grow, and each sample notes which
tag comes next: the oldest delivery is older than the first note that is behind it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qindex.serve.channel import Channel
    from qindex.serve.server import Server

NOTES_MAX: Final = 64


class Ages:
    """How long each channel's oldest delivery has not been settled, at least."""

    def __init__(self) -> None:
        self._notes: dict[Channel, list[tuple[float, int]]] = {}  # when, and the next tag then

    def note(self, server: Server) -> None:
        """To be called every few seconds. O(channels)."""
        now = time.monotonic()
        before, self._notes = self._notes, {}
        for session in server.sessions:
            for channel in session.channels:
                oldest = _oldest_tag(channel)
                if oldest is None:
                    continue
                notes = [note for note in before.get(channel, []) if note[1] > oldest]
                notes.append((now, channel._next_tag))
                if len(notes) > NOTES_MAX:
                    del notes[1:-1:2]  # not the first: it says how old the oldest one is
                self._notes[channel] = notes

    def seconds(self, channel: Channel) -> float | None:
        """None: all is settled. 0: it was delivered since the last note."""
        oldest = _oldest_tag(channel)
        if oldest is None:
            return None
        notes = self._notes.get(channel, [])
        return next((time.monotonic() - at for at, tag in notes if tag > oldest), 0.0)


def _oldest_tag(channel: Channel) -> int | None:
    return channel._unacked.oldest()
