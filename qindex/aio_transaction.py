"""A transaction of an event loop: it is committed in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import qindex.transaction

if TYPE_CHECKING:
    from qindex.store import Store


class Transaction(qindex.transaction.Transaction):
    """As qindex.Transaction, with `async with`. Its methods are not awaited: they only collect."""

    def __init__(self, store: Store, run: Callable[..., Awaitable[None]], *, confirm: bool) -> None:
        super().__init__(store, confirm=confirm)
        self._run = run

    def __enter__(self) -> Self:
        raise TypeError("use `async with`: the commit may wait")

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        if error is None:
            await self._run(self._commit)
