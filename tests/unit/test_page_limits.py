"""What one action of the page changes at most, and that it says so; how long a start took."""

from __future__ import annotations

import asyncio
import gc

from http_api import Api, run
from page_client import PageClient

from qindex.broker.dead_letters import dead_letter
from qindex.broker.message import Message
from qindex.broker.timers import now_us
from qindex.serve.http.own import acts, dead
from qindex.serve.http.own.series import Series

OPTIONS = {"auto_delete": False, "owner": None, "user": None}


def declared(api, name):
    vhost = api.server.node.vhost("/")
    return vhost.declare_queue(name, durable=True, arguments={}, **OPTIONS)


def of_queue(name, body=b"x"):
    return Message("", [name], b"\0\0", body, persistent=True)


def test_an_action_says_that_there_are_more(directory, monkeypatch):
    monkeypatch.setattr(acts, "COUNT_MAX", 3)

    async def test():
        async with Api(directory) as api, PageClient(api) as page:
            await page.log_in()
            queue = declared(api, "q")
            for _ in range(7):
                queue.publish(of_queue("q"), now_us())
            for done, more in ((3, {"more": True}), (3, {"more": True}), (1, {})):
                answer = await page.act("queues/%2F/q/messages/delete", {"state": "ready"})
                assert answer == (200, {"done": done, "left": 0, **more})

    run(test())


def test_what_is_sent_back_says_that_there_may_be_more(directory, monkeypatch):
    monkeypatch.setattr(dead, "COUNT_MAX", 4)
    monkeypatch.setattr(dead, "LOOKED_MAX", 5)

    async def test():
        async with Api(directory) as api, PageClient(api) as page:
            await page.log_in()
            orders, failed = declared(api, "orders"), declared(api, "failed")
            for number in range(10):
                letter = of_queue("orders", b"%d" % number)
                failed.publish(dead_letter(letter, "orders", "rejected", "", "failed"), now_us())
            given = {"queue": "failed", "origin": "orders", "reason": "rejected"}
            found = []
            for _ in range(4):
                status, answer = await page.act("dead/%2F/return", given)
                assert status == 200
                found.append((answer["done"], answer.get("more", False)))
            assert found == [(4, True), (4, True), (2, False), (0, False)]
            assert (len(orders), len(failed)) == (10, 0)

    run(test())


def test_health_says_how_long_the_start_took(tmp_path):
    async def test():
        for _ in range(2):
            async with Api(tmp_path / "data") as api, PageClient(api) as page:
                await page.log_in()
                declared(api, "q").publish(of_queue("q"), now_us())
                (store,) = (await page.own("health"))["stores"]
                assert 0 < store["open_seconds"] < 60

    run(test())


def test_looks_at_very_many_queues_make_few_objects(monkeypatch):
    """Ten thousand of them would wake the garbage collector, which looks at all that there is."""
    # The server's own samples stay out of it: its first one notes each new queue.
    monkeypatch.setattr("qindex.serve.http.own.series.SECONDS", 3600.0)

    async def test():
        async with Api() as api, PageClient(api) as page:
            await page.log_in()
            vhost = api.server.node.vhost("/")
            for number in range(3000):
                vhost.declare_queue(f"q{number}", durable=False, arguments={}, **OPTIONS)
            vhost.queues["q7"].publish(of_queue("q7"), now_us())
            series = Series(api.server)
            series.begin()  # notes what each queue has
            looks = (
                lambda: asyncio.sleep(0, series.begin()),
                lambda: page.own("queues?sort=ready&reverse=true&name=q"),
                lambda: page.own("overview"),
            )
            gc.disable()
            try:
                for look in looks:
                    gc.collect()
                    found = await look()
                    assert gc.get_count()[0] < 1000
                    if found and "items" in found:
                        assert (found["items"][0]["name"], found["found"]) == ("q7", 3000)
            finally:
                gc.enable()
                series.stop()

    run(test())


def test_rates_of_queues_that_rest_are_not_those_of_before():
    async def test():
        async with Api() as api:
            queue = declared(api, "q")
            series = Series(api.server)
            series.begin()
            queue.publish(of_queue("q"), now_us())
            series.begin()
            assert series.rates(queue)[0] > 0
            series.begin()
            assert series.rates(queue) == (0.0, 0.0, 0.0)
            api.server.node.vhost("/").delete_queue("q", None)
            series.begin()
            assert series.rates(declared(api, "q")) == (0.0, 0.0, 0.0)
            series.stop()

    run(test())
