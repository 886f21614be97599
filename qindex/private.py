"""Files for their owner only: everything that contains messages or is derived from them.

The rule: a file is made with mode 0600 and a folder with mode 0700, whatever the umask is. That
holds for stores, exports, tables, reports, pictures and checkpoints alike, since each of them shows
bodies, or names of queues, files and people. A file that is there already and is overwritten gets
0600 before anything is written into it. A folder that is there already keeps its mode.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Any, Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make the folder, and those above it that are missing, for its owner only.

    Raises OSError if it cannot be made, FileExistsError if something else has the name.
    """
    missing = []
    folder = Path(path)
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            if not folder.is_dir():  # else another process has made it meanwhile
                raise


def open_private(path: str | os.PathLike[str], mode: str = "wb", **text: Any) -> IO[Any]:
    """open() for writing, text or binary. "w" empties the file, "x" refuses one that is there.

    What is no regular file (a pipe, /dev/stdout) is opened as it is. Raises PermissionError if the
    file belongs to another user, who could read it.
    """
    exclusive = os.O_EXCL if "x" in mode else 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | exclusive, FILE_MODE)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            _restrict(fd, path)
            os.ftruncate(fd, 0)
        return open(fd, mode.replace("x", "w"), **text)  # noqa: PTH123
    except BaseException:
        os.close(fd)
        raise


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file's content by `data`, durably and all at once.

    Whenever the process is killed, the file has either what it had or `data`. Two processes must
    not replace the same file at once. Cost: two syncs.
    """
    path = Path(path)
    draft = path.with_name(f"{path.name}.new")
    with open_private(draft) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in the folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _restrict(fd: int, path: str | os.PathLike[str]) -> None:
    found = os.fstat(fd)
    if stat.S_IMODE(found.st_mode) & 0o077 == 0:
        return
    try:
        os.fchmod(fd, FILE_MODE)
    except PermissionError as error:
        if found.st_uid != os.geteuid():
            raise PermissionError(error.errno, error.strerror, os.fspath(path)) from None
        # Else the file system has no modes, as that of a memory stick: nothing can be restricted.
