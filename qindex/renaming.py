"""A queue gets another name.

The core changes name and folder in one step that a power cut leaves done or not (c_ext/store/
rename.c). Other queues may have the name as that of the queue which gets their dead letters. If
there are any, an entry in the store's own mapping says first what is going on. If the step was done
and those queues did not follow, the next renaming, or the next open for writing, ends that.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from qindex._core import ffi, lib
from qindex.arguments import parts_of, queue_name
from qindex.configuring import SETTINGS
from qindex.data import change_values, read_value
from qindex.errors import (
    DiskError,
    DiskFull,
    OutcomeUnknown,
    QindexError,
    QueueExists,
    QueueMissing,
    ReadOnly,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    raise_error,
)
from qindex.handle import directory_of
from qindex.wakes import forget, note, noted

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.store import Store

# In the store's own mapping: the queue's identity, the old name's size, both names. What earlier
# versions left has no identity.
_RENAMING: Final = b"\0renamed"
_EARLIER: Final = b"\0renaming"
_IDENTITY_SIZE: Final = 16
_SIZE: Final = Struct(">I")
_NAME_MAX: Final = 65535


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


@parts_of("Store")
class Renaming:
    """For the class of a store."""

    def rename_queue(self, name: str, to: str) -> None:
        """Give a queue another name, durably.

        All that it has stays as it is: messages, ReqIds, settings, data, counters. Its handles and
        tokens stay good, leases go on, and who waits for a message waits on; queue.name and
        message.queue are the new name from then on. Queues whose dead letters move to it name it by
        its new name, too. The old name is free. Whoever asks for it gets QueueMissing, or with
        `create` a new queue: let publishers use the new name at the same time.

        After any crash the queue has one of the two names, with all of its messages. `deaths` of
        messages, and events that were told before, keep the old name.

        Raises QueueMissing; QueueExists if there is a queue `to`; FormatError in a store of format
        1; ReadOnly, DiskFull, DiskError and MemoryError; ValueError if the new name is empty, or
        that of the queue its own dead letters move to, which is gone. The queue has its old name
        then, and nothing was changed.

        OutcomeUnknown: it has one of the two names, as after a crash; or it has its new name, and
        queues whose dead letters move to it could not store that: the text says so. Those dead
        letters move to it nevertheless, and the next call, or open, stores it. An exception of a
        signal handler leaves one of the two names, and all else goes by that.

        Cost: about ten syncs.
        """
        check_new_name(to)
        store = cast("Store", self)
        store._open_handle()
        if store.read_only:
            raise ReadOnly("the store was opened with read_only=True")
        queue = store.queue(queue_name(name), create=False)
        with store._lock:
            _end(store)
            if store._queues.get(name) is not queue:
                raise QueueMissing(f"there is no queue {name!r} in this store")
            if to in store:
                raise QueueExists(f"there is a queue {to!r} already: nothing was renamed")
            check_not_its_own(queue, to)
            _Renaming(store, queue, to).run()


def check_new_name(to: str) -> None:
    """ValueError: no queue can get it."""
    size = len(_encoded(queue_name(to)))
    if not 0 < size <= _NAME_MAX:
        raise ValueError(f"the new name of a queue has 1 to {_NAME_MAX} bytes in UTF-8, not {size}")


def check_not_its_own(queue: Queue, to: str) -> None:
    """ValueError: with this name it would be the queue that its own dead letters move to."""
    if queue.settings._dead_to == to:
        raise ValueError(
            f"dead letters of {queue.name!r} move to {to!r}, and cannot move from a queue to"
            " itself: change its setting dead_letters first. Nothing was renamed"
        )


class _Renaming:
    """One that is under way. Its caller has the store's lock."""

    def __init__(self, store: Store, queue: Queue, to: str) -> None:
        self._store = store
        self._queue = queue
        self._name, self._to = queue.name, to
        self._senders = _senders(store, queue.name) if store._stores_settings else []
        self._moving = [sender for sender in self._senders if sender._has_dead_to]

    def run(self) -> None:
        """A signal handler may raise behind each call, and most likely behind that of the core,
        which takes some syncs. So what follows comes in any case. It comes twice, for a handler
        that raises while it runs: the second time is a look, if nothing was left undone.
        """
        try:
            try:
                self._rename()
            finally:
                self._follow()
        finally:
            self._follow()

    def _rename(self) -> None:
        self._announce()
        for sender in self._moving:
            sender._set_dead_to(None)  # else one that dies now would find nobody of the old name
        to = _encoded(self._to)
        code = lib.qi_queue_rename(self._queue._handle, to, len(to), directory_of(self._to))
        if code < 0:
            raise_error(code)

    def _announce(self) -> None:
        """What an open behind a power cut looks for is durable before the queue has that name."""
        store, settings = self._store, self._queue.settings
        if not store._stores_settings:
            return
        if settings.expires is not None:
            store._watch.note(self._to)
        if settings._dead_to is not None:
            note(store, self._to)
        entry = {}
        if self._senders:
            name, to = _encoded(self._name), _encoded(self._to)
            entry[_RENAMING] = _identity(self._queue) + _SIZE.pack(len(name)) + name + to
        if entry or settings.expires is not None or settings._dead_to is not None:
            change_values(store, ffi.NULL, entry, confirm=True)

    def _follow(self) -> None:
        """All else goes by the name that the queue has now. Nothing is done twice."""
        is_renamed = self._is_renamed()
        if is_renamed:
            self._take_name()
        with suppress(StoreClosed, StoreFailed):
            for sender in self._moving:
                sender._set_dead_to(self._to if is_renamed else self._name)
        if is_renamed:
            self._lead()
        else:
            with suppress(QindexError, MemoryError):  # the next open does it
                self._forget(self._to)
                _remove_entry(self._store, confirm=False)

    def _is_renamed(self) -> bool:
        """As the core says: is it the queue that has the new name?"""
        try:
            return bool(self._store._open_queue(self._to, create=False) == self._queue._handle)
        except (QindexError, MemoryError):  # there is none; or the store has failed
            return False

    def _take_name(self) -> None:
        store, queue = self._store, self._queue
        store._queues[self._to] = queue
        if queue.name != self._to:
            queue._plain._rename(self._to)
            queue.name = self._to
        if store._queues.get(self._name) is queue:
            del store._queues[self._name]
        if self._name in store._watch:
            store._watch.know(self._to, queue.settings.expires)
            store._watch.know(self._name, None)

    def _lead(self) -> None:
        try:
            _lead(self._store, self._senders, self._to)
        except (DiskFull, DiskError, MemoryError) as error:
            raise OutcomeUnknown(
                f"queue {self._name!r} is now {self._to!r}, but that the dead letters of other "
                f"queues move to it could not be stored ({error}): the next renaming, or open, "
                "stores it"
            ) from error
        if self._store._stores_settings:
            self._forget(self._name)

    def _forget(self, name: str) -> None:
        """No queue has it. What an open would look for goes."""
        self._store._watch.forget(name)
        forget(self._store, name)


