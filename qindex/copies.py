"""A store's backup. What makes it is loaded when it is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from qindex.arguments import parts_of

if TYPE_CHECKING:
    from qindex.backup import Backup
    from qindex.store import Store


@parts_of("Store")
class Copied:
    """For the class of a store."""

    def backup(self, directory: str | os.PathLike[str]) -> Backup:
        """Make `directory` a copy of the store as it is at one moment; return what was done.

        Publishers go on. The copy opens as the store would after kill -9 at that moment: what was
        delivered and not acked is ready again, and messages with persistent=False are gone. A
        directory that has a backup of this store is replaced by the new one, of which only what has
        changed is copied. It is replaced at once: a crash leaves the old backup or the new one. On
        the file system of the store the copy shares full message files with it. What is missing in
        the store is missing in the copy: `findings` says what, afterwards too.

        Raises NotAStore if the directory holds something else, or was opened for writing since it
        was made; StoreNested if it lies in the store; OSError. Then it is as it was.

        Cost: the store's lock while the journals are copied and each file gets a second name, up
        to a millisecond for each queue; then a copy and a sync of each file that has changed.
        """
        from qindex.backup import back_up

        return back_up(cast("Store", self), os.fspath(directory))
