"""A broker inside a program: in its own event loop, or in a thread beside it."""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import Self
from urllib.parse import quote

from qindex.broker.users import GUEST
from qindex.serve.server import Confirm, Server


class Broker:
    """A broker that runs as long as its block: `async with`, or `with` for a thread of its own.

    - `directory`: where it keeps its messages, as `qindex serve DIR` does; None: in memory.
    - `host`, `port`: where it listens; port 0 is one that the system chooses, see `port` then.
    - `confirm`: as `qindex serve --confirm`.

    Raises StoreLocked if another process serves the directory, NotAStore if it holds something
    else, OSError if nothing can listen there. Cost: ready within some milliseconds.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        confirm: Confirm = "durable",
    ) -> None:
        self.host = host
        self.port = port
        self._directory = directory
        self._confirm: Confirm = confirm
        self._server: Server | None = None
        self._thread: _Thread | None = None

    @property
    def url(self) -> str:
        """Where clients connect, as amqp://guest:guest@host:port/%2F."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp://{GUEST}:{GUEST}@{host}:{self.port}/{quote('/', safe='')}"

    @property
    def server(self) -> Server:
        """What runs; RuntimeError before the start and after the end. For its event loop only."""
        if self._server is None:
            raise RuntimeError("the broker does not run")
        return self._server

    async def start(self) -> None:
        """Begin to listen; `port` and `url` are right when this returns."""
        server = Server(self._directory, confirm=self._confirm)
        try:
            self.port = await server.listen(self.host, self.port)
        except BaseException:
            await server.stop()
            raise
        self._server = server

    async def stop(self) -> None:
        """Confirm what was published, tell all clients, close. Stopping twice is allowed."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._thread = _Thread(self)
        self._thread.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.end()


class _Thread:
    """A thread with an event loop in which a broker runs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="qindex-broker", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def end(self) -> None:
        loop, over = self._loop, self._over
        if loop is not None and over is not None:
            loop.call_soon_threadsafe(over.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        async with self._broker:
            self._ready.set()
            await self._over.wait()
