"""A queue gets another name.

The core changes name and folder in one step that a power cut leaves done or not (c_ext/store/
rename.c). Other queues may have the name as that of the queue which gets their dead letters. If
there are any, the store's own mapping says first what is going on, and the next open for writing
ends what a crash has cut off.
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
    QindexError,
    QueueExists,
    QueueMissing,
    ReadOnly,
    StoreCorrupt,
    raise_error,
)
from qindex.handle import directory_of
from qindex.wakes import forget, note, noted

if TYPE_CHECKING:
    from qindex.queue import Queue
    from qindex.store import Store

_RENAMING: Final = b"\0renaming"  # in the store's own mapping: the old name's size, both names
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
        1; ReadOnly, DiskFull and DiskError; ValueError if the new name is empty, or that of the
        queue its own dead letters move to, which is gone. Nothing was changed then.

        Cost: about ten syncs.
        """
        check_new_name(to)
        store = cast("Store", self)
        store._open_handle()
        if store.read_only:
            raise ReadOnly("the store was opened with read_only=True")
        queue = store.queue(queue_name(name), create=False)
        with store._lock:
            if store._queues.get(name) is not queue:
                raise QueueMissing(f"there is no queue {name!r} in this store")
            if to in store:
                raise QueueExists(f"there is a queue {to!r} already: nothing was renamed")
            check_not_its_own(queue, to)
            _rename(store, queue, to)


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


def _rename(store: Store, queue: Queue, to: str) -> None:
    """The caller has the store's lock."""
    name = queue.name
    senders: list[Queue] = []
    if store._stores_settings:
        senders = _senders(store, name)
        if queue.settings.expires is not None:
            store._watch.note(to)
        if queue.settings._dead_to is not None:
            note(store, to)
    if senders:
        both = _SIZE.pack(len(_encoded(name))) + _encoded(name) + _encoded(to)
        change_values(store, ffi.NULL, {_RENAMING: both}, confirm=True)
    moving = [sender for sender in senders if sender._has_dead_to]
    for sender in moving:
        sender._set_dead_to(None)  # else one that dies now would find nobody of the old name
    encoded = _encoded(to)
    code = lib.qi_queue_rename(queue._handle, encoded, len(encoded), directory_of(to))
    try:
        if code < 0:
            raise_error(code)
    except QindexError:
        with suppress(QindexError):  # the store has failed: the next open knows which name it is
            _lead(store, senders, moving, name)
        raise
    store._queues[to] = queue
    queue.name = to
    queue._plain._rename(to)
    del store._queues[name]
    store._watch.know(to, store._watch.know(name, None))
    _lead(store, senders, moving, to)
    if store._stores_settings:
        store._watch.forget(name)
        forget(store, name)


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


def _lead(store: Store, senders: list[Queue], moving: list[Queue], to: str) -> None:
    """Their dead letters move to the queue of this name."""
    for sender in senders:
        settings = replace(sender.settings, dead_letters=to)
        stored = {SETTINGS: settings._to_stored()}
        change_values(store, sender._handle, stored, confirm=False)
        if sender in moving:
            sender._set_dead_to(to)
    if senders:
        change_values(store, ffi.NULL, {_RENAMING: None}, confirm=True)


def end_renaming(store: Store) -> None:
    """The store was just opened: end what a crash has cut off. Costs a look at one key.

    After an error the entry stays, for the next open.
    """
    if store.read_only or not store._stores_settings:
        return
    both = read_value(store, ffi.NULL, _RENAMING)
    if both is None:
        return
    behind = _SIZE.size + _SIZE.unpack_from(both)[0]
    name, to = (
        part.decode("utf-8", "surrogatepass") for part in (both[_SIZE.size : behind], both[behind:])
    )
    with store._lock:
        if to in store:
            _lead(store, _senders(store, name), [], to)
            change_values(store, ffi.NULL, {_RENAMING: None}, confirm=True)
        elif name in store:
            _rename(store, store._find_queue(name, create=False), to)
        else:
            change_values(store, ffi.NULL, {_RENAMING: None}, confirm=True)
