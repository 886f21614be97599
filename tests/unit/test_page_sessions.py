"""Log-ins of the page: cookie, token, rate, roles; and what its files say to a browser."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from http_api import Api, run
from page_client import PageClient

from qindex.broker.users import Permission
from qindex.serve.logins import FAILURES_MAX


def with_page(test, **options):
    async def body():
        async with Api(**options) as api, PageClient(api) as page:
            await test(api, page)

    run(body())


def test_a_log_in_gives_a_cookie_that_scripts_and_foreign_pages_do_not_get():
    async def test(api, page):
        assert await page.ask("GET", "/api/qindex/session") == (200, {"user": None})
        assert (await page.ask("GET", "/api/qindex/overview"))[0] == 401
        status, found = await page.log_in()
        assert (status, found["user"], found["kind"]) == (200, "guest", "broker")
        (cookie,) = page.http.cookie_jar
        assert cookie.key == f"qindex-{api.port}"
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
        assert (await page.own("session"))["token"] == found["token"]
        assert (await page.own("overview"))["product_name"] == "qindex"

    with_page(test)


@pytest.mark.parametrize("headers", [{"X-Qindex-Token": ""}, {"X-Qindex-Token": "wrong"}])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/queues/%2F/q"),
        ("DELETE", "/api/queues/%2F/there"),
        ("POST", "/api/qindex/queues/%2F/there/pause"),
        ("DELETE", "/api/qindex/session"),
    ],
)
def test_a_cookie_alone_changes_nothing(method, path, headers):
    async def test(api, page):
        await page.log_in()
        await page.ask("PUT", "/api/queues/%2F/there", {})
        assert (await page.ask(method, path, {}, headers=headers))[0] == 403
        (queue,) = api.server.node.vhost("/").queues.values()
        assert (queue.name, queue.on_hold) == ("there", False)
        assert (await page.own("session"))["user"] == "guest"

    with_page(test)


def test_a_foreign_origin_is_refused_also_with_the_token():
    async def test(api, page):
        await page.log_in()
        foreign = {"Origin": "http://evil.example"}
        assert (await page.ask("PUT", "/api/queues/%2F/q", {}, headers=foreign))[0] == 403
        given = {"user": "guest", "password": "guest"}
        login = await page.ask("POST", "/api/qindex/session", given, headers=foreign)
        assert login[0] == 403

    with_page(test)


def test_a_session_ends_with_the_password_and_with_a_log_out():
    async def test(api, page):
        await page.log_in()
        api.server.node.users.change_password("guest", "new")
        assert (await page.ask("GET", "/api/qindex/overview"))[0] == 401
        assert (await page.log_in("guest", "guest"))[0] == 401
        assert (await page.log_in("guest", "new"))[0] == 200
        assert (await page.ask("DELETE", "/api/qindex/session"))[0] == 204
        assert (await page.ask("GET", "/api/qindex/overview"))[0] == 401

    with_page(test)


def test_wrong_passwords_soon_have_to_wait_and_who_is_in_stays_in():
    async def test(api, page):
        await page.log_in()
        async with PageClient(api) as other:
            for _ in range(FAILURES_MAX):
                assert (await other.log_in("guest", "wrong"))[0] == 401
            assert (await other.log_in("guest", "wrong"))[0] == 429
        assert (await page.own("overview"))["node"]

    with_page(test)


def test_who_monitors_sees_all_and_neither_reads_nor_changes_anything():
    async def test(api, page):
        users = api.server.node.users
        users.add("eye", "p")
        users.set_tags("eye", ["monitoring"])
        users.add("operator", "p")
        users.set_tags("operator", ["management"])
        users.set_permissions("/", "operator", Permission("", "", "^q$"))
        users.add("nobody", "p")
        await api.ask("PUT", "queues/%2F/q", {})
        assert (await page.log_in("nobody", "p"))[0] == 401
        await page.log_in("eye", "p")
        assert (await page.own("queues"))["found"] == 1
        assert (await page.own("queues/%2F/q"))["may"] == []
        assert (await page.ask("GET", "/api/qindex/queues/%2F/q/messages"))[0] == 401
        assert (await page.act("queues/%2F/q/messages/delete", {"state": "ready"}))[0] == 401
        assert (await page.act("queues/%2F/q/pause"))[0] == 401
        await page.log_in("operator", "p")
        assert (await page.own("queues/%2F/q"))["may"] == ["read"]
        assert (await page.own("queues/%2F/q/messages"))["items"] == []
        assert (await page.act("queues/%2F/q/pause"))[0] == 401

    with_page(test)


def test_files_are_public_and_allow_nothing_from_elsewhere():
    async def test(api, page):
        index = (await page.ask("GET", "/"))[1].decode()
        for name in ("", "main.js", "page.css"):
            path = re.search(rf"/page/\w+/{name}", index).group() if name else "/"
            url = f"http://127.0.0.1:{api.port}{path}"
            async with page.http.get(url) as response:
                assert response.status == 200
                policy = response.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
                assert "unsafe" not in policy
                tag = response.headers["ETag"]
                kept = response.headers["Cache-Control"]
                assert kept == ("public, max-age=31536000, immutable" if name else "no-cache")
            async with page.http.get(url, headers={"If-None-Match": tag}) as response:
                assert response.status == 304
            async with page.http.get(url, headers={"Host": "evil.example"}) as response:
                assert response.status == 403
        assert (await page.ask("GET", "/page/../door.py"))[0] in (401, 404)

    with_page(test)


def _imported(text):
    return set(re.findall(r'from "\./(\w+\.js)"', text))


def test_no_file_of_the_page_parses_markup_or_names_another_host():
    wrong = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|[{,] style:"
    )
    host = re.compile(r"(?:https?:)?//[a-z0-9]", re.IGNORECASE)
    found = {
        each.name: each.read_text() for each in (files("qindex.serve.http") / "files").iterdir()
    }
    modules = {name for name in found if name.endswith(".js")}
    named = {name: set(re.findall(r"[./page]/(\w+\.js)", text)) for name, text in found.items()}
    assert set().union(*named.values()) == modules
    # What every view needs is named by the HTML: it comes at once, not one after the other.
    needed = set().union(*(_imported(found[name]) for name in ("main.js", "views.js")))
    assert named["index.html"] == {"main.js", *needed}
    for name, text in found.items():
        assert not wrong.search(text), name
        elsewhere = [each for each in text.splitlines() if host.search(each)]
        assert all("http://www.w3.org/2000/svg" in each for each in elsewhere), (name, elsewhere)
        assert len(text.splitlines()) <= 400, name
