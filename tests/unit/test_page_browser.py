"""The page in a real browser: every view and action, hostile texts, 10,000 queues, narrow, dark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import pika
import pytest
from page_tab import IN_BROWSER, Tab
from page_world import HOSTILE_BODY, HOSTILE_NAME, World, browser

pytestmark = IN_BROWSER
VIEWS = {
    "overview": "Messages in a second",
    "queues": "invoices",
    "queue/%2F/invoices": "bound to",
    "queue/%2F/invoices?state=ready&in=property&find=app_id%3Dx": "No message has it",
    "queue/%2F/reminders?state=delayed": "ready now",
    "dead": "Send back",
    "delayed": "1 hour to 6 hours",
    "clients": "billing worker",
    "clients/channels": "oldest unacked",
    "clients/consumers": "mail.outgoing",
    "gmq": "Ready queues",
    "gmq/job/job8": "picture 8",
    "disk": "message files",
    "health": "Nothing is damaged",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("page") / "data") as found:
        yield found


@pytest.fixture(scope="module")
def chrome():
    with browser() as found:
        yield found


@pytest.fixture
def tab(chrome, world, request):
    options = getattr(request, "param", {})
    context = chrome.new_context(**{"viewport": {"width": 1200, "height": 760}, **options})
    found = Tab(context.new_page(), world.url)
    found.log_in()
    yield found
    context.close()
    assert (found.errors, found.elsewhere) == ([], [])


SIZES = [
    pytest.param({"viewport": {"width": 1200, "height": 760}}, id="wide"),
    pytest.param({"viewport": {"width": 360, "height": 740}}, id="narrow"),
    pytest.param({"color_scheme": "dark"}, id="dark"),
]


@pytest.mark.parametrize("tab", SIZES, indirect=True)
def test_every_view_shows_what_is_there_and_fits(tab):
    for path, text in VIEWS.items():
        tab.go(path, text)
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width <= tab.page.viewport_size["width"], path


def test_hostile_names_headers_and_bodies_stay_text(tab):
    title = tab.page.title()
    tab.go("queues", "onerror")
    path = f"queue/%2F/{quote(HOSTILE_NAME, safe='')}"
    tab.go(path, "<script>")
    tab.go(f"{path}/0", "</dd><script>")  # the list before it shows the body, too
    tab.page.get_by_text(HOSTILE_BODY.decode()).first.wait_for()
    assert tab.page.get_by_text("</dd><script>").count() == 1
    assert tab.page.get_by_text("\\u202egpj.exe").count() >= 1
    assert "\u202e" not in tab.page.content()
    assert tab.page.locator("main img, main script, main b:text('bold')").count() == 0
    for way in ("hex", "text"):
        tab.page.get_by_role("button", name=way, exact=True).click()
    assert tab.page.title() != title
    assert tab.page.title() not in ("name", "body", "header")


def test_a_long_name_and_a_broken_address_leave_the_page_whole(tab, world):
    name = "x" * 255
    tab.may_miss = True
    world.channel.queue_declare(name, durable=True)
    world.channel.basic_publish("", name, b"body", pika.BasicProperties(delivery_mode=2))
    world.connection.process_data_events(0.2)
    for path, text in ((f"queue/%2F/{name}/0", "body"), (f"gmq/job/{name}", "no live job")):
        tab.go(path, text)
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width <= tab.page.viewport_size["width"], path
    tab.go("queue/%2F/%", "That cannot be shown")
    assert "URI malformed" not in tab.errors


def test_messages_are_published_moved_delayed_deleted_and_purged(tab, world):
    invoices = world.ready("invoices")
    tab.go("queue/%2F/invoices", "bound to")
    tab.confirm("Publish", payload='{"a": 1}', headers='{"n": 1}')
    assert world.ready("invoices") == invoices + 1
    tab.page.locator("tbody input[type=checkbox]").first.check()
    tab.confirm("move", to="reminders")
    assert (world.ready("invoices"), world.ready("reminders")) == (invoices, 1)
    tab.page.locator("tbody input[type=checkbox]").first.check()
    tab.confirm("delay", seconds="600")
    assert world.ready("invoices") == invoices - 1
    tab.go("queue/%2F/invoices?state=delayed", "due")
    tab.page.locator("tbody a").first.wait_for()
    tab.confirm("ready now")
    time.sleep(0.1)
    assert world.ready("invoices") == invoices
    tab.go("queue/%2F/reminders", "bound to")
    tab.page.locator("tbody input[type=checkbox]").first.check()
    tab.confirm("delete")
    assert world.ready("reminders") == 0
    tab.go("queue/%2F/presence", "bound to")
    tab.confirm("Purge")
    assert world.ready("presence") == 0


def test_messages_are_searched_for_and_only_what_is_chosen_is_changed(tab, world):
    world.channel.queue_declare("archive", durable=True)
    for body, count, headers in ((b"needle", 3, {"kind": "<b>"}), (b"hay", 4, None)):
        for _ in range(count):
            properties = pika.BasicProperties(headers=headers, delivery_mode=2)
            world.channel.basic_publish("", "archive", body, properties)
    world.connection.process_data_events(0.2)
    tab.go("queue/%2F/archive", "bound to")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("hay")
    tab.page.keyboard.press("Enter")
    tab.page.get_by_text("choose messages:").wait_for()
    assert tab.page.locator("tbody tr").count() == 4
    assert tab.page.get_by_role("button", name="delete", exact=True).is_disabled()
    tab.page.locator("tbody input[type=checkbox]").first.check()
    tab.confirm("delete")
    assert world.ready("archive") == 6
    tab.page.locator("form select").select_option("header")
    tab.page.locator("input[type=search]").fill("kind=<b>")
    tab.page.keyboard.press("Enter")
    tab.page.get_by_text("needle").first.wait_for()
    assert tab.page.locator("tbody tr").count() == 3
    tab.go("queue/%2F/archive?state=ready&in=header&find=kind%3Dother", "No message has it.")


def test_a_message_shows_what_the_files_tell_of_it(tab):
    tab.go("queue/%2F/invoices", "bound to")
    tab.page.locator("tbody a").first.click()
    tab.page.get_by_role("button", name="Show what the files tell of it").click()
    tab.page.get_by_text("live, ready").wait_for()
    assert tab.page.locator("caption", has_text="Records about the message").count() == 1


def test_a_wrong_target_is_said_in_the_dialog_and_escape_changes_nothing(tab, world):
    before = world.ready("thumbnails")
    tab.go("queue/%2F/thumbnails", "bound to")
    tab.page.locator("tbody a").first.wait_for()
    tab.page.get_by_role("button", name="move", exact=True).click()
    tab.page.locator("dialog [name=to]").fill("nowhere")
    tab.page.keyboard.press("Enter")
    tab.page.get_by_text("no queue 'nowhere'").wait_for()
    tab.page.keyboard.press("Escape")
    tab.page.locator("dialog").wait_for(state="detached")
    assert world.ready("thumbnails") == before
    tab.errors.clear()  # the browser notes the refusal


def test_a_queue_is_paused_resumed_and_deleted_by_its_name(tab, world):
    world.channel.queue_declare("short.lived", durable=True)
    tab.go("queue/%2F/short.lived", "bound to")
    tab.confirm("Pause")
    assert world.call(lambda: world.vhost.queues["short.lived"].on_hold)
    tab.confirm("Resume")
    assert not world.call(lambda: world.vhost.queues["short.lived"].on_hold)
    tab.page.get_by_role("button", name="Delete", exact=True).click()
    tab.page.locator("dialog input").fill("short")
    tab.page.locator("dialog button[type=submit]").click()
    tab.page.get_by_text("That is not the name.").wait_for()
    tab.page.locator("dialog input").fill("short.lived")
    tab.page.locator("dialog button[type=submit]").click()
    tab.page.get_by_role("heading", name="Queues").wait_for()
    assert "short.lived" not in world.call(lambda: list(world.vhost.queues))


@pytest.mark.parametrize("name", [".", "..", "~.", "%2E", "a/../b"])
def test_a_queue_whose_name_means_something_in_a_path(tab, world, name):
    """A browser takes "." and ".." out of the path of a request."""
    world.channel.queue_declare(name, durable=True)
    tab.go("queues", "invoices")
    link = f"a[href$='/{quote(name, safe='~')}']"
    tab.page.fill("input[type=search]", name)
    tab.page.locator(link).click()
    tab.page.get_by_text("bound to").wait_for()
    tab.confirm("Publish", payload="dots", headers="{}")
    assert world.ready(name) == 1
    tab.page.locator("tbody a").first.click()
    tab.page.get_by_text("dots").first.wait_for()
    tab.go(f"queue/%2F/{quote(name, safe='')}", "bound to")
    tab.confirm("Purge")
    assert world.ready(name) == 0
    tab.page.get_by_role("button", name="Delete", exact=True).click()
    tab.page.locator("dialog input").fill(name)
    tab.page.locator("dialog button[type=submit]").click()
    tab.page.get_by_role("heading", name="Queues").wait_for()
    assert name not in world.call(lambda: list(world.vhost.queues))


def test_dead_letters_go_back_to_where_they_died(tab, world):
    before = world.ready("failed"), world.ready("orders")
    tab.go("dead", "Send back")
    tab.confirm("Send back what was rejected in orders")
    assert (world.ready("failed"), world.ready("orders")) == (before[0] - 12, before[1] + 12)


def test_a_connection_is_closed(tab, world):
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", world.amqp, heartbeat=0)
    other = pika.BlockingConnection(parameters)
    tab.go("clients", "billing worker")
    tab.page.locator("tr", has_not_text="billing worker").get_by_text("Close").click()
    tab.page.locator("dialog button[type=submit]").click()
    tab.page.get_by_text("It is closed.").wait_for()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        other.process_data_events(10)


def test_who_monitors_is_offered_nothing_that_changes_something(chrome, world):
    context = chrome.new_context()
    tab = Tab(context.new_page(), world.url)
    tab.log_in("eye", "eye")
    tab.go("queue/%2F/invoices", "refused")
    buttons = tab.page.locator("main button").all_inner_texts()
    assert buttons == []
    context.close()


def test_the_page_goes_by_keyboard(tab):
    tab.go("queues", "invoices")
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.type") == "search"
    tab.page.keyboard.type("invo")
    tab.page.get_by_text("1 of ").wait_for()
    link = "document.activeElement.getAttribute('href')"
    for _ in range(20):
        tab.page.keyboard.press("Tab")
        if (tab.page.evaluate(link) or "").endswith("/invoices"):
            break
    tab.page.wait_for_timeout(2500)  # an update leaves the focus where it is
    tab.page.keyboard.press("Enter")
    tab.page.get_by_text("bound to").wait_for()
    tab.page.keyboard.press(".")
    assert tab.page.locator(".live").inner_text() == "Paused"


def test_wrong_passwords_are_said(chrome, world):
    context = chrome.new_context()
    page = context.new_page()
    page.goto(world.url)
    page.fill("input[name=user]", "guest")
    page.fill("input[name=password]", "wrong")
    page.keyboard.press("Enter")
    page.get_by_text("User or password is wrong.").wait_for()
    context.close()


def test_who_logs_out_is_out(tab):
    tab.page.get_by_role("button", name="Log out").click()
    tab.page.get_by_role("heading", name="Log in").wait_for()
    tab.page.reload()
    tab.page.get_by_role("heading", name="Log in").wait_for()


def _axe(folder: Path) -> str | None:
    """axe-core's source: that of AXE_CORE, or from npm."""
    given = os.environ.get("AXE_CORE")
    if given:
        return Path(given).read_text()
    npm = shutil.which("npm")
    if npm is None:
        return None
    command = [npm, "install", "--silent", "--no-audit", "--prefix", str(folder), "axe-core"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return None
    source = folder / "node_modules/axe-core/axe.min.js"
    return source.read_text() if done.returncode == 0 and source.exists() else None


@pytest.mark.parametrize("tab", SIZES, indirect=True)
def test_axe_finds_nothing_serious(tab, tmp_path_factory):
    source = _axe(tmp_path_factory.mktemp("axe"))
    if source is None:
        pytest.skip("axe-core cannot be had: npm is missing, or its registry")
    found = []
    for path, text in VIEWS.items():
        tab.go(path, text)
        tab.page.evaluate(source)
        report = tab.page.evaluate("axe.run()")
        found += [
            (path, each["impact"], each["id"], each["nodes"][0]["html"][:200])
            for each in report["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    assert found == [], json.dumps(found, indent=1)
