"""The page beside ten thousand queues: how soon it is there, and what it costs the broker.

Processor time is asserted first: the clock's time says as much about what else the machine does.
"""

from __future__ import annotations

import re
import time

import pytest
from costs import hold_in_time
from page_tab import IN_BROWSER, Tab
from page_world import World, browser

pytestmark = IN_BROWSER
LOAD_MS_MAX = 300
SERVER_MS_MAX = 25  # of the server's processor time, for one load
BROKER_SHARE_MAX = 0.02


@pytest.fixture(scope="module")
def chrome():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def crowd(chrome, tmp_path_factory):
    """A broker with ten thousand queues, and a tab that shows them."""
    with World(tmp_path_factory.mktemp("crowd") / "data", queues=10_000) as world:
        context = chrome.new_context()
        context.add_init_script(NOTE_WHEN_SHOWN)
        tab = Tab(context.new_page(), world.url)
        tab.log_in()
        tab.go("queues?sort=ready&reverse=true", "thumbnails")
        yield tab, world
        context.close()
    assert tab.errors == []


# When the rows are painted, in milliseconds since the load began.
NOTE_WHEN_SHOWN = """
new MutationObserver((_, observer) => {
  if (document.querySelectorAll("tbody tr").length < 50) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.shownAt = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""


def _load(tab, world, session):
    """Load the page again: how long it took, its processor time (server and page), in ms."""

    def used():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    server, page = world.call(time.thread_time), used()
    tab.page.reload()
    while not (shown := tab.page.evaluate("window.shownAt")):
        time.sleep(0.02)
    server, page = world.call(time.thread_time) - server, used() - page
    return shown, server * 1000, page * 1000


def test_ten_thousand_queues_are_there_at_once(crowd):
    """The best of several loads counts: a test run has other work, too."""
    tab, world = crowd
    session = tab.page.context.new_cdp_session(tab.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    most = {"clock": LOAD_MS_MAX, "server": SERVER_MS_MAX, "both": LOAD_MS_MAX / 2}

    def load():
        clock, server, page = _load(tab, world, session)
        return {"clock": clock, "server": server, "both": server + page}

    hold_in_time(load, lambda ms: ms if any(ms[what] >= most[what] for what in most) else None)
    assert tab.page.locator("tbody tr").count() == 50
    tab.page.fill("input[type=search]", "device.0999")
    tab.page.get_by_text("10 of 10,0").wait_for()
    tab.page.fill("input[type=search]", "")
    tab.page.get_by_text(re.compile("10,0.. queues")).wait_for()


def test_a_page_that_is_loaded_again_asks_for_what_can_have_changed(crowd):
    tab, _ = crowd
    tab.page.reload()
    tab.page.get_by_text(re.compile("10,0.. queues")).wait_for()
    asked = tab.page.evaluate(
        "performance.getEntriesByType('resource').filter((each) => each.transferSize)"
        ".map((each) => new URL(each.name).pathname)"
    )
    assert sorted(asked) == ["/api/qindex/queues", "/api/qindex/session"]


def test_a_page_that_shows_ten_thousand_queues_costs_the_broker_little(crowd):
    """The share of a processor that the server needs with nothing to do but the page."""
    tab, world = crowd
    tab.go("queues?sort=ready&reverse=true", "thumbnails")
    before, began = world.call(time.thread_time), time.monotonic()
    tab.page.wait_for_timeout(10_000)
    used = world.call(time.thread_time) - before
    assert 0 < used / (time.monotonic() - began) < BROKER_SHARE_MAX
