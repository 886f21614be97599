"""The paths of the page: queues in pages, messages by state, and what is done with them."""

from __future__ import annotations

import base64
import time

import pytest
from page_client import declared, published, with_page

from qindex.broker.timers import now_us
from qindex.serve.server import Server

OPTIONS = {"auto_delete": False, "owner": None, "user": None}


def bodies_of(found):
    return [base64.b64decode(each["body"]) for each in found["items"]]


def test_queues_come_in_pages_sorted_by_any_figure():
    async def test(api, page):
        for number in range(120):
            queue = declared(api, f"q{number:03}", durable=False)
            published(queue, *[b"x"] * (number % 7))
        found = await page.own("queues?size=50&page=3&sort=name")
        assert [found[name] for name in ("page", "pages", "found", "total")] == [3, 3, 120, 120]
        assert len(found["items"]) == 20
        found = await page.own("queues?sort=ready&reverse=true&name=Q01&size=5")
        assert [each["name"] for each in found["items"]] == ["q013", "q019", "q012", "q018", "q011"]
        assert found["found"] == 10
        assert (await page.own("queues?some=waiting"))["found"] == 102
        assert (await page.own("queues?page=999"))["page"] == 3
        assert (await page.ask("GET", "/api/qindex/queues?sort=x"))[0] == 400

    with_page(test)


def test_messages_are_shown_by_state_with_a_part_of_their_bodies(directory):
    async def test(api, page):
        queue = declared(api, "q")
        published(queue, b"one" * 1000, b"\xff\0", b"three")
        due_us = now_us() + 3600_000_000
        published(queue, b"later", due_us=due_us)
        path = "queues/%2F/q/messages"
        found = await page.own(f"{path}?state=ready&preview=5")
        assert bodies_of(found) == [b"oneon", b"\xff\0", b"three"]
        assert (found["items"][0]["body_bytes"], found["next"]) == (3000, None)
        found = await page.own(f"{path}?state=ready&limit=1&after=0")
        assert (bodies_of(found), found["next"]) == ([b"\xff\0"], "1")
        (delayed,) = (await page.own(f"{path}?state=delayed"))["items"]
        assert (delayed["state"], round(delayed["due_at"] * 1e6)) == ("delayed", due_us)
        one = await page.own(f"{path}/{delayed['number']}")
        assert base64.b64decode(one["body"]) == b"later"
        assert len((await page.own(path))["items"]) == 4
        queue.get()
        assert len((await page.own(f"{path}?state=ready"))["items"]) == 2
        unacked = (await page.own(f"{path}?state=unacked"))["items"]
        assert len(unacked) == (0 if directory is None else 1)
        for wrong in (f"{path}?state=x", f"{path}?after=x", f"{path}?limit=9999", f"{path}/x"):
            assert (await page.ask("GET", f"/api/qindex/{wrong}"))[0] == 400
        assert (await page.ask("GET", f"/api/qindex/{path}/77"))[0] == 404

    with_page(test, directory)


def test_chosen_messages_are_deleted_delayed_and_moved(directory):
    async def test(api, page):
        source, target = declared(api, "source"), declared(api, "target")
        published(source, b"a", b"b", b"c", b"d")
        path = "queues/%2F/source/messages"
        numbers = [each["number"] for each in (await page.own(path))["items"]]
        assert await page.act(f"{path}/delete", {"numbers": [numbers[0], "4711"]}) == (
            200,
            {"done": 1, "left": 1},
        )
        given = {"numbers": [numbers[1]], "to": "target"}
        assert await page.act(f"{path}/move", given) == (200, {"done": 1, "left": 0})
        given = {"numbers": [numbers[2]], "seconds": 3600}
        assert (await page.act(f"{path}/delay", given))[1]["done"] == 1
        assert (len(source), source.backlog.delayed(), len(target)) == (1, 1, 1)
        assert target.get().message.body == b"b"
        (late,) = (await page.own(f"{path}?state=delayed"))["items"]
        assert 3590 < late["due_at"] - time.time() <= 3600
        given = {"numbers": [late["number"]], "seconds": 0}
        assert (await page.act(f"{path}/delay", given))[1]["done"] == 1
        source.backlog.take_in_due()
        assert [source.get().message.body for _ in range(2)] == [b"c", b"d"]
        assert source.get() is None

    with_page(test, directory)


