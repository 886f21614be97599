"""A crawl of Scrapy with qindex.compat.scrapy: killed again and again, it visits every page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import qindex

pytest.importorskip("scrapy", reason="qindex[scrapy] is not installed")
pytestmark = pytest.mark.slow

PAGES = 150
CONCURRENT = 6
ENDS_AT = [20, 45, 90]  # requests; the one at which a crawl is killed is never answered
SHUT_DOWN = 1
OURS = {"ADDONS": {"qindex.compat.scrapy.Addon": 0}}
CRAWL = f"""
import json, os, sys
import scrapy
from scrapy.crawler import CrawlerProcess

url, settings, done = sys.argv[1:]
told = os.open(done, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Site(scrapy.Spider):
    name = "site"

    async def start(self):
        yield scrapy.Request(url)  # unlike start_urls, it counts as seen

    def parse(self, response):
        for number, link in enumerate(response.css("a::attr(href)").getall()):
            yield response.follow(link, priority=number)
        os.write(told, response.url.rpartition("/")[2].encode() + b"\\n")

process = CrawlerProcess({{
    "CONCURRENT_REQUESTS": {CONCURRENT}, "CONCURRENT_REQUESTS_PER_DOMAIN": {CONCURRENT},
    "DOWNLOAD_DELAY": 0, "LOG_LEVEL": "ERROR", "RETRY_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False, **json.loads(settings),
}})
crawler = process.create_crawler(Site)
process.crawl(crawler)
process.start()
sys.exit(crawler.stats.get_value("finish_reason") != "finished")
"""


class Site(ThreadingHTTPServer):
    """A tree of pages on two sites (two names of this machine), each with links to the root too."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.lock = threading.Lock()
        self.served: list[int] = []
        self.end_at = 0
        self.end_with = signal.SIGKILL
        self.crawler: subprocess.Popen[bytes] | None = None

    def handle_error(self, *arguments: object) -> None:
        """A crawler that was killed takes no answer."""

    def url(self, page: int) -> str:
        return f"http://{['127.0.0.1', 'localhost'][page % 2]}:{self.server_port}/{page}"

    def text(self, page: int) -> str:
        linked = [0, *(child for child in (2 * page + 1, 2 * page + 2) if child < PAGES)]
        return "".join(f'<a href="{self.url(child)}">{child}</a>' for child in linked)


class Page(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        page = int(self.path[1:])
        with self.server.lock:
            self.server.served.append(page)
            ending = len(self.server.served) == self.server.end_at
        if ending:
            assert self.server.crawler is not None
            self.server.crawler.send_signal(self.server.end_with)
            if self.server.end_with == signal.SIGKILL:
                return
        data = self.server.text(page).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Be silent."""


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def crawl(site: Site, folder: Path, settings: dict[str, object], end_at: int = 0) -> int:
    """Start the crawl, or go on with it, until it is over or the site gets that many requests."""
    site.end_at = end_at
    with site.lock:
        site.crawler = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CRAWL,
                site.url(0),
                json.dumps({"JOBDIR": str(folder / "job"), **settings}),
                str(folder / "done"),
            ]
        )
    return site.crawler.wait(timeout=120)


def done(folder: Path) -> list[int]:
    """The pages whose links were all taken, in that order."""
    return [int(line) for line in (folder / "done").read_text().split()]


def test_a_crawl_goes_on_after_each_kill(site: Site, tmp_path: Path) -> None:
    for number in ENDS_AT:
        assert crawl(site, tmp_path, OURS, number) == -signal.SIGKILL
    assert crawl(site, tmp_path, OURS) == 0
    assert set(done(tmp_path)) == set(range(PAGES))
    # What comes again is what was in flight, or done with since the last request was sent.
    assert len(done(tmp_path)) <= PAGES + len(ENDS_AT) * 2 * CONCURRENT
    with qindex.open(tmp_path / "job" / "requests.queue" / ".qindex") as store:
        assert store.queues() == []


def test_a_crawl_that_was_asked_to_stop_does_nothing_twice(site: Site, tmp_path: Path) -> None:
    site.end_with = signal.SIGINT
    for number in ENDS_AT:
        assert crawl(site, tmp_path, OURS, number) == SHUT_DOWN
    assert crawl(site, tmp_path, OURS) == 0
    assert sorted(done(tmp_path)) == list(range(PAGES))
    assert sorted(site.served) == list(range(PAGES))


def test_a_crawl_with_scrapys_own_queues_does_not_go_on_after_a_kill(
    site: Site, tmp_path: Path
) -> None:
    # With its own filter, too, it would begin anew as long as that has written nothing.
    own_queues = {"DUPEFILTER_CLASS": "qindex.compat.scrapy.DupeFilter"}
    assert crawl(site, tmp_path, own_queues, ENDS_AT[0]) == -signal.SIGKILL
    assert crawl(site, tmp_path, own_queues) == 0
    assert len(set(done(tmp_path))) < PAGES // 2
