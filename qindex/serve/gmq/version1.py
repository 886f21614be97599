"""A connection that speaks version 1: requests in, answers out, in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qindex.gmq import jsonrpc
from qindex.serve.outlet import OnOut

if TYPE_CHECKING:
    from qindex.serve.gmq.door import Connection


class Version1:
    """Requests are carried out as they come, and answered as they are ready, as in Go."""

    def __init__(self, connection: Connection) -> None:
        self.pending = 0
        self._connection = connection
        self._reader = jsonrpc.Reader()
        self._pops: dict[object, Callable[[], None]] = {}

    def receive(self, data: bytes) -> None:
        for request in self._reader.feed(data):
            if request.wrong:
                self._connection.send(jsonrpc.refusal(request, request.wrong))
            else:
                self._call(request)
            if request.is_last:
                self._connection.close()

    def _call(self, request: jsonrpc.Request) -> None:
        jobs, parameter = self._connection.door.jobs, request.params[0]
        self.pending += 1

        def done(result: Any, error: str | None, on_out: OnOut | None = None) -> None:
            self.pending -= 1
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

            stop = jobs.pop(parameter, popped)
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
        for stop in self._pops.values():
            stop()
        self._pops.clear()
