"""Who may log in, for all doors: what a client says, and how often it may be wrong.

A password costs a slow digest, by design. So that a flood of wrong ones holds up nobody, digests
are made in a thread beside the event loop, and who is wrong often is refused without one:

- What was right before, and still is, is let in at once: no digest, no limit. Strangers who are
  wrong at the same address (loopback, a proxy's) do not keep those out who were in before.
- Else FAILURES_MAX wrong passwords of one user, or ADDRESS_FAILURES_MAX of all users, from one
  address within FAILURE_SECONDS make that user wait there, or all users.
- An operator whom that keeps out asks through the directory (`qindex ctl DIR authenticate_user`),
  where no limit counts: what is right there is let in at all doors from then on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from qindex.broker.users import Users, is_right
from qindex.field_table import AmqpError, decode_table

log: Final = logging.getLogger("qindex.serve")
FAILURES_MAX: Final = 10
ADDRESS_FAILURES_MAX: Final = 100
FAILURE_SECONDS: Final = 60.0
ADDRESSES_MAX: Final = 10_000  # whose failures are kept: those that failed last
PENDING_MAX: Final = 200  # digests that wait for the thread: about a second of its work
LOCAL: Final = "local socket"  # in the place of an address
TOO_MANY: Final = "too many failed log-ins: wait a minute"
_IPV6_PREFIX: Final = 64  # what one customer has


class Login(NamedTuple):
    user: str
    password: str


class Verdict(Enum):
    RIGHT = "right"
    WRONG = "wrong"
    WAIT = "wait"


class _Pending(NamedTuple):
    """A digest that the thread makes, for all who have said the same."""

    user: str
    place: str
    answers: list[tuple[str, asyncio.Future[Verdict]]]  # with the address of each


class Logins:
    """One for a server. Made and used in its event loop."""

    def __init__(
        self,
        users: Users,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._users = users
        self._loop = loop
        self._now = now
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="qindex-login")
        self._pending: dict[bytes, _Pending] = {}  # by user and password, signed
        self._failures: OrderedDict[str, deque[tuple[float, str]]] = OrderedDict()  # by place

    def at_once(self, login: Login, address: str) -> Verdict | None:
        """The answer, if it needs no digest: microseconds. None: check() has it later."""
        found = self._users.may_enter_at_once(*login, is_local=is_loopback(address))
        if found:
            return Verdict.RIGHT
        if found is None and self._sign(login) in self._pending:
            return None
        if self._must_wait(login.user, address):
            log.debug("%s: login of user %r: %s", address, login.user, TOO_MANY)
            return Verdict.WAIT
        if found is None:
            return None
        self._failed(login.user, address)
        return Verdict.WRONG

    def check(self, login: Login, address: str) -> asyncio.Future[Verdict]:
        """The answer, when the thread has it. Only if at_once() has none, and in the same turn.

        Many clients with the same user and password are one digest.
        """
        sign = self._sign(login)
        if sign not in self._pending:
            entry = self._users.entry_of(login.user)
            digest = self._loop.run_in_executor(self._pool, is_right, entry, login.password)
            digest.add_done_callback(partial(self._digested, sign, entry, login))
            self._pending[sign] = _Pending(login.user, _place(address), [])
        answer: asyncio.Future[Verdict] = self._loop.create_future()
        self._pending[sign].answers.append((address, answer))
        return answer

    def _digested(
        self, sign: bytes, entry: bytes, login: Login, digest: asyncio.Future[bool]
    ) -> None:
        error = None if digest.cancelled() else digest.exception()
        if error is not None:
            log.error("the entry of user %r cannot be read: %s", login.user, error)
        right = (
            not digest.cancelled()
            and error is None
            and digest.result()
            and self._users.remember(login.user, entry, login.password)
        )
        for address, answer in self._pending.pop(sign).answers:
            if not right:
                self._failed(login.user, address)
            if not answer.done():
                answer.set_result(Verdict.RIGHT if right else Verdict.WRONG)

    def _sign(self, login: Login) -> bytes:
        return self._users.sign(self._users.entry_of(login.user), login.password)

    def _must_wait(self, user: str, address: str) -> bool:
        """Guesses that the thread has not looked at count, too: nobody makes many at a time."""
        if len(self._pending) >= PENDING_MAX:
            return True
        place = _place(address)
        failures = self._failures.get(place, ())
        begin = self._now() - FAILURE_SECONDS
        users = [name for at, name in failures if at > begin]
        users += [each.user for each in self._pending.values() if each.place == place]
        return users.count(user) >= FAILURES_MAX or len(users) >= ADDRESS_FAILURES_MAX

    def _failed(self, user: str, address: str) -> None:
        log.warning("%s: login of user %r was refused", address, user)
        place = _place(address)
        failures = self._failures.setdefault(place, deque(maxlen=ADDRESS_FAILURES_MAX))
        failures.append((self._now(), user))
        self._failures.move_to_end(place)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        if self._must_wait(user, address):
            log.warning("%s: %s, user %r", address, TOO_MANY, user)

    def stop(self) -> None:
        """The server ends: digests that are not begun are not made."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def is_loopback(address: str) -> bool:
    """True for addresses that only this machine reaches."""
    try:
        return address == LOCAL or ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _place(address: str) -> str:
    """Where failures are counted: an address; of IPv6 the network that one customer has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4 or found.is_loopback:
        return address
    return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))


def credentials(mechanism: str, response: bytes) -> Login | None:
    """User and password; None: an unknown mechanism. Damaged bytes are a user without a name."""
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3:
            return Login("", "")
        return Login(_decoded(parts[1]), _decoded(parts[2]))
    if mechanism == "AMQPLAIN":
        try:
            table: dict[str, Any] = decode_table(len(response).to_bytes(4, "big") + response)
        except AmqpError:
            return Login("", "")
        return Login(str(table.get("LOGIN", "")), str(table.get("PASSWORD", "")))
    return None


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
