"""What belongs to a queue beside its messages: its settings, and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

from qindex._core import lib
from qindex.arguments import parts_of
from qindex.data import Data, change_values, read_value
from qindex.errors import (
    FormatError,
    QindexError,
    QueueMissing,
    ReadOnly,
    StoreClosed,
    StoreFailed,
    raise_error,
)
from qindex.handle import directory_of
from qindex.rules import Changes, Settings, from_stored
from qindex.wakes import forget, note

if TYPE_CHECKING:
    from qindex.store import Store

SETTINGS: Final = b"\0settings"  # the key, in the queue's own mapping


def check_rules(store: Store, name: str, settings: Settings) -> None:
    """Can the queue of this name have them? ValueError, QueueMissing or FormatError: no."""
    to = settings._dead_to
    if to is None:
        return
    if not store._stores_settings:
        raise FormatError(
            "dead letters move to another queue only in a store of format 2, this one has "
            "format 1: dead_letters=True keeps them (or upgrade it: qindex upgrade)"
        )
    if to == name:
        raise ValueError(f"dead letters cannot move from {name!r} to itself")
    if to not in store:
        raise QueueMissing(f"there is no queue {to!r} in this store: dead letters stay")


@parts_of("Queue")
class Configured:
    """For the class of a queue."""

    name: str
    _store: Store
    _handle: Any
    _has_rules: bool
    _has_dead_to = False
    _is_fresh = False  # made by a transaction that is not committed, and nobody else has asked
    _named: Settings  # by this process, in a store of format 1

    @property
    def data(self) -> Data:
        """A small durable mapping of bytes to bytes that belongs to the queue."""
        return Data(self._store, self._handle)

    @property
    def settings(self) -> Settings:
        """What the queue does by itself: see configure(), and Store.queue() for what each means.

        In a store of format 1, which does not store them: what this process has named.
        """
        if not self._store._stores_settings:
            return self._named
        stored = read_value(self._store, self._handle, SETTINGS)
        return from_stored(stored, self.name) if stored is not None else Settings()

    def configure(self, **changes: Unpack[Changes]) -> Settings:
        """Change what is named, durably; None takes a setting back. Return all of them.

        The names are those of Store.queue(): ttl, max_messages, max_bytes, overflow,
        max_deliveries, dead_letters, lease, expires. All changes of a call are made, or none, after
        any crash. They hold for what comes, and for whoever opens the store later.

        Raises FormatError in a store of format 1, which does not store settings; ReadOnly;
        TypeError and ValueError, as Store.queue(). Nothing was changed then.

        Cost: a sync, if anything is changed.
        """
        if not self._store._stores_settings:
            raise FormatError(
                "the store has format 1, which does not store settings: name all of them in "
                "store.queue() each time, or upgrade the store (qindex upgrade)"
            )
        with self._store._lock:
            if self._store.read_only:
                raise ReadOnly("the store was opened with read_only=True")
            return self._change_settings(changes)

    def _change_settings(self, changes: Changes) -> Settings:
        """The caller has the store's lock. A reader's changes hold for itself."""
        before = self.settings
        settings = before._changed(changes)
        if "dead_letters" in changes or settings._dead_to != before._dead_to:
            check_rules(self._store, self.name, settings)
        if settings != before and not self._store.read_only:
            if settings.expires is not None:
                self._store._watch.note(self.name)
            if settings._dead_to is not None:
                note(self._store, self.name)
            stored = {SETTINGS: settings._to_stored()}
            change_values(self._store, self._handle, stored, confirm=True)
            if settings.expires is None and before.expires is not None:
                self._store._watch.forget(self.name)
            if settings._dead_to is None and before._dead_to is not None:
                forget(self._store, self.name)
        if changes or self._store._expire:
            self._set_rules(settings)
        return settings

    def _take_rules(self, changes: Changes) -> None:
        """What Store.queue() was given. The caller has the store's lock."""
        if self._store._stores_settings:
            self._change_settings(changes)
        else:
            named = Settings()._changed(changes)
            check_rules(self._store, self.name, named)
            self._set_rules(named)
            self._named = named

    def _set_rules(self, settings: Settings) -> None:
        """And those of the queues that its dead letters lead to: their limits hold for what moves.

        One that cannot be opened does not keep this one closed: dead letters stay then, and a
        finding says so.
        """
        self._set_limits(settings)
        chain = {self.name: (self, settings._dead_to)}
        to = settings._dead_to
        while to is not None and to not in chain and self._store._expire:
            try:
                target = self._store._find_queue(to, create=False)
                if target._has_rules:
                    break
                named = target.settings
                target._set_limits(named)
            except (StoreClosed, StoreFailed):
                raise
            except QindexError:
                break
            chain[to] = (target, named._dead_to)
            to = named._dead_to
        for queue, dead_to in chain.values():
            queue._set_dead_to(dead_to)
            queue._has_rules = True

    def _set_limits(self, settings: Settings) -> None:
        self._store._watch.know(self.name, settings.expires)
        code = lib.qi_queue_set_rules(self._handle, settings._to_core())
        if code < 0:
            raise_error(code)

    def _set_dead_to(self, to: str | None) -> None:
        if to is not None or self._has_dead_to:
            name = (to or "").encode("utf-8", "surrogatepass")
            folder = directory_of(to or "")
            code = lib.qi_queue_set_dead_letters(self._handle, name, len(name), folder)
            if code < 0:
                raise_error(code)
            self._has_dead_to = to is not None
