"""A queue's life: queues are created, deleted, and deleted when nobody has used them for long."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from qindex._core import ffi, lib
from qindex.arguments import boolean, parts_of, queue_name, several
from qindex.data import change_values, own_entries, read_value
from qindex.errors import (
    DiskError,
    DiskFull,
    QindexError,
    QueueInUse,
    QueueMissing,
    StoreClosed,
    StoreFailed,
    raise_error,
)
from qindex.handle import directory_of
from qindex.lines import say
from qindex.wakes import forget

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.store import Store

# In the store's own mapping. `_EXPIRES`: some queue had the setting once. If it says `_LISTED`,
# each queue that has the setting has an entry, too: `_ENTRY` and its folder, with its name. An
# entry too many is harmless, one too few is not: it comes before the setting, and goes after it.
_EXPIRES: Final = b"\0expires"
_LISTED: Final = b"2"
_ENTRY: Final = b"\0expires:"
_PAUSE_MIN, _PAUSE_MAX = 0.02, 60.0


def _pause(seconds: float) -> float:
    """Between two looks. A use may be so much later than the look that saw it last."""
    return min(max(seconds / 8, _PAUSE_MIN), _PAUSE_MAX)


@parts_of("Store")
class QueueLife:
    """For the class of a store."""

    _lock: threading.RLock
    _queues: dict[str, Queue]
    _by_tag: dict[int, Queue]
    _watch: Watch

    if TYPE_CHECKING:

        def _open_handle(self) -> Any: ...
        def queue(self, name: str, *, create: bool = True) -> Queue: ...

    def create_queues(self, names: Iterable[str]) -> int:
        """Create those of these queues that are not there; return how many were created.

        All of them are durable when this returns. After an error, those that were created before it
        are there, the others are not. Raises DiskFull, DiskError and ReadOnly.

        Cost: a few syncs together for a thousand queues, where queue() needs some for each.
        """
        names = several("names", names, "names", "store.queue()")
        encoded = []
        directories = []
        for name in names:
            encoded.append(queue_name(name).encode("utf-8", "surrogatepass"))
            directories.append(directory_of(name))
        sizes = ffi.new("uint32_t[]", [len(name) for name in encoded])
        made = lib.qi_queues_create(
            self._open_handle(), len(encoded), b"".join(encoded), sizes, b"".join(directories)
        )
        if made < 0:
            raise_error(made)
        return int(made)

    def delete_queue(self, name: str, *, if_empty: bool = False, if_unused: bool = False) -> None:
        """Delete a queue with all its messages, durably. Raises QueueMissing.

        - `if_empty`: raise QueueNotEmpty if it has messages, in whatever state.
        - `if_unused`: raise QueueInUse if one of its messages is unacked, or somebody waits in
          get() for one.

        A publish that comes between the look and the end raises StoreClosed, and one that came
        before it is seen. Handles of the queue raise StoreClosed from then on, and threads that
        wait for a message of it wake up with that.
        """
        conditions = lib.QI_IF_EMPTY if boolean("if_empty", if_empty) else 0
        conditions |= lib.QI_IF_UNUSED if boolean("if_unused", if_unused) else 0
        queue = self.queue(name, create=False)
        with self._lock:  # else queue() could hand out the handle that is about to be deleted
            if self._queues.get(name) is not queue:
                raise QueueMissing(f"there is no queue {name!r} in this store")
            code = lib.qi_queue_delete_if(queue._handle, conditions)
            if code < 0:
                raise_error(code)
            self._forget_queue(queue)

    def _forget_queue(self, queue: Queue) -> None:
        """It was deleted. The caller has the lock."""
        del self._queues[queue.name]
        del self._by_tag[lib.qi_queue_tag(queue._handle)]
        self._watch.know(queue.name, None)
        self._watch.forget(queue.name)
        forget(cast("Store", self), queue.name)


class Watch:
    """Deletes the queues of a store that have the setting `expires` and are not used.

    Its thread begins with the first of them. All uses are either in the core, which keeps a mark
    that is looked at some times in each span, or a Store.queue(), which says so here.
    """

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._seconds: dict[str, float] = {}
        self._used_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._is_simulated = False

    def begin(self, simulated: bool) -> None:
        """The store was just opened: look for queues that have the setting, in the background."""
        store = self._store()
        self._is_simulated = simulated
        if store is None or store.read_only or not store._expire or not store._stores_settings:
            return
        if read_value(store, ffi.NULL, _EXPIRES) is None:
            return
        if simulated:
            self._find_all(store)
        else:
            self._start(find_all=True)

    def note(self, name: str) -> None:
        """The queue is about to get the setting: from here on each open looks at it.

        Behind it in the commit log comes the setting, so one sync makes both durable.
        """
        store = self._store()
        if store is None or read_value(store, ffi.NULL, key := _entry(name)) is not None:
            return
        entry = {key: name.encode("utf-8", "surrogatepass")}
        if read_value(store, ffi.NULL, _EXPIRES) is None:
            entry[_EXPIRES] = _LISTED
        change_values(store, ffi.NULL, entry, confirm=False)

    def forget(self, name: str) -> None:
        """The queue is gone, or its setting, durably. The caller has the store's lock.

        An entry that cannot be removed now, the next open removes.
        """
        store = self._store()
        if store is None or store.read_only or not store._stores_settings:
            return
        with suppress(QindexError):
            if read_value(store, ffi.NULL, key := _entry(name)) is not None:
                change_values(store, ffi.NULL, {key: None}, confirm=False)

    def know(self, name: str, seconds: float | None) -> float | None:
        """The setting of this queue, as it is now. Return what it was."""
        store, before = self._store(), self._seconds.get(name)
        if seconds is None or store is None or store.read_only or not store._expire:
            self._seconds.pop(name, None)
            self._used_at.pop(name, None)
            return before
        if self._seconds.get(name) != seconds:
            self._used_at[name] = self._now(store)
            self._seconds[name] = seconds
            self._wake.set()
        alive = self._thread is not None and self._thread.is_alive()
        if not alive and not self._is_simulated:
            self._start(find_all=False)
        return before

    def __contains__(self, name: str) -> bool:
        return name in self._seconds

    def used(self, name: str) -> None:
        store = self._store()
        if store is not None and name in self._seconds:
            self._used_at[name] = self._now(store)

    def stop(self) -> None:
        self._wake.set()

    def look(self) -> float:
        """Delete what was not used; return the seconds until it has to look again."""
        store = self._store()
        if store is None or store._closed:
            return _PAUSE_MAX
        for name in list(self._seconds):
            with store._lock:  # a Store.queue() comes before this look, or behind it
                queue, seconds = store._queues.get(name), self._seconds.get(name)
                if queue is not None and seconds is not None and not store._closed:
                    self._look_at(store, queue, seconds)
        return _pause(min(list(self._seconds.values()), default=8 * _PAUSE_MAX))

    def _look_at(self, store: Store, queue: Queue, seconds: float) -> None:
        """The caller has the store's lock."""
        wanted = lib.qi_queue_wanted(queue._handle)
        if wanted < 0:
            try:
                raise_error(wanted)
            except (StoreClosed, StoreFailed):
                raise
            except QindexError:
                return  # it is damaged: whoever uses it is told, and the others are looked at
        now = self._now(store)
        if wanted:
            self._used_at[queue.name] = now
        elif now - self._used_at[queue.name] >= seconds + _pause(seconds):
            self._delete(store, queue, seconds)

    def _delete(self, store: Store, queue: Queue, seconds: float) -> None:
        conditions = lib.QI_IF_UNUSED | lib.QI_IF_UNWANTED
        code = lib.qi_queue_delete_if(queue._handle, conditions)
        try:
            if code < 0:
                raise_error(code)
        except (QueueInUse, DiskFull, DiskError):  # asked for since the look; or not now
            self._used_at[queue.name] = self._now(store)
            return
        store._forget_queue(queue)
        text = "store %s: queue %r was deleted: nobody used it for %g seconds"
        say("INFO", text, store.path, queue.name, seconds)

    def _now(self, store: Store) -> float:
        """Seconds, by a clock that is not set."""
        return int(lib.qi_store_clock_us(store._handle)) / 1e6

    def _start(self, find_all: bool) -> None:
        self._thread = threading.Thread(
            target=_watch, args=(self, find_all), name="qindex expires", daemon=True
        )
        self._thread.start()

    def _find_all(self, store: Store) -> None:
        """Look at the queues that may have the setting: those with an entry."""
        is_listed = read_value(store, ffi.NULL, _EXPIRES) == _LISTED
        unread = False
        for name in _listed(store) if is_listed else store.queues():
            try:
                with store._lock:  # else a change meanwhile would be known first, and be forgotten
                    self._find(store, name)
            except (StoreClosed, StoreFailed):
                raise
            except QindexError:
                unread = True  # it is damaged: whoever uses it is told
        if not is_listed and not unread:  # of an earlier version: now each of them has an entry
            change_values(store, ffi.NULL, {_EXPIRES: _LISTED}, confirm=False)

    def _find(self, store: Store, name: str) -> None:
        """The caller has the store's lock."""
        try:
            seconds = store._find_queue(name, create=False).settings.expires
        except QueueMissing:
            seconds = None
        if seconds is None:  # a crash came between the setting's end and that of the entry
            self.forget(name)
        else:
            self.note(name)
        self.know(name, seconds)


def _entry(name: str) -> bytes:
    """The key of a queue's entry. A name of 65,535 bytes would be too long for one."""
    return _ENTRY + directory_of(name)


def _listed(store: Store) -> list[str]:
    entries = own_entries(store, _ENTRY)
    return [name.decode("utf-8", "surrogatepass") for name in entries.values()]


def _watch(watch: Watch, find_all: bool) -> None:
    """The thread. It keeps no store alive, and ends with it."""
    try:
        while (store := watch._store()) is not None and not store._closed:
            if find_all:
                watch._find_all(store)
                find_all = False
            pause = watch.look()
            del store
            watch._wake.wait(pause)
            watch._wake.clear()
    except QindexError:
        return  # the store was closed, or has failed, which every call says
