"""qindex.compat.scrapy's queues, without a crawl around them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alarms import ROUNDS, Alarm, interrupted

from qindex.testing import abandon

scrapy = pytest.importorskip("scrapy", reason="qindex[scrapy] is not installed")
compat = pytest.importorskip("qindex.compat.scrapy", exc_type=ImportError)
from scrapy import signals  # noqa: E402
from scrapy.utils.test import get_crawler  # noqa: E402

BY_SITE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
ONE_LIST = "scrapy.pqueues.ScrapyPriorityQueue"


def start(folder: Path, priority_queue: str = BY_SITE) -> Any:
    """A crawler with what the queues ask of its engine."""
    settings = {"JOBDIR": str(folder), "SCHEDULER_PRIORITY_QUEUE": priority_queue}
    crawler = get_crawler(scrapy.Spider, settings)
    crawler.spider = crawler._create_spider("spider")
    downloader = SimpleNamespace(get_slot_key=lambda request: request.url.split("/")[2])
    crawler.engine = SimpleNamespace(downloader=downloader, _slot=SimpleNamespace(inprogress=set()))
    return crawler


def kill(crawler: Any) -> None:
    """The store's files stay as they are, and nobody has them open."""
    abandon(compat._Crawl._running.pop(crawler)._store)


def end(crawler: Any) -> None:
    crawler.signals.send_catch_log(signals.spider_closed, spider=crawler.spider, reason="test")
    assert crawler not in compat._Crawl._running


def queue_of(crawler: Any, kind: str = "PickleFifoDiskQueue", name: str = "site/0") -> Any:
    key = f"{crawler.settings['JOBDIR']}/requests.queue/{name}"
    return getattr(compat, kind).from_crawler(crawler, key)


def pop(queue: Any) -> Any:
    """As the engine does: what comes is in progress."""
    request = queue.pop()
    queue._crawl._crawler.engine._slot.inprogress.add(request)
    return request


def request(number: int, priority: int = 0) -> Any:
    return scrapy.Request(f"http://site/{number}", meta={"number": number}, priority=priority)


def numbers(requests: list[Any]) -> list[int]:
    return [each.meta["number"] for each in requests]


@pytest.mark.parametrize("form", ["Pickle", "Marshal"])
@pytest.mark.parametrize(("order", "wanted"), [("Fifo", [0, 1, 2]), ("Lifo", [2, 1, 0])])
def test_requests_come_back_as_they_were(
    tmp_path: Path, form: str, order: str, wanted: list[int]
) -> None:
    crawler = start(tmp_path)
    queue = queue_of(crawler, f"{form}{order}DiskQueue")
    for number in range(3):
        queue.push(request(number))
    assert len(queue) == 3
    assert numbers([queue.peek(), queue.peek()]) == [wanted[0]] * 2
    assert len(queue) == 3
    assert numbers([pop(queue) for _ in range(3)]) == wanted
    assert (queue.pop(), queue.peek(), len(queue)) == (None, None, 0)
    end(crawler)


@pytest.mark.parametrize("form", ["Pickle", "Marshal"])
def test_what_has_no_form_as_bytes_is_refused(tmp_path: Path, form: str) -> None:
    crawler = start(tmp_path)
    queue = queue_of(crawler, f"{form}FifoDiskQueue")
    for each in (
        scrapy.Request("http://site/", meta={"a": lambda: 1}),
        scrapy.Request("http://site/", callback=lambda response: None),
    ):
        with pytest.raises(ValueError):
            queue.push(each)
    assert len(queue) == 0
    end(crawler)


def test_after_a_kill_what_was_in_progress_comes_again(tmp_path: Path) -> None:
    crawler = start(tmp_path)
    queue = queue_of(crawler)
    for number in range(6):
        queue.push(request(number))
    popped = [pop(queue) for _ in range(4)]
    queue.close()  # the scheduler closes a queue that it has emptied
    crawler.engine._slot.inprogress -= {popped[0], popped[2]}
    assert numbers([pop(queue)]) == [4]  # and the two are settled
    kill(crawler)
    again = start(tmp_path)
    queue = queue_of(again)
    assert numbers([pop(queue) for _ in range(len(queue))]) == [1, 3, 4, 5]
    end(again)


