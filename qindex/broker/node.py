"""A node: users, and virtual hosts that are stores of their own.

::

    DIR/node            a store: users with the digests of their passwords, names of virtual hosts
    DIR/vhosts/<id>     a store for each virtual host, opened when the first client asks for it
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import qindex
from qindex.broker.catalog import Catalog, MemoryCatalog, StoreCatalog
from qindex.broker.durable import GroupCommit, Syncer
from qindex.broker.errors import Invalid, NotAllowed
from qindex.broker.timers import Scheduler
from qindex.broker.users import EVERYTHING, GUEST, Users
from qindex.broker.vhost import VHost
from qindex.errors import NotAStore
from qindex.field_table import decode_table, encode_table
from qindex.handle import file_in

USER: Final = "QINDEX_DEFAULT_USER"
PASSWORD: Final = "QINDEX_DEFAULT_PASS"  # noqa: S105 - the name of a variable
VHOST: Final = "QINDEX_DEFAULT_VHOST"
STORE_FORMAT: Final = 2  # one sync for many queues


class Node:
    """Users and virtual hosts. For the thread of one event loop.

    `directory` is None for a node in memory. A new node gets one user and one virtual host: guest,
    whose password is guest and who can only connect from this machine, and "/"; or those that
    `environment` names. With `is_rescue` a new node stays empty, and a rescue fills it. Raises
    NotAStore if the directory holds something else, StoreLocked if it is served already, and
    Invalid if `environment` names a new node's user, password or virtual host by an empty text.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        scheduler: Scheduler,
        syncer_of: Callable[[qindex.Store], Syncer],
        environment: Mapping[str, str],
        *,
        is_rescue: bool = False,
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self.on_failure: Callable[[BaseException], None] | None = None
        self._scheduler = scheduler
        self._syncer_of = syncer_of
        self.stores: dict[str, qindex.Store] = {}
        self._open: dict[str, VHost] = {}
        self.open_seconds: dict[str, float] = {}  # that it took to open each, with recovery
        self._store: qindex.Store | None = None
        catalog: Catalog = MemoryCatalog()
        if self.directory is not None:
            self._check_directory(self.directory)
        if self.directory is None or not (self.directory / "node").exists():
            check_environment(environment)  # before anything is made
        if self.directory is not None:
            (self.directory / "vhosts").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store = qindex.open(self.directory / "node", format=STORE_FORMAT)
            catalog = StoreCatalog(self._store)
        self._catalog = catalog
        self.entries = dict(catalog.items())
        self.epoch = 0  # of the entries: it grows with each change
        self.users = Users(lambda: self.entries, self.change)
        self.is_open = True
        if not self.entries and not is_rescue:
            try:
                self._check_is_new(environment)
                self.change(first_entries(environment))
            except (Invalid, NotAStore):
                self.close()
                raise
        self._remove_deleted()

    def _check_is_new(self, environment: Mapping[str, str]) -> None:
        """A node that has lost its users must not let everybody in as guest. Raises NotAStore."""
        if self.directory is None or (environment.get(USER) and environment.get(PASSWORD)):
            return
        if left := sorted(path.name for path in (self.directory / "vhosts").iterdir()):
            node = str(self.directory / "node")
            raise NotAStore(
                f"{node!r} names no users and no virtual hosts, but there are messages in "
                f"'vhosts/{left[0]}': put a copy of it back. To go on with a new administrator and "
                f"without the permissions that were there, set {USER} and {PASSWORD}"
            )

    @staticmethod
    def _check_directory(directory: Path) -> None:
        if (file := file_in(str(directory))) is not None:
            raise NotAStore(f"messages are kept in a directory, and {file!r} is a file")
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

    def change(self, changes: dict[str, bytes | None]) -> None:
        """Change entries of the catalog: users, permissions, virtual hosts. Durable then."""
        self._catalog.apply(changes)
        self.entries = dict(self._catalog.items())
        self.epoch += 1

    # --- virtual hosts -------------------------------------------------------------------------

    @property
    def vhosts(self) -> list[str]:
        """The names of the virtual hosts."""
        keys = (key.partition("/") for key in self.entries)
        return sorted(name for kind, _, name in keys if kind == "vhost")

    def vhost(self, name: str) -> VHost:
        """The virtual host of this name, opened if it was not yet. NotAllowed: there is none.

        Cost of opening: as qindex.open(), and a small file for each queue.
        """
        found = self._open.get(name)
        if found is not None:
            return found
        entry = self.entries.get(f"vhost/{name}")
        if entry is None:
            raise NotAllowed(f"vhost {name} not found")
        begun = time.monotonic()
        if self.directory is None:
            found = VHost(name, self._scheduler)
        else:
            path = self.directory / "vhosts" / self._id(name)
            store = qindex.open(path, format=STORE_FORMAT, expire=False)
            found = self._opened(name, store)
            self.stores[name] = store
        self._open[name] = found
        self.open_seconds[name] = time.monotonic() - begun
        return found

    def _opened(self, name: str, store: qindex.Store) -> VHost:
        """The virtual host in this store, which is closed again if that is damaged: the next who
        asks hears of the same damage, and not that the store is open.
        """
        commit = GroupCommit(self._syncer_of(store))
        commit.on_failure = self._failed
        try:
            return VHost(name, self._scheduler, store, commit)
        except BaseException:
            commit.close()
            with contextlib.suppress(qindex.QindexError):
                store.close()
            raise

    def _id(self, name: str) -> str:
        return str(decode_table(self.entries[f"vhost/{name}"])["id"])

    def add_vhost(self, name: str) -> None:
        """Make a virtual host. Nobody may enter it before permissions say so."""
        if f"vhost/{name}" in self.entries:
            raise Invalid(f'Virtual host "{name}" already exists')
        if not name:
            raise Invalid("a virtual host needs a name")
        self.change({f"vhost/{name}": encode_table({"id": str(self.next_vhost_id)})})

    @property
    def next_vhost_id(self) -> int:
        """What a new virtual host is numbered with; the ones behind it are free, too."""
        taken = [int(self._id(each)) for each in self.vhosts]
        if self.directory is not None:  # also those that no entry names, whosever they are
            names = (path.name for path in (self.directory / "vhosts").iterdir())
            taken += [int(name) for name in names if name.isdecimal()]
        return max(taken, default=-1) + 1

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it. Its clients have to be gone.

        It is gone when its entry is; a crash then leaves its files to the next start.
        """
        self.check_vhost(name)
        number = self._id(name)
        self.change(
            {**self.users.gone_permissions(name), f"vhost/{name}": None, f"deleted/{number}": b""}
        )
        opened, store = self._open.pop(name, None), self.stores.pop(name, None)
        if opened is not None:
            if opened.commit is not None:
                opened.commit.close()
            opened.close()
        if store is not None:
            store.close()
        self._remove_deleted()

    def check_vhost(self, name: str) -> None:
        """Raise Invalid if there is no such virtual host."""
        if f"vhost/{name}" not in self.entries:
            raise Invalid(f'Virtual host "{name}" does not exist')

    def _remove_deleted(self) -> None:
        """Remove the files of virtual hosts that are named as deleted, then that entry."""
        for key in [key for key in self.entries if key.startswith("deleted/")]:
            number = key.partition("/")[2]
            if self.directory is not None and number.isdecimal():
                shutil.rmtree(self.directory / "vhosts" / number, ignore_errors=True)
            self.change({key: None})

    @property
    def open_vhosts(self) -> list[VHost]:
        """Those that somebody has asked for."""
        return list(self._open.values())

    def _failed(self, error: BaseException) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def close(self) -> None:
        """Stop all virtual hosts and close their stores. StoreFailed: some end is not clean."""
        self.is_open = False
        for vhost in self._open.values():
            if vhost.commit is not None:
                vhost.commit.close()
            vhost.close()
        stores = [*self.stores.values(), self._store]
        failed: qindex.QindexError | None = None
        for store in stores:
            try:
                if store is not None:
                    store.close()
            except qindex.QindexError as error:  # a close syncs, too
                failed = failed or error
        self._open.clear()
        if failed is not None:
            raise qindex.StoreFailed(str(failed)) from failed


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise Invalid if a new node would get a user, a password or a virtual host without a name."""
    for name in (USER, PASSWORD, VHOST):
        if environment.get(name) == "":
            raise Invalid(f"{name} is set and empty: give it a value, or do not set it")


def first_entries(
    environment: Mapping[str, str], vhosts: list[str] | None = None
) -> dict[str, bytes | None]:
    """The user and the virtual host of a new node; with `vhosts`, the user of these. Invalid: as
    check_environment().
    """
    check_environment(environment)
    user, vhost = environment.get(USER, GUEST), environment.get(VHOST, "/")
    entries = Users.entry(user, environment.get(PASSWORD, GUEST), ["administrator"])
    for each in [vhost] if vhosts is None else vhosts:
        entries |= Users.permission_entry(each, user, EVERYTHING)
    return (
        entries if vhosts is not None else {**entries, f"vhost/{vhost}": encode_table({"id": "0"})}
    )