def _senders(store: Store, name: str) -> list[Queue]:
    """The queues whose dead letters move to the one of this name."""
    found = []
    for sender in noted(store):
        try:
            queue = store._find_queue(sender, create=False)
            if queue.settings._dead_to == name:
                found.append(queue)
        except (QueueMissing, StoreCorrupt):
            continue  # it is gone; or it is damaged, and whoever uses it is told
    return found


def _lead(store: Store, senders: list[Queue], to: str) -> None:
    """Their settings say, durably, that their dead letters move to the queue of this name."""
    for sender in senders:
        settings = sender.settings
        if settings._dead_to != to:
            stored = {SETTINGS: replace(settings, dead_letters=to)._to_stored()}
            change_values(store, sender._handle, stored, confirm=False)
    if senders:
        _remove_entry(store, confirm=True)


def _remove_entry(store: Store, *, confirm: bool) -> None:
    if not store._stores_settings:
        return
    keys = (_RENAMING, _EARLIER)
    if gone := {key: None for key in keys if read_value(store, ffi.NULL, key) is not None}:
        change_values(store, ffi.NULL, gone, confirm=confirm)


def _identity(queue: Queue) -> bytes:
    """Not of its name: another queue of the same name has another one."""
    identity = ffi.new("uint8_t[16]")
    lib.qi_queue_identity(queue._handle, identity)
    return bytes(identity)


def end_renaming(store: Store) -> None:
    """The store was just opened: end what was left undone. Costs a look at one key.

    After an error the entry stays, for the next open.
    """
    if not store.read_only:
        with store._lock:
            _end(store)


def _end(store: Store) -> None:
    """If a queue was renamed and others did not follow, they do. The caller has the lock."""
    if not store._stores_settings:
        return
    identity, names = None, read_value(store, ffi.NULL, _EARLIER)
    if (entry := read_value(store, ffi.NULL, _RENAMING)) is not None:
        identity, names = entry[:_IDENTITY_SIZE], entry[_IDENTITY_SIZE:]
    if names is None:
        return
    behind = _SIZE.size + _SIZE.unpack_from(names)[0]
    name, to = (
        part.decode("utf-8", "surrogatepass")
        for part in (names[_SIZE.size : behind], names[behind:])
    )
    if to in store and identity in (None, _identity(store._find_queue(to, create=False))):
        senders = _senders(store, name)
        for sender in senders:
            if sender._has_dead_to:
                sender._set_dead_to(to)
        _lead(store, senders, to)
    _remove_entry(store, confirm=False)
