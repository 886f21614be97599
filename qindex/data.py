"""Small durable mappings of bytes: `store.data`, and `queue.data` of each queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from qindex._core import ffi, lib
from qindex.arguments import boolean, parts_of
from qindex.errors import raise_error

if TYPE_CHECKING:
    from qindex.store import Store

KEY_MAX: Final = 65535
_REMOVED: Final = 0xFFFFFFFF
_KEY: Final = Struct(">H")
_VALUE: Final = Struct(">I")
_READ_AT_ONCE: Final = 1024  # a longer value is read with a second call
_PIECE: Final = 256 << 10  # clear() removes so many bytes of keys with one change


def _as_key(key: bytes) -> bytes:
    if not isinstance(key, bytes):
        raise TypeError(
            f"a key is bytes, not {type(key).__name__}; encode text, for example key.encode()"
        )
    if not 0 < len(key) <= KEY_MAX:
        raise ValueError(f"a key has 1 to {KEY_MAX} bytes, not {len(key)}")
    if key[0] == 0:
        raise ValueError("keys that begin with a zero byte are the store's own: take another one")
    return key


def _as_entry(key: bytes, value: bytes | None) -> bytes:
    """As it stands in the commit log (FORMAT.rst, "Commit logs")."""
    if value is None:
        return _KEY.pack(len(key)) + key + _VALUE.pack(_REMOVED)
    if not isinstance(value, bytes):
        raise TypeError(
            f"a value is bytes, not {type(value).__name__}; encode text, or pack what it is"
        )
    return _KEY.pack(len(key)) + key + _VALUE.pack(len(value)) + value


def as_entries(changes: Mapping[bytes, bytes | None]) -> bytes:
    """As they stand in the commit log. TypeError and ValueError: a key or value is none."""
    return b"".join(_as_entry(_as_key(key), value) for key, value in changes.items())


def _read_entries(entries: bytes) -> dict[bytes, bytes]:
    found = {}
    at = 0
    while at < len(entries):
        key_end = at + 2 + _KEY.unpack_from(entries, at)[0]
        value_end = key_end + 4 + _VALUE.unpack_from(entries, key_end)[0]
        found[entries[at + 2 : key_end]] = entries[key_end + 4 : value_end]
        at = value_end
    return found


def read_value(store: Store, queue: Any, key: bytes) -> bytes | None:
    """Also one of the store's own keys. None: there is no such key."""
    handle = store._open_handle()
    room = _READ_AT_ONCE
    while True:
        value = ffi.new("char[]", room)
        size = lib.qi_data_get(handle, queue, key, len(key), value, room)
        if size == lib.QI_E_UNKNOWN:
            return None
        if size < 0:
            raise_error(size)
        if size <= room:
            return bytes(ffi.unpack(value, size))
        room = size


def _all_of(read: Callable[[Any, int], int]) -> dict[bytes, bytes]:
    """What `read` copies into a buffer with so much room; it returns the room that it needs."""
    room = 0
    while True:
        entries = ffi.new("char[]", room)
        size = read(entries, room)
        if size < 0:
            raise_error(size)
        if size <= room:
            return _read_entries(ffi.buffer(entries, size)[:])
        room = size


def own_entries(store: Store, prefix: bytes) -> dict[bytes, bytes]:
    """Of the store's mapping, those of the store's own keys that begin so. O(all its keys)."""
    handle = store._open_handle()
    return _all_of(lambda *to: int(lib.qi_data_own(handle, prefix, len(prefix), *to)))


def change_values(
    store: Store, queue: Any, changes: Mapping[bytes, bytes | None], *, confirm: bool
) -> None:
    """As Data.change(), also of the store's own keys."""
    entries = b"".join(_as_entry(key, value) for key, value in changes.items())
    code = lib.qi_data_change(store._open_handle(), queue, entries, len(entries), confirm)
    if code < 0:
        raise_error(code)


