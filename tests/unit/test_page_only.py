"""`qindex serve --page-only`: a store that a process has open, or none has, as it is looked at."""

from __future__ import annotations

import asyncio
import base64
import re
import signal
import subprocess
import sys

import aiohttp
import pytest
from helpers import queue_directory

import qindex
from qindex.cli.main import main


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store") as opened:
        queue = opened.queue("orders", max_deliveries=2, dead_letters=True)
        for number in range(10):
            queue.publish(b"body %d" % number, headers={"n": number})
        queue.nack(queue.get(), requeue=False)
        queue.get()
        queue.publish(b"later", delay=90)
        opened.queue("<b>other\u202e").publish(b"\xff\0")
        opened.sync()
        yield opened


async def _ask(http, base, path, method="GET", **options):
    async with http.request(method, f"{base}{path}", **options) as response:
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else await response.read()


def served(path, test):
    command = [sys.executable, "-m", "qindex", "serve", "--page-only", path]
    command += ["--http", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        base, key = re.search(r"(http://[^/]+)/#key=([\w-]+)", line).groups()

        async def run():
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
                await test(http, base, key)

        asyncio.run(asyncio.wait_for(run(), 60))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _log_in(http, base, key):
    given = {"user": "", "password": key}
    status, found = await _ask(http, base, "/api/qindex/session", "POST", json=given)
    assert status == 200
    return found


def test_an_open_store_is_shown_and_not_changed(store):
    async def test(http, base, key):
        api = f"{base}/api/qindex"
        assert (await _ask(http, api, "/overview"))[0] == 401
        wrong = {"user": "", "password": "wrong"}
        assert (await _ask(http, api, "/session", "POST", json=wrong))[0] == 401
        assert (await _log_in(http, base, key))["kind"] == "store"
        _, found = await _ask(http, api, "/queues?sort=ready&reverse=true")
        assert [row["name"] for row in found["items"]] == ["orders", "<b>other\u202e"]
        orders = found["items"][0]
        counts = [orders[name] for name in ("ready", "unacked", "delayed", "dead")]
        assert counts == [8, 1, 1, 1]
        _, dead = await _ask(http, api, "/queues/-/orders/messages?state=dead")
        (message,) = dead["items"]
        assert (message["dead"], message["headers"]) == ("rejected", {"n": 0})
        _, one = await _ask(http, api, "/queues/-/orders/messages/3?preview=4")
        assert (base64.b64decode(one["body"]), one["body_bytes"]) == (b"body", 6)
        _, delayed = await _ask(http, api, "/delayed")
        assert (delayed["total"], delayed["items"][0]["counts"][1]) == (1, 1)
        assert (await _ask(http, api, "/health"))[1]["stores"][0]["findings"] == []
        assert (await _ask(http, api, "/disk"))[1]["stores"][0]["queue_count"] == 2
        for path, status in (("/queues/-/none", 404), ("/queues/-/orders/messages?state=x", 400)):
            assert (await _ask(http, api, path))[0] == status
        for method in ("POST", "DELETE", "PUT"):
            assert (await _ask(http, api, "/queues/-/orders", method))[0] in (403, 405)

    before = store.queue("orders").stats()
    served(store.path, test)
    after = store.queue("orders").stats()
    assert (after.ready, after.unacked, after.next_req_id) == (8, 1, before.next_req_id)


@pytest.mark.slow
def test_what_is_not_read_is_not_called_garbage(tmp_path):
    with qindex.open(tmp_path / "s") as store:
        for name in ("a", "b"):
            store.queue(name).publish_many([b"x" * 5000] * 5)
    (queue_directory(tmp_path / "s", "b") / "queue.meta").unlink()

    async def test(http, base, key):
        await _log_in(http, base, key)
        (shown,) = (await _ask(http, f"{base}/api/qindex", "/disk"))[1]["stores"]
        (file,) = [each for each in shown["files"] if each["kind"] == "messages"]
        assert (shown["unread"], file["garbage"]) == (True, None)
        assert file["size"] > file["live"] + file["room"]

    served(tmp_path / "s", test)


def test_a_store_that_nobody_has_open_is_shown(store):
    store.close()

    async def test(http, base, key):
        await _log_in(http, base, key)
        _, found = await _ask(http, base, "/api/qindex/overview")
        assert (found["writer_pid"], found["object_totals"]["queues"]) == (0, 2)

    served(store.path, test)


@pytest.mark.parametrize(
    "arguments", [["--memory"], ["data"], ["--amqp", "127.0.0.1:0"], ["--gmq", "127.0.0.1:0"]]
)
def test_a_page_alone_has_no_broker(arguments, capsys):
    assert main(["serve", "--page-only", "store", *arguments]) == 2
    assert "there is no broker" in capsys.readouterr().err


def test_where_no_store_is_nothing_is_shown(tmp_path, capsys):
    where = str(tmp_path / "nothing")
    assert main(["serve", "--page-only", where, "--http", "127.0.0.1:0"]) != 0
    assert "no store" in capsys.readouterr().err


@pytest.mark.slow
def test_a_store_that_is_gone_is_told_in_words(tmp_path):
    path = tmp_path / "store"
    with qindex.open(path) as opened:
        opened.queue("q").publish(b"x")

    async def test(http, base, key):
        await _log_in(http, base, key)
        path.rename(tmp_path / "elsewhere")
        async with http.get(f"{base}/api/qindex/queues/-/q/messages") as response:
            assert response.status == 503
            assert response.headers["Cache-Control"] == "no-store"
            assert str(path) in (await response.json())["reason"]

    served(path, test)
