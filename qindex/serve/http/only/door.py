"""The port of `qindex serve --page-only`: who has the key sees everything, and changes nothing."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import time
from collections import deque
from typing import Any, Final

import qindex
from qindex.serve.http.door import HttpDoor
from qindex.serve.http.only.store import Looker
from qindex.serve.logins import FAILURE_SECONDS, FAILURES_MAX, Login, Verdict


class Key:
    """In the place of users: one key, made anew at each start."""

    def __init__(self) -> None:
        self.text: Final = secrets.token_urlsafe(24)
        self._failures: deque[float] = deque(maxlen=FAILURES_MAX)

    def tags(self, name: str) -> list[str]:
        return ["monitoring"]

    def stamp(self, name: str) -> bytes:
        return b""

    def at_once(self, login: Login, address: str) -> Verdict:
        now = time.monotonic()
        if hmac.compare_digest(login.password.encode("utf-8", "replace"), self.text.encode()):
            return Verdict.RIGHT
        failures = self._failures
        if len(failures) == FAILURES_MAX and now - failures[0] < FAILURE_SECONDS:
            return Verdict.WAIT
        failures.append(now)
        return Verdict.WRONG

    async def check(self, login: Login, address: str) -> Verdict:
        return self.at_once(login, address)


async def serve(
    looker: Looker, sockets: list[socket.socket], hosts: list[str], key: Key, stopped: asyncio.Event
) -> None:
    """Show a store, which was looked at once, until `stopped`."""

    def about(user: str) -> dict[str, Any]:
        return {
            "kind": "store",
            "version": qindex.__version__,
            "node": looker.path,
            "tags": ["monitoring"],
            "sees_all": True,
        }

    door = HttpDoor(key, key, hosts, looker.add_to, about)
    try:
        await door.accept(sockets)
        await stopped.wait()
    finally:
        await door.close()
        looker.close()