class Data(MutableMapping[bytes, bytes]):
    """A durable mapping of bytes to bytes that belongs to a store or to one of its queues.

    It is for what belongs to the messages and is none: an application's own settings, a broker's
    exchanges and bindings, how far a consumer is. Keys keep the order in which they came. All of it
    is in memory, so reading costs no I/O.

    A change survives kill -9 as soon as the call returns, and a power cut some milliseconds later,
    when it was synced, as a publish does: see change() and Store.sync(). A queue that is deleted
    takes its mapping along.

    Every method raises FormatError in a store of format 1, which has no place for it. Any number of
    threads may use it; what takes several calls, as setdefault() and pop(), is not atomic.
    """

    def __init__(self, store: Store, queue: Any) -> None:
        self._store = store
        self._queue = queue  # its handle; NULL: the mapping is the store's

    def __repr__(self) -> str:
        return f"<qindex.Data with {len(self)} keys>"

    def __len__(self) -> int:
        count = lib.qi_data_count(self._store._open_handle(), self._queue)
        if count < 0:
            raise_error(count)
        return int(count)

    def __iter__(self) -> Iterator[bytes]:
        """The keys as they are now: what is changed meanwhile is not seen."""
        return iter(self.copy())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.get(key) is not None

    def __getitem__(self, key: bytes) -> bytes:
        """The value. Raises KeyError. O(1), no I/O."""
        value = read_value(self._store, self._queue, _as_key(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.change({key: value})

    def __delitem__(self, key: bytes) -> None:
        if key not in self:
            raise KeyError(key)
        self.change({key: None})

    def copy(self) -> dict[bytes, bytes]:
        """All of it at one moment, in the order in which the keys came. O(n), one call."""
        handle = self._store._open_handle()
        return _all_of(lambda *to: int(lib.qi_data_all(handle, self._queue, *to)))

    def change(self, changes: Mapping[bytes, bytes | None], *, confirm: bool = False) -> None:
        """Give keys values, and take keys away whose value is None: all of it, or nothing.

        No crash leaves a part of it. With `confirm`, or if the store has sync="always", it survives
        a power cut when this returns; threads that wait at the same time share one sync. Otherwise
        it does some milliseconds later; store.sync() waits for that.

        Raises ValueError if the keys and values have more than 512 KiB together, or a key does not
        have 1 to 65,535 bytes, or begins with a zero byte (those are the store's own); DiskFull,
        ReadOnly, FormatError and OutcomeUnknown. Nothing was changed then, but for OutcomeUnknown.

        Cost: one frame in the commit log.
        """
        for key in changes:
            _as_key(key)
        confirm = boolean("confirm", confirm) or self._store.sync_policy == "always"
        change_values(self._store, self._queue, changes, confirm=confirm)

    def update(  # type: ignore[override]
        self,
        other: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """As dict.update(), with one change(): all of it, or nothing."""
        self.change(dict(other))

    def clear(self) -> None:
        """Take all keys away: with one change() if they have less than 256 KiB, else with some."""
        some: dict[bytes, bytes | None] = {}
        size = 0
        for key in self:
            some[key] = None
            size += len(key) + 6
            if size >= _PIECE:
                self.change(some)
                some, size = {}, 0
        self.change(some)


@parts_of("Store")
class Mapped:
    """For the class of a store."""

    if TYPE_CHECKING:

        def _open_handle(self) -> Any: ...

    @property
    def data(self) -> Data:
        """A small durable mapping of bytes to bytes that belongs to the store."""
        return Data(cast("Store", self), ffi.NULL)

    def accept_losses(self) -> bool:
        """Say that it is known what was lost: opens report it no more.

        Messages were lost with damaged journals of queues; settings and data with the commit log or
        the catalog of a store of format 2. What was lost stays lost; look at what the queues do by
        themselves first. True: there was such a loss. A queue that is refused as damaged stays
        so. Raises DiskFull, DiskError, ReadOnly, and StoreCorrupt if the commit log is damaged and
        a queue that may need it cannot be read: nothing is accepted then.

        Damage in segments and message files is reported for as long as it is there.

        Cost: two small syncs; it also reads all queues, unless only data and settings were lost, in
        an earlier session. Queues whose journals show the loss are flushed.
        """
        code = lib.qi_store_accept_losses(self._open_handle())
        if code < 0:
            raise_error(code)
        return bool(code)
