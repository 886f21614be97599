"""A node: users, and virtual hosts that are stores of their own.

::

    DIR/node            a store: users with the digests of their passwords, names of virtual hosts
    DIR/vhosts/<id>     a store for each virtual host, opened when the first client asks for it
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import qindex
from qindex.broker.catalog import Catalog, MemoryCatalog, StoreCatalog
from qindex.broker.durable import GroupCommit, Runner
from qindex.broker.errors import NotAllowed
from qindex.broker.queues import Scheduler
from qindex.broker.vhost import VHost
from qindex.errors import NotAStore
from qindex.field_table import decode_table, encode_table

GUEST: Final = "guest"
USER: Final = "QINDEX_DEFAULT_USER"
PASSWORD: Final = "QINDEX_DEFAULT_PASS"  # noqa: S105 - the name of a variable
VHOST: Final = "QINDEX_DEFAULT_VHOST"
STORE_FORMAT: Final = 2  # one sync for many queues


class Node:
    """Users and virtual hosts. For the thread of one event loop.

    `directory` is None for a node in memory. A new node gets one user and one virtual host: guest,
    whose password is guest and who can only connect from this machine, and "/"; or those that
    `environment` names. Raises NotAStore if the directory holds something else, and StoreLocked if
    it is served already.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        scheduler: Scheduler,
        run: Runner,
        environment: Mapping[str, str],
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self.on_failure: Callable[[BaseException], None] | None = None
        self._scheduler = scheduler
        self._run = run
        self._stores: dict[str, qindex.Store] = {}
        self._open: dict[str, VHost] = {}
        self._store: qindex.Store | None = None
        catalog: Catalog = MemoryCatalog()
        if self.directory is not None:
            self._check_directory(self.directory)
            (self.directory / "vhosts").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store = qindex.open(self.directory / "node", format=STORE_FORMAT)
            catalog = StoreCatalog(self._store)
        self._catalog = catalog
        self._entries = dict(catalog.items())
        if not self._entries:
            self._begin(environment)

    @staticmethod
    def _check_directory(directory: Path) -> None:
        if (directory / "store.meta").exists():
            raise NotAStore(
                f"{str(directory)!r} is a store that programs open themselves, with qindex.open(): "
                "name a new directory, or one that was served before"
            )
        others = [path.name for path in directory.glob("*") if path.name != "lost+found"]
        if others and not {"node", "vhosts"} & set(others):
            raise NotAStore(
                f"{str(directory)!r} holds other files ({min(others)!r}): name a new or empty "
                "directory, or one that was served before"
            )

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._change(
            {
                **self._user_entry(environment.get(USER, GUEST), environment.get(PASSWORD, GUEST)),
                f"vhost/{environment.get(VHOST, '/')}": encode_table({"id": "0"}),
            }
        )

    def _change(self, changes: dict[str, bytes | None]) -> None:
        self._catalog.apply(changes)
        self._entries = dict(self._catalog.items())

    # --- users ---------------------------------------------------------------------------------

    @staticmethod
    def _user_entry(name: str, password: str) -> dict[str, bytes | None]:
        salt = secrets.token_bytes(16)
        digest = _digest(salt, password)
        return {f"user/{name}": encode_table({"salt": salt, "sha256": digest})}

    def may_enter(self, name: str, password: str, *, is_local: bool) -> bool:
        """True if the password is right; guest has to come from this machine."""
        entry = self._entries.get(f"user/{name}")
        if entry is None or (name == GUEST and not is_local):
            return False
        found: dict[str, Any] = decode_table(entry)
        return hmac.compare_digest(_digest(found["salt"], password), found["sha256"])

    # --- virtual hosts -------------------------------------------------------------------------

    @property
    def vhosts(self) -> list[str]:
        """The names of the virtual hosts."""
        keys = (key.partition("/") for key in self._entries)
        return sorted(name for kind, _, name in keys if kind == "vhost")

    def vhost(self, name: str) -> VHost:
        """The virtual host of this name, opened if it was not yet. NotAllowed: there is none.

        Cost of opening: as qindex.open(), and a small file for each queue.
        """
        found = self._open.get(name)
        if found is not None:
            return found
        entry = self._entries.get(f"vhost/{name}")
        if entry is None:
            raise NotAllowed(f"vhost {name} not found")
        if self.directory is None:
            found = VHost(name, self._scheduler)
        else:
            number: Any = decode_table(entry)["id"]
            path = self.directory / "vhosts" / number
            store = qindex.open(path, format=STORE_FORMAT, expire=False)
            self._stores[name] = store
            commit = GroupCommit(store.sync, self._run)
            commit.on_failure = self._failed
            found = VHost(name, self._scheduler, store, commit)
        self._open[name] = found
        return found

    @property
    def open_vhosts(self) -> list[VHost]:
        """Those that somebody has asked for."""
        return list(self._open.values())

    def _failed(self, error: BaseException) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def close(self) -> None:
        """Stop all virtual hosts and close their stores. Raises StoreFailed, as Store.close()."""
        for vhost in self._open.values():
            if vhost.commit is not None:
                vhost.commit.close()
            vhost.close()
        stores = [*self._stores.values(), self._store]
        failed: BaseException | None = None
        for store in stores:
            try:
                if store is not None:
                    store.close()
            except qindex.StoreFailed as error:
                failed = error
        self._open.clear()
        if failed is not None:
            raise failed


def _digest(salt: bytes, password: str) -> bytes:
    raw = password.encode("utf-8", "surrogateescape")
    return hashlib.pbkdf2_hmac("sha256", raw, salt, 10_000)
