"""A connection that speaks version 1: requests in, answers out, in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qindex.gmq import jsonrpc
from qindex.serve.outlet import OnOut

if TYPE_CHECKING:
    from qindex.serve.gmq.door import Connection


class Version1:
    """Requests are carried out as they come, and answered as they are ready, as in Go."""

    def __init__(self, connection: Connection) -> None:
        self._running = 0
        self._waiting: deque[jsonrpc.Request] = deque()  # while the client does not read
        self._connection = connection
        self._reader = jsonrpc.Reader()
        self._pops: dict[object, Callable[[], None]] = {}

    @property
    def pending(self) -> int:
        return self._running + len(self._waiting)

    def receive(self, data: bytes) -> None:
        self._waiting.extend(self._reader.feed(data))
        self.go_on()

    def go_on(self) -> None:
        """Carry out what waits, as long as the client reads its answers."""
        while self._waiting and not self._connection.is_behind:
            request = self._waiting.popleft()
            if request.wrong:
                self._connection.send(jsonrpc.refusal(request, request.wrong))
            else:
                self._call(request)
            if request.is_last:
                self._connection.close()

    def _call(self, request: jsonrpc.Request) -> None:
        jobs, parameter = self._connection.door.jobs, request.params[0]
        self._running += 1

        def done(result: Any, error: str | None, on_out: OnOut | None = None) -> None:
            self._running -= 1
            self._pops.pop(done, None)
            send = self._connection.send
            if error is None:
                send(jsonrpc.answer(request, result), on_out)
            else:
                send(jsonrpc.refusal(request, error))
            self._connection.balance()

        if request.method == "Service.Push":
            jobs.push(parameter, done)
        elif request.method == "Service.Pop":
            waiting = [True]

            def popped(result: Any, error: str | None, on_out: OnOut | None) -> None:
                waiting.clear()
                done(result, error, on_out)

            stop = jobs.pop(parameter, popped, self._connection.takes)
            if waiting:
                self._pops[done] = stop
        elif request.method == "Service.Ack":
            jobs.ack(parameter, done)
        elif request.method.startswith("Service."):
            done(None, f"rpc: can't find method {request.method}")
        else:
            done(None, f"rpc: can't find service {request.method}")

    def stop(self) -> None:
        """The client is gone: nothing is popped for it any more."""
        self._waiting.clear()
        for stop in self._pops.values():
            stop()
        self._pops.clear()
