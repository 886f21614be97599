"""Whose a store in DIR/vhosts is: the store itself says which virtual host it belongs to.

So no virtual host gets the store of another one when DIR/node is lost, or an older copy of it is
put back.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import qindex
from qindex.broker.catalog import StoreCatalog
from qindex.errors import DiskFull, NotAStore, QindexError, StoreFull

log: Final = logging.getLogger("qindex.broker")
KEY: Final = "vhost"


def own(store: qindex.Store, name: str) -> None:
    """Note in the store that it is this virtual host's, if it does not say so. NotAStore: it is
    another one's.
    """
    owner = _owner(store)
    if owner is None:
        try:
            StoreCatalog(store).apply({KEY: name.encode("utf-8", "surrogateescape")})
        except (DiskFull, StoreFull) as error:  # it is served all the same, so that room is made
            log.warning("%s does not say whose it is: %s", store.path, error)
    elif owner != name:
        place = Path(store.path)
        raise NotAStore(
            f"{str(place)!r} is the store of virtual host {owner!r}: put that of {name!r} into its "
            f"place, or the right copy of {str(place.parent.parent / 'node')!r}. To serve this "
            f"one, move it to a free number in {str(place.parent)!r}, and add a virtual host "
            f"{owner!r}: that gets it"
        )


def owner_of(path: Path) -> str | None:
    """Whose this store is, which is not open; None: it does not say so, or cannot be read."""
    try:
        with qindex.open(path, read_only=True) as store:
            return _owner(store)
    except (QindexError, OSError) as error:
        log.warning("whose %s is cannot be read: %s", path, error)
        return None


def _owner(store: qindex.Store) -> str | None:
    found = store.data.get(KEY.encode())
    return None if found is None else found.decode("utf-8", "surrogateescape")


def is_empty(path: Path) -> bool:
    """True if nothing is there, or an empty folder."""
    return not path.is_dir() or not any(path.iterdir())
