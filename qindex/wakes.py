"""Queues that have something to do although nobody asks for them.

A message expires in a queue whose dead letters move to another one, and somebody waits for it
there. Such a queue has an entry in the store's own mapping, in which each close keeps the time of
the first of these messages (c_ext/store/next.c). An open reads the queues whose time has come, in
the background, and the others when theirs comes: not 100,000 queues for one message.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final

from qindex._core import ffi, lib
from qindex.data import change_values, own_entries, read_value
from qindex.errors import DiskError, DiskFull, QindexError, QueueMissing, StoreClosed, StoreFailed
from qindex.handle import directory_of

if TYPE_CHECKING:
    from qindex.store import Store

_ENTRY: Final = b"\0next:"  # and the queue's folder
_VALUE: Final = Struct(">QQ")  # session, microseconds since 1970 (0: nothing); then the name
_AT_ONCE: Final = 1
_PAUSE_MAX: Final = 60.0  # a clock that is set is noticed within this time


def _entry(name: str) -> bytes:
    return _ENTRY + directory_of(name)


def note(store: Store, name: str) -> None:
    """The queue's dead letters are about to move: from here on each open looks at its entry.

    Behind it in the commit log comes the setting, so one sync makes both durable.
    """
    if read_value(store, ffi.NULL, key := _entry(name)) is None:
        value = _VALUE.pack(0, _AT_ONCE) + name.encode("utf-8", "surrogatepass")
        change_values(store, ffi.NULL, {key: value}, confirm=False)


def forget(store: Store, name: str) -> None:
    """They move no more, or the queue is gone, durably. One entry too many is harmless."""
    if store.read_only or not store._stores_settings:
        return
    with suppress(QindexError):
        if read_value(store, ffi.NULL, key := _entry(name)) is not None:
            change_values(store, ffi.NULL, {key: None}, confirm=False)


def noted(store: Store) -> list[str]:
    """The queues whose dead letters move, or moved when a crash came."""
    values = own_entries(store, _ENTRY).values()
    return [value[_VALUE.size :].decode("utf-8", "surrogatepass") for value in values]


class Wakes:
    """Reads the queues of a store whose time has come. Its thread ends when none is left."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._times: dict[str, int] = {}
        self._stop = threading.Event()

    def begin(self, simulated: bool) -> None:
        """The store was just opened. Costs a look at its own keys, and no file is read."""
        store = self._store()
        if store is None or store.read_only or not store._expire or not store._stores_settings:
            return
        after = lib.qi_store_kept_after(store._handle)
        for value in own_entries(store, _ENTRY).values():
            session, us = _VALUE.unpack_from(value)
            if us or session <= after:
                name = value[_VALUE.size :].decode("utf-8", "surrogatepass")
                self._times[name] = us if session > after else _AT_ONCE
        if self._times and simulated:
            self.look()
        elif self._times:
            threading.Thread(target=_run, args=(self,), name="qindex wakes", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def look(self) -> float:
        """Read the queues whose time has come; return the seconds until the next one's."""
        store = self._store()
        if store is None:  # nobody has it any more: the thread ends
            self._times.clear()
            return 0
        now = store._now_us()
        for name in sorted(self._times, key=self._times.__getitem__):
            if self._times[name] > now:
                return min((self._times[name] - now) / 1e6, _PAUSE_MAX)
            if self._is_read(store, name):
                del self._times[name]
            else:
                self._times[name] = now + int(_PAUSE_MAX * 1e6)
        return 0

    def _is_read(self, store: Store, name: str) -> bool:
        """From here on the core does what the queue's settings say. False: try again later."""
        try:
            with store._lock:
                queue = store._ruled_queue(name, create=False)
                if queue.settings._dead_to is None:
                    forget(store, name)
        except (StoreClosed, StoreFailed):
            raise
        except QueueMissing:
            forget(store, name)
        except (DiskError, DiskFull, MemoryError):
            return False
        except QindexError:
            pass  # it is damaged: whoever uses it is told
        return True


def _run(wakes: Wakes) -> None:
    """The thread. It keeps no store alive, and ends with it."""
    with suppress(QindexError):  # the store was closed, or has failed, which every call says
        while wakes._times and not wakes._stop.wait(wakes.look()):
            pass
