"""A crawl of Scrapy that survives kill -9: its pending requests in a qindex store.

::

    JOBDIR = "crawls/one"
    ADDONS = {"qindex.compat.scrapy.Addon": 0}

The add-on sets SCHEDULER_DISK_QUEUE, SCHEDULER_START_DISK_QUEUE and DUPEFILTER_CLASS to what is
here. Scrapy's own disk queues, and the list of those that are in use, are complete only after an
orderly end. Here a request is in the store before it counts as seen, and leaves it when Scrapy has
done with its response. After a kill the crawl goes on where it was, and what was being downloaded
or parsed comes again.

A crawl has one store, JOBDIR/requests.queue/.qindex, however many sites and priorities it has, and
one process.
"""

from __future__ import annotations

import json
import marshal
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from scrapy import signals
from scrapy.dupefilters import RFPDupeFilter
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.misc import load_object
from scrapy.utils.request import request_from_dict

from qindex.errors import AlreadyAcked
from qindex.message import Message
from qindex.opening import open as open_store
from qindex.private import make_folder, open_private
from qindex.queue import Queue

ACTIVE: Final = "active.json"  # Scrapy's: which queues to open at the start


class _Crawl:
    """What the queues of a crawl share: the store, what is in flight, the list of queues in use."""

    _running: ClassVar[dict[Any, _Crawl]] = {}

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self._folder = Path(crawler.settings["JOBDIR"], "requests.queue")
        make_folder(self._folder)
        self._store = open_store(self._folder / ".qindex")
        self._by_site = issubclass(
            load_object(crawler.settings["SCHEDULER_PRIORITY_QUEUE"]), DownloaderAwarePriorityQueue
        )
        self._active = self._read_active()
        self._in_flight: list[tuple[Any, Queue, Message]] = []
        crawler.signals.connect(self._end, signals.spider_closed, weak=False)

    @classmethod
    def of(cls, crawler: Any) -> _Crawl:
        if crawler not in cls._running:
            cls._running[crawler] = cls(crawler)
        return cls._running[crawler]

    def queue(self, key: str) -> Queue:
        return self._store.queue(Path(key).relative_to(self._folder).as_posix())

    # --- what is in flight ----------------------------------------------------------------------

    def watch(self, request: Any, queue: Queue, message: Message) -> None:
        """The engine has it in progress as soon as pop() returns."""
        self._in_flight.append((request, queue, message))

    def forget(self, message: Message) -> None:
        """pop() did not return it: it goes back to its place."""
        message._returned  # noqa: B018
        self._in_flight = [each for each in self._in_flight if each[2] is not message]

    def settle(self) -> None:
        """Ack what the engine has done with: response parsed, requests pushed, items processed."""
        running = self._crawler.engine._slot.inprogress  # nothing public tells
        for request, queue, message in self._in_flight:
            if request not in running:
                _ack(queue, message)
        self._in_flight = [each for each in self._in_flight if each[0] in running]

    def _end(self) -> None:
        """The engine has waited for what was in flight."""
        del self._running[self._crawler]
        for _, queue, message in self._in_flight:
            _ack(queue, message)
        for name in self._store.queues():
            if len(self._store.queue(name)) == 0:
                self._store.delete_queue(name)
        self._store.close()

    # --- the queues in use ----------------------------------------------------------------------

    def use(self, request: Any) -> None:
        """Say that there is a queue for this request, before it is there."""
        site = self._crawler.engine.downloader.get_slot_key(request) if self._by_site else ""
        place = (site, -request.priority)
        if place not in self._active:
            self._active.add(place)
            self._write_active()

    def _read_active(self) -> set[tuple[str, int]]:
        try:
            found = json.loads((self._folder / ACTIVE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return set()
        sites = found if self._by_site else {"": found}
        return {(site, priority) for site, priorities in sites.items() for priority in priorities}

    def _write_active(self) -> None:
        """Beside the old one, then in its place. Scrapy writes its own at an orderly end."""
        sites: dict[str, list[int]] = {}
        for site, priority in sorted(self._active):
            sites.setdefault(site, []).append(priority)
        draft = self._folder / f"{ACTIVE}.new"
        with open_private(draft, "w", encoding="utf-8") as file:
            json.dump(sites if self._by_site else sites[""], file)
        draft.replace(self._folder / ACTIVE)


def _ack(queue: Queue, message: Message) -> None:
    with suppress(AlreadyAcked):  # by a call that a signal handler ended behind it
        queue.ack(message)


# --- queues -------------------------------------------------------------------------------------


class _RequestQueue:
    """The requests of one site and one priority."""

    def __init__(self, crawler: Any, key: str) -> None:
        self._spider = crawler.spider
        self._crawl = _Crawl.of(crawler)
        self._queue = self._crawl.queue(key)

    @classmethod
    def from_crawler(cls, crawler: Any, key: str, *args: Any, **options: Any) -> _RequestQueue:
        return cls(crawler, key)

    def _take(self) -> Message | None:
        raise NotImplementedError

    def _dumps(self, fields: dict[str, Any]) -> bytes:
        raise NotImplementedError

    def _loads(self, data: bytes) -> dict[str, Any]:
        raise NotImplementedError

    def push(self, request: Any) -> None:
        """Add a request. ValueError: it has no form as bytes, Scrapy keeps it in memory."""
        data = self._dumps(request.to_dict(spider=self._spider))
        self._crawl.use(request)
        self._queue.publish(data)

    def pop(self) -> Any | None:
        """Take a request; None if there is none. It stays in the store until it is dealt with."""
        self._crawl.settle()
        message = self._take()
        if message is None:
            return None
        try:
            request = self._request(message)
            self._crawl.watch(request, self._queue, message)
        except BaseException:  # nobody has got it, so nothing may ack it
            self._crawl.forget(message)
            raise
        return request

    def peek(self) -> Any | None:
        """The request that pop() would take."""
        message = self._take()
        if message is None:
            return None
        self._queue.nack(message)  # back to its place
        return self._request(message)

    def _request(self, message: Message) -> Any:
        return request_from_dict(self._loads(message.body), spider=self._spider)

    def __len__(self) -> int:
        return self._queue.ready

    def close(self) -> None:
        """Nothing: requests may be in flight. The store is closed when the spider is."""


class _Fifo(_RequestQueue):
    def _take(self) -> Message | None:
        return self._queue.get()


class _Lifo(_RequestQueue):
    def _take(self) -> Message | None:
        return self._queue.get_newest()


class _Pickle(_RequestQueue):
    def _dumps(self, fields: dict[str, Any]) -> bytes:
        try:
            return pickle.dumps(fields, protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error

    def _loads(self, data: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = pickle.loads(data)  # noqa: S301 - as Scrapy's, of the same name
        return fields


class _Marshal(_RequestQueue):
    def _dumps(self, fields: dict[str, Any]) -> bytes:
        return marshal.dumps(fields)

    def _loads(self, data: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = marshal.loads(data)  # noqa: S302 - as Scrapy's, of the same name
        return fields


class PickleFifoDiskQueue(_Pickle, _Fifo):
    """scrapy.squeues.PickleFifoDiskQueue; and so on."""


class PickleLifoDiskQueue(_Pickle, _Lifo):
    pass


class MarshalFifoDiskQueue(_Marshal, _Fifo):
    pass


class MarshalLifoDiskQueue(_Marshal, _Lifo):
    pass


# --- beside them --------------------------------------------------------------------------------


class DupeFilter(RFPDupeFilter):  # type: ignore[misc]  # scrapy is an extra
    """Scrapy's own keeps what it has seen in a buffer; a kill takes up to some hundred from it.

    Here that reaches the kernel when the next request is looked at, so that this one is in the
    store before it counts as seen.
    """

    def request_seen(self, request: Any) -> bool:
        if self.file:
            self.file.flush()
        return bool(super().request_seen(request))


class Addon:
    """For Scrapy's ADDONS: sets what the settings leave open."""

    def update_settings(self, settings: Any) -> None:
        here = __name__
        settings.set("SCHEDULER_DISK_QUEUE", f"{here}.PickleLifoDiskQueue", "addon")
        settings.set("SCHEDULER_START_DISK_QUEUE", f"{here}.PickleFifoDiskQueue", "addon")
        settings.set("DUPEFILTER_CLASS", f"{here}.DupeFilter", "addon")
