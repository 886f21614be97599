"""Directories that are elsewhere: s3://, gs://, abfs://, hdfs://, memory:// and so on.

The core reads files of this machine only. So a broker's directory that is elsewhere is one unit,
and the task that reads it copies it into a temporary folder first (TMPDIR says where), reads, and
removes the copy. pyarrow lists and copies; what it does not know, fsspec may (`pip install fsspec`
and the package for that file system). A path names brokers' directories, or what holds one, with
wildcards: "s3://backups/brokers/*". What changes while it is copied may look damaged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from qindex.private import make_folder, open_private

if TYPE_CHECKING:
    from qindex.spark.plan import Unit

REMOTE: Final = "remote "  # as a unit's format, and behind it the one that is wanted, if one is


def as_local(path: str) -> str | None:
    """A path or file:// as a path; None: it is elsewhere."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    return None if "://" in path else path


def absolute(path: str) -> str:
    """The same from everywhere; may have wildcards. A URL stays as it is."""
    local = as_local(path)
    return path if local is None else os.path.abspath(local)  # noqa: PTH100


def directories(url: str) -> Iterator[tuple[str, int]]:
    """The directories that a URL with wildcards stands for, and how many bytes are in each."""
    from pyarrow.fs import FileSelector, FileType

    files, path = _open(url)
    start = url.removesuffix(path.lstrip("/")) if path.strip("/") else url
    names = PurePosixPath(path).parts
    plain = next((i for i, name in enumerate(names) if _is_pattern(name)), len(names))
    found = [str(PurePosixPath(*names[:plain]))]
    for pattern in names[plain:]:
        inside = [each for at in found for each in files.get_file_info(FileSelector(at))]
        folders = [each for each in inside if each.type == FileType.Directory]
        # A name that exists as it is written is no pattern.
        literal = [each.path for each in folders if each.base_name == pattern]
        found = literal or [each.path for each in folders if fnmatchcase(each.base_name, pattern)]
    for at in sorted(found):
        inside = files.get_file_info(FileSelector(at, allow_not_found=True, recursive=True))
        if inside:
            yield start + at.lstrip("/"), sum(each.size or 0 for each in inside)


def here(unit: Unit) -> Iterator[Unit]:
    """The unit; of one that is elsewhere what is found in a copy, which is there until the next."""
    from qindex.spark.plan import find

    if not unit.format.startswith(REMOTE):
        yield unit
        return
    with TemporaryDirectory(prefix="qindex-") as folder:
        _copy(unit.source, Path(folder))
        for found in find([folder], unit.format.removeprefix(REMOTE) or None):
            below = found.source.removeprefix(str(Path(folder).resolve()))
            source, broker = unit.source + below, unit.broker + below
            yield found._replace(source=source, broker=broker, copy=found.source)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _open(url: str) -> tuple[Any, str]:
    """(pyarrow's file system, the path in it). ValueError: nobody knows such a URL."""
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        files, path = FileSystem.from_uri(url)
    except ArrowInvalid as unknown:
        try:
            from fsspec.core import url_to_fs

            files, path = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{url!r}: {unknown}; and fsspec: {error}") from None
        files = PyFileSystem(FSSpecHandler(files))
    return files, path


def _copy(url: str, folder: Path) -> None:
    """Regular files only; a name that leads out of the folder is an error."""
    from pyarrow.fs import FileSelector, FileType

    files, path = _open(url)
    for each in files.get_file_info(FileSelector(path, recursive=True)):
        names = PurePosixPath(each.path).relative_to(path.rstrip("/") or "/").parts
        if ".." in names:
            raise ValueError(f"{url!r} has a file {each.path!r}")
        target = folder.joinpath(*names)
        make_folder(target.parent)
        if each.type == FileType.File:
            with files.open_input_stream(each.path) as read, open_private(target) as written:
                shutil.copyfileobj(read, written, 1 << 20)
        elif each.type == FileType.Directory:
            make_folder(target)
