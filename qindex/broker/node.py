"""A node: users, and virtual hosts that are stores of their own.

::

    DIR/node            a store: users with the digests of their passwords, names of virtual hosts
    DIR/vhosts/<id>     a store for each virtual host, opened when the first client asks for it
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import qindex
from qindex.broker.catalog import Catalog, MemoryCatalog, StoreCatalog
from qindex.broker.durable import GroupCommit, Syncer
from qindex.broker.errors import Invalid, NotAllowed, VHostDown
from qindex.broker.owner import is_empty, own, owner_of
from qindex.broker.timers import Scheduler
from qindex.broker.users import EVERYTHING, GUEST, Users
from qindex.broker.vhost import VHost
from qindex.errors import DiskFull, NotAStore, QindexError, StoreFull, StoreLocked
from qindex.field_table import decode_table, encode_table
from qindex.handle import file_in

USER: Final = "QINDEX_DEFAULT_USER"
PASSWORD: Final = "QINDEX_DEFAULT_PASS"  # noqa: S105 - the name of a variable
VHOST: Final = "QINDEX_DEFAULT_VHOST"
log: Final = logging.getLogger("qindex.broker")
_HIGHEST: Final = "highest_vhost"  # the entry of the highest number of a store that was given
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
        self.down: dict[str, str] = {}  # which could not be opened the last time, and why
        self._store: qindex.Store | None = None
        catalog: Catalog = MemoryCatalog()
        if self.directory is not None:
            self._check_directory(self.directory)
        if self.directory is None or not (self.directory / "node").exists():
            check_environment(environment)  # before anything is made
        self._made = [] if self.directory is None or not is_rescue else _missing(self.directory)
        if self.directory is not None:
            (self.directory / "vhosts").mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._store = qindex.open(self.directory / "node", format=STORE_FORMAT)
            except StoreLocked as error:
                raise StoreLocked(
                    f"{str(self.directory)!r} is served already, or a command works on it: {error}"
                ) from error
            catalog = StoreCatalog(self._store)
        self._catalog = catalog
        self.entries = dict(catalog.items())
        self.epoch = 0  # of the entries: it grows with each change
        self.users = Users(lambda: self.entries, self.change)
        self.is_open = True
        if not self.entries and not is_rescue:
            try:
                self._check_is_new(environment)
                vhost = environment.get(VHOST, "/")
                self.change({**first_entries(environment, [vhost]), **self.new_vhosts([vhost])})
            except (Invalid, NotAStore):
                self.close()
                raise
        self._remove_deleted()
        if not is_rescue:
            self._tell_unclaimed()

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
        """The virtual host of this name, opened if it was not yet. NotAllowed: there is none;
        VHostDown: its store cannot be opened.

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
            found = self._in_store(name, self.directory / "vhosts" / self._id(name))
        self._open[name] = found
        self.open_seconds[name] = time.monotonic() - begun
        return found

    def standing(self, names: Iterable[str]) -> list[VHost]:
        """Those of these that can be opened. Who wants one that was down has to ask for it alone:
        no list waits for a damaged store again and again.
        """
        found = []
        for name in names:
            if name not in self.down:
                with contextlib.suppress(VHostDown):  # it is noted, and logged
                    found.append(self.vhost(name))
        return found

    def _in_store(self, name: str, path: Path) -> VHost:
        try:
            self._check_is_there(name, path)
            store = qindex.open(path, format=STORE_FORMAT, expire=False)
            found = self._opened(name, store)
        except (QindexError, OSError) as error:
            if self.down.get(name) != str(error):
                log.error("virtual host %r cannot be opened: %s", name, error)
            self.down[name] = str(error)
            raise VHostDown(f"vhost {name!r} is down: {error}") from error
        self.down.pop(name, None)
        self.stores[name] = store
        return found

    def _opened(self, name: str, store: qindex.Store) -> VHost:
        """The virtual host in this store, which is closed again if that is damaged: the next who
        asks hears of the same damage, and not that the store is open.
        """
        commit = GroupCommit(self._syncer_of(store))
        commit.on_failure = self._failed
        try:
            own(store, name)
            self._note_made(self._id(name))
            return VHost(name, self._scheduler, store, commit)
        except BaseException:
            commit.close()
            with contextlib.suppress(qindex.QindexError):
                store.close()
            raise

    def _check_is_there(self, name: str, path: Path) -> None:
        """Raise StoreMissing if the store was made, and is gone: it would be served empty."""
        if f"made/{path.name}" in self.entries and is_empty(path):
            raise qindex.StoreMissing(
                f"{str(path)!r} is gone, with the messages of virtual host {name!r}: put it back, "
                "or mount its disk. To go on without them, delete the virtual host and add it anew"
            )

    def _note_made(self, number: str) -> None:
        """From now on the store of this number has to be there."""
        key = f"made/{number}"
        if key not in self.entries:
            with contextlib.suppress(DiskFull, StoreFull):  # the next opening notes it
                self._catalog.apply({key: b""})
                self.entries[key] = b""

    def _id(self, name: str) -> str:
        return str(decode_table(self.entries[f"vhost/{name}"])["id"])

    def add_vhost(self, name: str) -> None:
        """Make a virtual host. Nobody may enter it before permissions say so."""
        if f"vhost/{name}" in self.entries:
            raise Invalid(f'Virtual host "{name}" already exists')
        if not name:
            raise Invalid("a virtual host needs a name")
        self.change(self.new_vhosts([name]))

    def new_vhosts(self, names: Iterable[str]) -> dict[str, bytes | None]:
        """The entries of new virtual hosts. No number is given twice, so that no store gets to
        another one; a store that says that it is such a one's, and that none has, is its again.
        """
        taken = [int(self._id(each)) for each in self.vhosts]
        if _HIGHEST in self.entries:
            taken.append(int(str(decode_table(self.entries[_HIGHEST])["id"])))
        unclaimed = self._unclaimed()
        taken += [int(path.name) for path in self._folders() if path.name.isdecimal()]
        highest = max(taken, default=-1)
        entries: dict[str, bytes | None] = {}
        for name in names:
            its = [path for path, owner in unclaimed.items() if owner == name]
            if len(its) == 1 and its[0].name.isdecimal():
                number = its[0].name
                log.warning("virtual host %r gets the store that was its: %s", name, its[0])
            else:
                highest += 1
                number = str(highest)
            entries[f"vhost/{name}"] = encode_table({"id": number})
        return {**entries, _HIGHEST: encode_table({"id": str(highest)})}

    def _folders(self) -> list[Path]:
        return [] if self.directory is None else sorted((self.directory / "vhosts").iterdir())

    def _unclaimed(self) -> dict[Path, str | None]:
        """The stores that no virtual host names, and whose they say that they are."""
        claimed = {self._id(each) for each in self.vhosts}
        claimed |= {key.partition("/")[2] for key in self.entries if key.startswith("deleted/")}
        left = [path for path in self._folders() if path.name not in claimed]
        return {path: owner_of(path) for path in left if (path / "store.meta").exists()}

    def _tell_unclaimed(self) -> None:
        for path, owner in self._unclaimed().items():
            if owner is None:
                what = "it does not say whose it is"
            elif owner in self.vhosts:
                what = f"it was that of {owner!r}, which has another one"
            else:
                what = f"it is that of {owner!r}, which gets it again when it is added"
            log.warning("%s is the store of no virtual host: %s", path, what)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it. Its clients have to be gone.

        It is gone when its entry is; a crash then leaves its files to the next start.
        """
        self.check_vhost(name)
        number = self._id(name)
        self.change(
            {
                **self.users.gone_permissions(name),
                f"vhost/{name}": None,
                f"made/{number}": None,
                f"deleted/{number}": name.encode("utf-8", "surrogateescape"),
            }
        )
        self.down.pop(name, None)
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
            number, name = key.partition("/")[2], self.entries[key]
            if self.directory is not None and number.isdecimal():
                path = self.directory / "vhosts" / number
                owner = owner_of(path) if name and (path / "store.meta").exists() else None
                if owner in (None, name.decode("utf-8", "surrogateescape")):
                    shutil.rmtree(path, ignore_errors=True)
                    if path.exists():  # without the entry, it would be its virtual host's again
                        log.error("%s cannot be removed; the next start tries again", path)
                        continue
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
        if self._made and not self.entries:  # the rescue was refused: nothing stays of it
            _remove_empty(self._made)


def _missing(directory: Path) -> list[Path]:
    """What a new node makes there; empty: it is not new."""
    places = [directory / "node", directory / "vhosts", directory]
    return [] if places[0].exists() else [path for path in places if not path.exists()]


def _remove_empty(made: list[Path]) -> None:
    """Take away a node without entries, and the folders made for it in which nothing is."""
    shutil.rmtree(made[0], ignore_errors=True)
    for path in made[1:]:
        with contextlib.suppress(OSError):
            path.rmdir()


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise Invalid if a new node would get a user, a password or a virtual host without a name."""
    for name in (USER, PASSWORD, VHOST):
        if environment.get(name) == "":
            raise Invalid(f"{name} is set and empty: give it a value, or do not set it")


def first_entries(environment: Mapping[str, str], vhosts: list[str]) -> dict[str, bytes | None]:
    """The user of a new node, and what he may do in these virtual hosts. Invalid: as
    check_environment().
    """
    check_environment(environment)
    user = environment.get(USER, GUEST)
    entries = Users.entry(user, environment.get(PASSWORD, GUEST), ["administrator"])
    for each in vhosts:
        entries |= Users.permission_entry(each, user, EVERYTHING)
    return entries
