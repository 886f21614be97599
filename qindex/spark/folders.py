"""`store/spark/NAME`: what streams and sinks keep in a store. The engine passes it by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER: Final = "spark"


def make_folder(folder: Path) -> None:
    """`store/spark/<write>`, durable. FileNotFoundError if the store is not there."""
    store = folder.parents[1]
    if not (store / "store.meta").exists():
        raise FileNotFoundError(
            f"there is no store at {store} on this machine: all machines of the cluster need it at"
            " the same path"
        )
    for path in (folder.parent, folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
            sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Names in it are durable after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
