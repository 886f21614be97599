"""Wrong passwords: they cost others nothing, they soon have to wait, and they lock out nobody."""

from __future__ import annotations

import asyncio
import functools
import struct
import threading
import time

import pytest
from http_api import Api, run

from qindex.amqp import methods as m
from qindex.amqp.wire import PROTOCOL_HEADER, Scanner, decode_method, encode_method
from qindex.broker import users
from qindex.broker.users import is_right
from qindex.serve import logins
from qindex.serve.administration import Administration
from qindex.serve.control import answer
from qindex.serve.logins import (
    ADDRESS_FAILURES_MAX,
    ADDRESSES_MAX,
    FAILURE_SECONDS,
    FAILURES_MAX,
    TOO_MANY,
    Login,
    Logins,
    Verdict,
)
from qindex.serve.server import Server

CLIENT = {"capabilities": {"authentication_failure_close": True}}


async def enter(port, user, password, *, at_once=b""):
    """Log in, and return the method that answers; `at_once` is sent together with the login."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = f"\0{user}\0{password}".encode()
    start_ok = m.ConnectionStartOk(CLIENT, "PLAIN", said, "en_US")
    writer.write(PROTOCOL_HEADER + encode_method(0, start_ok) + at_once)
    scanner, heard = Scanner(131_072), []
    awaited = m.ConnectionOpenOk if at_once else m.ConnectionTune
    while not any(isinstance(method, awaited | m.ConnectionClose) for method in heard):
        data = await reader.read(65536)
        if not data:
            break
        heard += [decode_method(payload) for _, _, payload in scanner.frames(data)]
    writer.transport.abort()
    return heard[-1]


class Digests:
    """Counts the slow digests, and makes them slower, or as slow as a test wants them."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.passwords = []
        self.threads = set()
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, entry, password):
        self.passwords.append(password)
        self.threads.add(threading.current_thread())
        time.sleep(self.seconds)
        self.may_end.wait()
        return is_right(entry, password)


@pytest.fixture
def digests(monkeypatch):
    found = Digests()
    monkeypatch.setattr(logins, "is_right", found)
    return found


def test_a_flood_of_wrong_passwords_costs_a_few_digests_and_never_in_the_event_loop(digests):
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        floods = [enter(port, "guest", f"wrong {number}") for number in range(60)]
        answers = await asyncio.gather(*floods)
        assert {method.reply_code for method in answers} == {403}
        texts = [method.reply_text for method in answers]
        assert texts.count(f"ACCESS_REFUSED - {TOO_MANY}") == 60 - FAILURES_MAX
        assert len(digests.passwords) == FAILURES_MAX
        assert threading.current_thread() not in digests.threads
        await server.stop()

    run(test())


def test_a_name_that_no_user_has_costs_the_same_digest_as_a_wrong_password(digests):
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        for user, password in (("guest", "wrong"), ("nobody", "wrong"), ("nobody", "")):
            answer_ = await enter(port, user, password)
            assert answer_.reply_code == 403
            assert TOO_MANY not in answer_.reply_text
        assert digests.passwords == ["wrong", "wrong", ""]
        assert threading.current_thread() not in digests.threads
        for number in range(2 * FAILURES_MAX):  # and it has to wait as a user does
            answer_ = await enter(port, "nobody", f"{number}")
        assert TOO_MANY in answer_.reply_text
        assert len(digests.passwords) < 2 * FAILURES_MAX
        await server.stop()

    run(test())


@pytest.mark.parametrize("algorithm", ["sha256", ""])
def test_a_user_of_rabbitmq_is_not_answered_sooner_than_others(algorithm, monkeypatch):
    made = []
    digest = users._digest
    monkeypatch.setattr(users, "_digest", lambda *args: made.append(args) or digest(*args))
    (entry,) = users.Users.entry_of_rabbitmq("ann", b"salt" + bytes(32), algorithm, []).values()
    assert not is_right(entry, "wrong")
    assert len(made) == 1


def test_nobody_waits_for_the_digest_of_another(digests):
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        assert isinstance(await enter(port, "guest", "guest"), m.ConnectionTune)
        digests.may_end.clear()
        slow = asyncio.ensure_future(enter(port, "guest", "wrong"))
        while len(digests.passwords) < 2:
            await asyncio.sleep(0.01)
        try:
            entered = asyncio.wait_for(enter(port, "guest", "guest"), 30)
            assert isinstance(await entered, m.ConnectionTune)
            assert not slow.done()
        finally:
            digests.may_end.set()
        assert (await slow).reply_code == 403
        await server.stop()

    run(test())