def test_after_an_orderly_end_only_what_waits_comes(tmp_path: Path) -> None:
    crawler = start(tmp_path)
    first, second = queue_of(crawler), queue_of(crawler, name="site/1s")
    for number in range(3):
        first.push(request(number))
    second.push(request(9))
    pop(first), pop(second)
    end(crawler)
    again = start(tmp_path)
    store = compat._Crawl.of(again)._store
    assert store.queues() == ["site/0"]  # the other one was empty
    queue = queue_of(again)
    assert numbers([pop(queue) for _ in range(len(queue))]) == [1, 2]
    end(again)


@pytest.mark.parametrize(
    ("priority_queue", "wanted"),
    [(BY_SITE, {"other": [0], "site": [-2, 0]}), (ONE_LIST, [-2, 0])],
)
def test_the_list_of_queues_is_there_before_the_requests(
    tmp_path: Path, priority_queue: str, wanted: object
) -> None:
    for number in range(2):  # the second crawl adds to what the first one said
        crawler = start(tmp_path, priority_queue)
        queue = queue_of(crawler)
        queue.push(request(1))
        if number:
            queue.push(request(2, priority=2))
            queue.push(scrapy.Request("http://other/"))
        kill(crawler)
    found = json.loads((tmp_path / "requests.queue" / "active.json").read_text())
    if isinstance(wanted, list):
        assert sorted(found) == wanted
    else:
        assert {site: sorted(each) for site, each in found.items()} == wanted


def test_a_request_counts_as_seen_when_the_next_one_is_looked_at(tmp_path: Path) -> None:
    seen = compat.DupeFilter(str(tmp_path), fingerprinter=get_crawler().request_fingerprinter)
    for number in range(3):
        assert not seen.request_seen(request(number))
    other = compat.DupeFilter(str(tmp_path), fingerprinter=get_crawler().request_fingerprinter)
    assert [other.request_seen(request(number)) for number in range(3)] == [True, True, False]
    seen.close("test")
    other.close("test")


# An alarm in a callback of Scrapy's weak references is told, and raised nowhere.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("order", ["Fifo", "Lifo"])
def test_a_pop_that_a_signal_handler_ends_gives_or_keeps(tmp_path: Path, order: str) -> None:
    count = 2 * ROUNDS + 100
    crawler = start(tmp_path)
    queue = queue_of(crawler, f"Marshal{order}DiskQueue")
    for number in range(count):
        queue.push(request(number))
    given: dict[int, None] = {}

    def seen(popped: Any) -> None:  # what is not in progress is dealt with
        given[popped.meta["number"]] = None

    assert interrupted(queue.pop, seen, 5) > ROUNDS / 20
    while (popped := queue.pop()) is not None:
        seen(popped)
    wanted = range(count) if order == "Fifo" else reversed(range(count))
    assert list(given) == list(wanted)
    end(crawler)


def test_an_ack_that_a_signal_handler_ends_is_made_once(tmp_path: Path) -> None:
    crawler = start(tmp_path)
    queue = queue_of(crawler)
    for number in range(4):
        queue.push(request(number))
    assert numbers([queue.pop()]) == [0]
    store_queue = queue._crawl._in_flight[0][1]
    ack = store_queue.ack

    def ring(message: Any) -> None:
        ack(message)
        raise Alarm

    for ends in (queue.pop, lambda: end(crawler)):
        store_queue.ack = ring
        with pytest.raises(Alarm):
            queue.pop()
        store_queue.ack = ack
        if ends == queue.pop:
            assert numbers([queue.pop()]) == [1]
        else:
            end(crawler)


def test_the_addon_leaves_what_the_settings_say(tmp_path: Path) -> None:
    addons = {"qindex.compat.scrapy.Addon": 0}
    own = get_crawler(settings_dict={"ADDONS": addons, "SCHEDULER_START_DISK_QUEUE": None})
    assert own.settings["SCHEDULER_DISK_QUEUE"] == "qindex.compat.scrapy.PickleLifoDiskQueue"
    assert own.settings["DUPEFILTER_CLASS"] == "qindex.compat.scrapy.DupeFilter"
    assert own.settings["SCHEDULER_START_DISK_QUEUE"] is None
