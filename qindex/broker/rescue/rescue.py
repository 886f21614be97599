"""The steps of a rescue, each of which may be the last one before a kill.

The entry `rescue` of the node's catalog says how far it is:

- ``definitions``: a start throws away what is there, and begins anew;
- ``messages``: all definitions are in. Which queues are not in is in the catalogs of their virtual
  hosts; a start goes on with these. Only the same dead node can be served then;
- ``done``: the dead node is not needed any more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import qindex
from qindex.apart import refuse_inside
from qindex.broker.catalog import StoreCatalog
from qindex.broker.node import STORE_FORMAT, Node, first_entries
from qindex.broker.rescue.copying import Copied, Copying
from qindex.broker.rescue.definitions import node_entries, vhost_entries, vhosts_of
from qindex.broker.rescue.plan import Plan, RescueRefused, make_plan
from qindex.brokers.rabbitmq.directory import open_node
from qindex.brokers.rabbitmq.node import Node as DeadNode
from qindex.errors import NotAStore
from qindex.field_table import decode_table, encode_table
from qindex.words import many

log: Final = logging.getLogger("qindex.rescue")
KEY: Final = "rescue"


class Rescue:
    """A rescue of the directory `source` into the node. Made before anything is served.

    `call_soon` runs a function in the event loop's thread, from any other one. `members` are the
    directories of other nodes of its cluster. A message that had not expired at `at_time` (seconds
    since 1970; None: now) has the time left that it had then, from the first start on.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        without: Iterable[str],
        call_soon: Callable[..., object],
        *,
        members: Iterable[str | os.PathLike[str]] = (),
        at_time: float | None = None,
    ) -> None:
        self._source = Path(source).resolve()
        self._without = frozenset(without)
        self._call_soon = call_soon
        self._members = tuple(members)
        self._at_time = at_time
        self._dead: DeadNode | None = None
        self._plan: Plan | None = None
        self._copying: Copying | None = None
        self._node: Node | None = None
        self._began = time.monotonic()
        self.left = 0  # queues that are not in
        self.failed = 0  # of them: those that will not come
        self.messages_to_come = 0
        self.messages = 0  # that came since the start

    # --- before it is served -------------------------------------------------------------------

    def check_target(self, directory: str | os.PathLike[str] | None) -> None:
        """Raise an error if nothing can come of it, before anything is made.

        StoreNested: messages would go into the dead node's own directory. UnknownFormat: a rescue
        would begin, and there is no dead node.
        """
        if directory is None:
            return
        refuse_inside(directory, self._source)
        if not (Path(directory) / "node").exists():
            self._dead = open_node(self._source, self._members)

    def needs_source(self, node: Node) -> bool:
        """False if all is in. NotAStore if the node was made otherwise, or from another one."""
        state = state_of(node)
        if node.directory is None or (node.entries and not state):
            raise NotAStore(f"{node.directory} was served before: a rescue needs a new directory")
        if state and state["source"] != str(self._source):
            raise NotAStore(f"what is rescued here is {state['source']}, not {self._source}")
        return bool(state.get("state") != "done")

    def read(self) -> None:
        """Read the dead node's indexes and definitions, in any thread. RescueRefused, OSError."""
        self._dead = self._dead or open_node(self._source, self._members)
        self._plan = make_plan(self._dead, self._without)

    def begin(self, node: Node, environment: Mapping[str, str]) -> str:
        """Write the definitions, and begin to copy; return what to say about it."""
        self._node = node
        state = state_of(node).get("state")
        if state == "done":
            return f"{self._source} is in already"
        if state != "messages":
            self._define(node, environment)
        return self._copy(node)

    def _define(self, node: Node, environment: Mapping[str, str]) -> None:
        if node.directory is None or self._plan is None:
            raise RuntimeError("a rescue needs a directory, and read()")
        told: dict[str, Any] = {"state": "definitions", "source": str(self._source)}
        if self._at_time is not None:  # a start after a kill has to count from the same moment
            told["later_us"] = int((time.time() - self._at_time) * 1_000_000)
        old = {key: None for key in node.entries if key != KEY}
        node.change({KEY: encode_table(told), **old})
        for path in (node.directory / "vhosts").iterdir():
            shutil.rmtree(path)
        entries = node_entries(self._plan)
        if not self._plan.accounts.users:
            entries |= first_entries(environment, vhosts_of(self._plan))
        for vhost in vhosts_of(self._plan):
            number: Any = decode_table(entries[f"vhost/{vhost}"] or b"")["id"]
            with qindex.open(node.directory / "vhosts" / str(number), format=STORE_FORMAT) as store:
                StoreCatalog(store).apply(vhost_entries(self._plan, vhost))
        node.change({**entries, KEY: encode_table({**told, "state": "messages"})})

    def _copy(self, node: Node) -> str:
        plan = self._plan
        if plan is None:
            raise RuntimeError("read() comes first")
        places = []
        for name in node.vhosts:
            vhost = node.vhost(name)
            for queue in list(vhost.arriving):
                if queue in plan.queues.get(name, {}):
                    places.append((name, queue))
                    self.messages_to_come += vhost.arriving[queue].count
                elif queue in vhost.queues:  # --without names it since
                    vhost.leave_out(queue)
            vhost.on_wanted = self._wanted(name)
        self.left = len(places)
        for remark in [*plan.node.remarks, *plan.remarks]:
            log.warning("%s", remark)
        for word in sorted(plan.without):
            log.warning("the rescue goes without %r", word)
        later_us = int(state_of(node).get("later_us", 0))
        self._copying = Copying(plan, dict(node.stores), places, self._tell, later_us)
        self._copying.start()
        if not places:
            self._end()
        messages = many(self.messages_to_come, "message")
        return f"{many(len(places), 'queue')} of {self._source} with {messages} are coming in"

    def _wanted(self, vhost: str) -> Callable[[str], None]:
        def wanted(queue: str) -> None:
            if self._copying is not None:
                self._copying.want((vhost, queue))

        return wanted

    # --- while it is served --------------------------------------------------------------------

    def _tell(self, copied: Copied) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: the next start sees to it
            self._call_soon(self._came, copied)

    def _came(self, copied: Copied) -> None:
        node = self._node
        if node is None or not node.is_open:
            return
        vhost = node.vhost(copied.vhost)
        if copied.failed:
            self.failed += 1
            vhost.arriving[copied.name].failed = copied.failed
            log.error(
                "queue %r of virtual host %r is not served: %s",
                copied.name,
                copied.vhost,
                copied.failed,
            )
            return
        vhost.arrived(copied.name)
        self.left -= 1
        self.messages += copied.messages
        log.info(
            "queue %r of virtual host %r is in: %s",
            copied.name,
            copied.vhost,
            many(copied.messages, "message"),
        )
        if not self.left:
            self._end()

    def _end(self) -> None:
        if self._node is not None:
            self._node.change({KEY: encode_table({**state_of(self._node), "state": "done"})})
        log.info(
            "the rescue is done: %s in %.1f seconds; %s is not needed any more",
            many(self.messages, "message"),
            time.monotonic() - self._began,
            self._source,
        )
        self._call_soon(self.stop)

    def stop(self) -> None:
        """End the thread and close the dead node's files. A later start goes on."""
        if self._copying is not None:
            self._copying.stop()
            self._copying = None
        self._close()

    def _close(self) -> None:
        if self._dead is not None:
            self._dead.close()
            self._dead = None


def state_of(node: Node) -> dict[str, Any]:
    """What the node's catalog says about a rescue; empty: there was none."""
    entry = node.entries.get(KEY)
    return {} if entry is None else decode_table(entry)


def check_whole(node: Node) -> None:
    """Raise NotAStore if a rescue into the node is not done: it would be served half."""
    state = state_of(node)
    if state and state["state"] != "done":
        raise NotAStore(
            f"the rescue of {state['source']} is not done: start with --rescue "
            f"{state['source']} again, and it goes on"
        )


__all__ = ["Rescue", "RescueRefused", "check_whole", "state_of"]
