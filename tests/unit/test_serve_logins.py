"""Wrong passwords: they cost others nothing, they soon have to wait, and they lock out nobody."""

from __future__ import annotations

import asyncio
import struct
import threading
import time

import pytest
from http_api import Api, run

from qindex.amqp import methods as m
from qindex.amqp.wire import PROTOCOL_HEADER, Scanner, decode_method, encode_method
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
    """Counts the slow digests, and makes them slower."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.passwords = []
        self.threads = set()

    def __call__(self, entry, password):
        self.passwords.append(password)
        self.threads.add(threading.current_thread())
        time.sleep(self.seconds)
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


def test_nobody_waits_for_the_digest_of_another(digests):
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        assert isinstance(await enter(port, "guest", "guest"), m.ConnectionTune)
        digests.seconds = 2.0
        slow = asyncio.ensure_future(enter(port, "guest", "wrong"))
        while len(digests.passwords) < 2:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        assert isinstance(await enter(port, "guest", "guest"), m.ConnectionTune)
        assert time.monotonic() - began < 1
        assert not slow.done()
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


@pytest.fixture
def tried():
    """Logins without a server: (clock, try one that is not there, how many are kept)."""

    async def make():
        server = Server(None)
        clock = Clock()
        found = Logins(server.node.users, server.loop, clock)
        await server.stop()
        return found, clock

    return asyncio.run(make())


def test_failures_are_forgotten_after_a_minute(tried):
    found, clock = tried
    login = Login("nobody", "x")
    for _ in range(FAILURES_MAX):
        assert found.at_once(login, "192.0.2.1") is Verdict.WRONG
    assert found.at_once(login, "192.0.2.1") is Verdict.WAIT
    assert found.at_once(login, "192.0.2.2") is Verdict.WRONG
    assert found.at_once(Login("other", "x"), "192.0.2.1") is Verdict.WRONG
    clock.now += FAILURE_SECONDS
    assert found.at_once(login, "192.0.2.1") is Verdict.WRONG


def test_one_address_cannot_try_all_names(tried):
    found, _ = tried
    for number in range(ADDRESS_FAILURES_MAX):
        assert found.at_once(Login(f"u{number}", "x"), "192.0.2.1") is Verdict.WRONG
    assert found.at_once(Login("new", "x"), "192.0.2.1") is Verdict.WAIT


def test_addresses_of_one_ipv6_network_count_as_one(tried):
    found, _ = tried
    for number in range(FAILURES_MAX):
        assert found.at_once(Login("u", "x"), f"2001:db8::{number + 1:x}") is Verdict.WRONG
    assert found.at_once(Login("u", "x"), "2001:db8::ffff") is Verdict.WAIT
    assert found.at_once(Login("u", "x"), "2001:db8:0:1::1") is Verdict.WRONG


def test_what_is_kept_of_failures_has_an_end(tried):
    found, _ = tried
    for number in range(ADDRESSES_MAX + 10):
        found.at_once(Login("u", "x"), f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(found._failures) == ADDRESSES_MAX