def test_many_clients_with_the_same_right_password_are_one_digest_and_all_come_in(digests):
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        digests.seconds = 0.2
        clients = [enter(port, "guest", "guest") for _ in range(3 * FAILURES_MAX)]
        answers = await asyncio.gather(*clients)
        assert all(isinstance(method, m.ConnectionTune) for method in answers)
        assert digests.passwords == ["guest"]
        await server.stop()

    run(test())


def test_what_a_client_sends_behind_its_login_waits_for_the_answer():
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        tune, open_ = m.ConnectionTuneOk(100, 131_072, 0), m.ConnectionOpen("/", "", False)
        behind = encode_method(0, tune) + encode_method(0, open_)
        for _ in range(2):  # with a digest, then without one
            opened = await enter(port, "guest", "guest", at_once=behind)
            assert isinstance(opened, m.ConnectionOpenOk)
        await server.stop()

    run(test())


def test_a_client_that_leaves_before_the_answer_harms_nobody(digests):
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        digests.seconds = 0.3
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        start_ok = m.ConnectionStartOk(CLIENT, "PLAIN", b"\0guest\0guest", "en_US")
        writer.write(PROTOCOL_HEADER + encode_method(0, start_ok))
        while not digests.passwords:
            await asyncio.sleep(0.01)
        writer.get_extra_info("socket").setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER
        writer.transport.abort()
        assert isinstance(await enter(port, "guest", "guest"), m.ConnectionTune)
        while server.sessions:
            await asyncio.sleep(0.01)
        await server.stop()

    run(test())


def test_all_doors_count_together_and_who_was_in_before_is_not_kept_out():
    async def test():
        async with Api() as api:
            users = api.server.node.users
            users.add("ann", "secret")
            users.set_tags("ann", ["management"])
            assert (await api.raw("GET", "/api/whoami"))[0] == 200
            for number in range(FAILURES_MAX):
                for user in ("guest", "ann"):
                    refused = await enter(api.amqp, user, f"wrong {number}")
                    assert refused.reply_code == 403
            assert (await api.raw("GET", "/api/whoami", login=("ann", "wrong")))[0] == 429
            assert (await api.raw("GET", "/api/whoami"))[0] == 200
            assert isinstance(await enter(api.amqp, "guest", "guest"), m.ConnectionTune)
            # ann was not in before: she waits, unless the directory's owner vouches for her.
            assert (await api.raw("GET", "/api/whoami", login=("ann", "secret")))[0] == 429
            admin = Administration(api.server.node, api.server, "/")
            assert "text" in answer(admin, "authenticate_user", ["ann", "secret"])
            assert (await api.raw("GET", "/api/whoami", login=("ann", "secret")))[0] == 200

    run(test())


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Tries:
    """Wrong logins at a clock of its own, without a server."""

    def __init__(self):
        self.clock = Clock()
        self.logins = Logins(Server(None).node.users, asyncio.get_running_loop(), self.clock)

    async def __call__(self, user, address):
        login = Login(user, "x")
        found = self.logins.at_once(login, address)
        return await self.logins.check(login, address) if found is None else found


def trying(test):
    """Run a test that is a coroutine function of Tries, without the slow part of a digest."""

    @functools.wraps(test)
    def found(monkeypatch):
        monkeypatch.setattr(logins, "is_right", lambda entry, password: False)

        async def run_it():
            await test(Tries())

        run(run_it())

    del found.__wrapped__  # pytest would ask for its argument
    return found


@trying
async def test_failures_are_forgotten_after_a_minute(tried):
    for _ in range(FAILURES_MAX):
        assert await tried("nobody", "192.0.2.1") is Verdict.WRONG
    assert await tried("nobody", "192.0.2.1") is Verdict.WAIT
    assert await tried("nobody", "192.0.2.2") is Verdict.WRONG
    assert await tried("other", "192.0.2.1") is Verdict.WRONG
    tried.clock.now += FAILURE_SECONDS
    assert await tried("nobody", "192.0.2.1") is Verdict.WRONG


@trying
async def test_one_address_cannot_try_all_names(tried):
    for number in range(ADDRESS_FAILURES_MAX):
        assert await tried(f"u{number}", "192.0.2.1") is Verdict.WRONG
    assert await tried("new", "192.0.2.1") is Verdict.WAIT


@trying
async def test_addresses_of_one_ipv6_network_count_as_one(tried):
    for number in range(FAILURES_MAX):
        assert await tried("u", f"2001:db8::{number + 1:x}") is Verdict.WRONG
    assert await tried("u", "2001:db8::ffff") is Verdict.WAIT
    assert await tried("u", "2001:db8:0:1::1") is Verdict.WRONG


@trying
@pytest.mark.slow
async def test_what_is_kept_of_failures_has_an_end(tried):
    for number in range(ADDRESSES_MAX + 10):
        await tried("u", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tried.logins._failures) == ADDRESSES_MAX
