"""Moves by the page while queues come and go, of many messages, and what waits for the disk."""

from __future__ import annotations

import asyncio
import time

import pytest
from page_client import declared, published, with_page

from qindex.broker.message import Message
from qindex.broker.timers import now_us
from qindex.brokers.amqp import Properties, encode_properties
from qindex.serve.http import door
from qindex.serve.http.own import acts

DEATHS = Properties(headers={"x-death": [{"queue": "b", "reason": "rejected", "count": 1}]})


def dead_letters(queue, count):
    properties = encode_properties(DEATHS)
    for _ in range(count):
        queue.publish(Message("", [queue.name], properties, b"x", persistent=True), now_us())


@pytest.mark.parametrize("verb", ["move", "return"])
def test_a_move_to_a_queue_that_is_deleted_meanwhile_says_how_many_were_done(directory, verb):
    async def test(api, page):
        source, target = (declared(api, name) for name in "ab")
        dead_letters(source, 1200)
        if verb == "move":
            call = page.act("queues/%2F/a/messages/move", {"state": "ready", "to": "b"})
        else:
            given = {"queue": "a", "origin": "b", "reason": "rejected"}
            call = page.act("dead/%2F/return", given)
        moved = asyncio.create_task(call)
        while len(target) < 500:
            await asyncio.sleep(0)
        gone = len(target)
        api.server.node.vhost("/").delete_queue("b", None)
        status, found = await moved
        assert (status, len(source)) == (404, 1200 - gone)
        assert f"queue 'b' in vhost '/' was deleted: {gone} are done" in found["reason"]

    with_page(test, directory)


def test_thousands_of_messages_in_memory_are_moved_and_changed_in_turns():
    count = 6000

    async def test(api, page):
        source, target = (declared(api, name, durable=False) for name in "ab")
        dead_letters(source, count)
        worst, over = 0.0, False

        async def probe():
            nonlocal worst
            last = time.thread_time()
            while not over:
                await asyncio.sleep(0)
                now = time.thread_time()
                worst, last = max(worst, now - last), now

        probing = asyncio.create_task(probe())
        begun = time.thread_time()
        given = {"queue": "a", "origin": "b", "reason": "rejected"}
        assert await page.act("dead/%2F/return", given) == (200, {"done": count, "left": 0})
        path = "queues/%2F/b/messages"
        done = (200, {"done": count, "left": 0})
        assert await page.act(f"{path}/delay", {"state": "ready", "seconds": 90}) == done
        assert (len(source), len(target)) == (0, 0)
        assert target.backlog.delayed() == count
        assert await page.act(f"{path}/delete", {"state": "delayed"}) == done
        over = True
        await probing
        assert target.backlog.delayed() == 0
        assert worst < 0.5  # one batch had taken seconds
        assert time.thread_time() - begun < 8

    with_page(test)


def test_a_move_in_memory_keeps_the_order_and_leaves_what_is_delivered():
    async def test(api, page):
        source, target = (declared(api, name, durable=False) for name in "ab")
        published(source, *(b"%d" % number for number in range(6)))
        published(source, b"later", due_us=now_us() + 3600_000_000)
        assert source.get().message.body == b"0"
        given = {"numbers": ["5", "0", "3", "6", "9"], "to": "b"}
        status, found = await page.act("queues/%2F/a/messages/move", given)
        assert (status, found) == (200, {"done": 3, "left": 2})
        bodies = [message.body for _, message in target.backlog.browse()]
        assert bodies == [b"5", b"3", b"later"]
        assert [message.body for _, message in source.backlog.browse()] == [b"1", b"2", b"4"]
        found = [each.number for each in source.backlog.look(2, "ready")]
        assert found == [2, 4]

    with_page(test)


def test_a_move_out_of_memory_is_answered_when_it_is_durable(tmp_path):
    async def test(api, page):
        source, target = declared(api, "a", durable=False), declared(api, "b")
        published(source, b"x")
        vhost = api.server.node.vhost("/")
        joined = []
        join = vhost.commit.join
        vhost.commit.join = lambda done: (joined.append(len(target)), join(done))
        given = {"state": "ready", "to": "b"}
        assert (await page.act("queues/%2F/a/messages/move", given))[0] == 200
        assert 1 in joined

    with_page(test, tmp_path / "data")


def test_an_error_that_nobody_expects_has_the_headers_of_every_answer(monkeypatch):
    async def test(api, page):
        declared(api, "a")

        def fails(*_):
            raise RuntimeError("unexpected")

        monkeypatch.setattr(acts, "readable", fails)
        url = "/api/qindex/queues/%2F/a/messages/delete"
        status, headers, raw = await api.raw("POST", url, json={"state": "ready"})
        assert (status, b"its log says more" in raw) == (500, True)
        assert {name: headers[name] for name in door._HEADERS} == door._HEADERS

    with_page(test)