def test_all_of_a_state_is_moved_in_batches_and_counts_stay_right(directory):
    async def test(api, page):
        source, target = declared(api, "source"), declared(api, "target")
        published(source, *[b"%d" % number for number in range(1200)])
        source.get()
        given = {"state": "ready", "to": "target"}
        answer = await page.act("queues/%2F/source/messages/move", given)
        assert answer == (200, {"done": 1199, "left": 0})
        assert (len(source), source.unacked, len(target)) == (0, 1, 1199)
        got = [target.get().message.body for _ in range(1199)]
        assert got == [b"%d" % number for number in range(1, 1200)]

    with_page(test, directory)


def test_what_a_consumer_has_is_left_alone(tmp_path):
    async def test(api, page):
        source = declared(api, "source")
        declared(api, "target")
        published(source, b"a", b"b")
        entry = source.get()
        for verb, more in (("delete", {}), ("delay", {"seconds": 9}), ("move", {"to": "target"})):
            given = {"numbers": ["0"], **more}
            answer = await page.act(f"queues/%2F/source/messages/{verb}", given)
            assert answer == (200, {"done": 0, "left": 1})
        source.ack([entry])
        assert (len(source), source.unacked) == (1, 0)

    with_page(test, tmp_path / "data")


@pytest.mark.parametrize(
    ("verb", "given", "status"),
    [
        ("move", {"state": "ready", "to": "nowhere"}, 404),
        ("move", {"state": "ready", "to": "q"}, 400),
        ("move", {"state": "ready", "to": "small"}, 400),
        ("move", {"state": "ready", "to": "memory"}, 400),
        ("delay", {"state": "ready", "seconds": -1}, 400),
        ("delay", {"state": "ready", "seconds": "x"}, 400),
        ("delete", {}, 400),
        ("delete", {"numbers": [-1]}, 400),
        ("delete", {"numbers": "0"}, 400),
        ("eat", {"state": "ready"}, 405),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path, verb, given, status):
    async def test(api, page):
        queue = declared(api, "q")
        declared(api, "small", x_max_length=1, x_overflow="reject-publish")
        declared(api, "memory", durable=False)
        published(queue, b"a", b"b")
        answer = await page.act(f"queues/%2F/q/messages/{verb}", given)
        assert answer[0] == status, answer
        assert [len(each) for each in api.server.node.vhost("/").queues.values()] == [2, 0, 0]

    with_page(test, tmp_path / "data")


def test_a_limit_of_bytes_knows_what_was_deleted():
    async def test(api, page):
        queue = declared(api, "q", x_max_length_bytes=10)
        published(queue, b"12345", b"12345")
        await page.act("queues/%2F/q/messages/delete", {"numbers": ["0"]})
        published(queue, b"67890")
        assert len(queue) == 2

    with_page(test)


def test_a_paused_queue_delivers_nothing_also_after_a_restart(tmp_path):
    async def first(api, page):
        queue = declared(api, "q", x_max_length=2)
        assert await page.act("queues/%2F/q/pause") == (200, {"state": "held"})
        published(queue, b"a", b"b", b"c")  # the limit holds
        assert (queue.get(), len(queue)) == (None, 2)
        assert (await page.own("queues?some=held"))["found"] == 1

    async def second(api, page):
        queue = api.server.node.vhost("/").queues["q"]
        assert (queue.on_hold, queue.get(), len(queue)) == (True, None, 2)
        assert await page.act("queues/%2F/q/resume") == (200, {"state": "running"})
        assert queue.get().message.body == b"b"
        api.server.node.vhost("/").delete_queue("q", None)
        assert not declared(api, "q", x_max_length=2).on_hold

    with_page(first, tmp_path / "data")
    with_page(second, tmp_path / "data")


def test_samples_say_what_was_there_and_how_fast():
    async def test(api, page):
        queue = declared(api, "q")
        published(queue, b"a", b"b")
        found = await page.own("overview")
        assert found["samples"]  # begun with the port
        at = found["samples"][-1][0]
        assert (await page.own(f"overview?since={at}"))["samples"] == []
        assert found["queue_totals"]["messages_ready"] == 2

    with_page(test)


def test_the_description_names_every_path_that_is_served():
    async def test(api, page):
        found = await page.own("openapi.json")
        assert found["openapi"].startswith("3.")
        paths = {each.partition("/api/qindex")[2] for each in found["paths"]}
        assert "/queues/{vhost}/{name}/messages/{verb}" in paths
        served = {
            route.resource.canonical
            for route in _routes(api.server)
            if route.resource.canonical.startswith("/api/qindex/")
        }
        outside = {"/api/qindex/openapi.json", "/api/qindex/session"}
        assert served - outside == set(found["paths"])

    with_page(test)


def _routes(server: Server):
    (door,) = server.doors
    return door._runner.app.router.routes()
