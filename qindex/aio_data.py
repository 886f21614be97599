"""The durable mappings of qindex.aio: what may wait for the disk is awaited."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    ItemsView,
    Iterable,
    KeysView,
    Mapping,
    ValuesView,
)
from typing import Any, Final, Never, TypeVar, overload

import qindex.data

T = TypeVar("T")

_NOTHING: Final[Any] = object()
_AWAIT: Final = "a change may wait for the disk: await data.change({key: value})"


class Data:
    """A durable mapping of bytes to bytes that belongs to a store or queue of qindex.aio.

    Methods and errors are those of qindex.Data. All of it is in memory: `data[key]`, `in` and len()
    are not awaited, and take the store's lock for a moment. All methods are awaited. Each change is
    a turn of a thread, and so is a copy of everything. A key is not set or removed by an operator,
    because a change may wait for the disk: ``await data.change({key: value})``.
    """

    def __init__(self, data: qindex.data.Data, run: Callable[..., Awaitable[Any]]) -> None:
        self._data = data
        self._run = run

    def __repr__(self) -> str:
        return repr(self._data).replace("qindex.Data", "qindex.aio.Data")

    # --- reading -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __getitem__(self, key: bytes) -> bytes:
        """The value. Raises KeyError. O(1), no I/O."""
        return self._data[key]

    @overload
    async def get(self, key: bytes, default: None = None) -> bytes | None: ...
    @overload
    async def get(self, key: bytes, default: bytes | T) -> bytes | T: ...
    async def get(self, key: bytes, default: Any = None) -> Any:
        """The value, or `default` if there is no such key."""
        return self._data.get(key, default)

    async def copy(self) -> dict[bytes, bytes]:
        """All of it at one moment, in the order in which the keys came. See Data.copy()."""
        copied: dict[bytes, bytes] = await self._run(self._data.copy)
        return copied

    async def keys(self) -> KeysView[bytes]:
        """The keys as they are now."""
        return (await self.copy()).keys()

    async def values(self) -> ValuesView[bytes]:
        """The values as they are now, in the order in which the keys came."""
        return (await self.copy()).values()

    async def items(self) -> ItemsView[bytes, bytes]:
        """Keys and values as they are now."""
        return (await self.copy()).items()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The keys as they are now: what is changed meanwhile is not seen."""
        for key in await self.copy():
            yield key

    # --- changing ------------------------------------------------------------------------------

    def __setitem__(self, key: Never, value: Never) -> Never:
        raise TypeError(_AWAIT)

    def __delitem__(self, key: Never) -> Never:
        raise TypeError(_AWAIT.replace("value", "None"))

    async def change(self, changes: Mapping[bytes, bytes | None], *, confirm: bool = False) -> None:
        """Give keys values, and take keys away whose value is None: all of it, or nothing.

        With `confirm` it survives a power cut when this returns. See Data.change().
        """
        kept = dict(changes) if isinstance(changes, Mapping) else changes  # as it is now
        await self._run(self._data.change, kept, confirm=confirm)

    async def update(
        self, other: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """As dict.update(), with one change(): all of it, or nothing."""
        await self._run(self._data.update, dict(other))

    async def clear(self) -> None:
        """Take all keys away. See Data.clear()."""
        await self._run(self._data.clear)

    @overload
    async def pop(self, key: bytes) -> bytes: ...
    @overload
    async def pop(self, key: bytes, default: bytes | T) -> bytes | T: ...
    async def pop(self, key: bytes, default: Any = _NOTHING) -> Any:
        """Take a key away; return its value, or `default`. KeyError: there is no such key."""
        given = () if default is _NOTHING else (default,)
        return await self._run(self._data.pop, key, *given)

    async def popitem(self) -> tuple[bytes, bytes]:
        """Take the first key away; return it with its value. KeyError: there is none."""
        item: tuple[bytes, bytes] = await self._run(self._data.popitem)
        return item

    async def setdefault(self, key: bytes, default: bytes) -> bytes:
        """The value; if there is no such key, it gets `default`."""
        value: bytes = await self._run(self._data.setdefault, key, default)
        return value
