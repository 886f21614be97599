"""Opening and closing a store of the core. Store and QueueIndex share this."""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from qindex._core import ffi, lib
from qindex.arguments import queue_name
from qindex.errors import NotAStore, StoreFailed, StoreMissing, StoreNested, raise_error
from qindex.options import Options


class Disk(Protocol):
    """A disk that a store can use instead of the real one: qindex.testing.SimulatedDisk."""

    @property
    def capsule(self) -> int:
        """The address of a struct qi_disk_capsule, which says what layout the disk has."""


class Closing:
    """A context manager that calls close() at the end of its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # If the block ends with an error, that error says more than StoreFailed from close().
        with contextlib.suppress(StoreFailed) if error else contextlib.nullcontext():
            self.close()

    def close(self) -> None:
        """Close it; the subclass says how."""
        raise NotImplementedError


def close_with(owner: object, handle: Any, disk: object = None) -> weakref.finalize[..., Any]:
    """Close the core's store when its owner is collected, or when the interpreter ends.

    The object that is returned keeps `disk` alive, which must outlive the store.
    """
    return weakref.finalize(owner, _close_handle, handle, weakref.ref(owner), disk)


def _close_handle(handle: Any, owner: weakref.ref[Any], _disk: object) -> None:
    lib.qi_store_close(handle)
    if owner() is None:
        lib.qi_store_free(handle)
    else:  # The interpreter ends. Threads may still be in the core, and exit handlers may call it.
        lib.qi_store_leave(handle)


def directory_of(name: str) -> bytes:
    """The name of a queue's folder in queues/: a hash, so that no name becomes a path."""
    encoded = queue_name(name).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest().encode("ascii")


def listed(handle: Any) -> Iterator[tuple[str, bytes]]:
    """The names of all queues and their folders; the name is "" if it cannot be read."""
    count = lib.qi_store_queues(handle)
    if count < 0:
        raise_error(count)
    name, directory = ffi.new("char[]", 65536), ffi.new("char[33]")
    for index in range(count):
        size = lib.qi_store_queue_name(handle, index, name, 65536, directory)
        if size >= 0:
            text = ffi.unpack(name, size).decode("utf-8", "surrogatepass") if size else ""
            yield text, ffi.string(directory)


def refuse_misplaced(handle: Any) -> None:
    """Let nobody use a folder that stands where another queue's was: a copied or a moved one."""
    for name, directory in listed(handle):
        if name and directory_of(name) != directory:
            encoded = name.encode("utf-8", "surrogatepass")
            lib.qi_store_misplaced(handle, directory, encoded, len(encoded))


def _refuse_inside_a_store(path: str) -> None:
    """Raise StoreNested if a new store would lie inside another one.

    It would be copied, moved and deleted with that one. A store that is there already is opened
    wherever it lies.
    """
    for above in Path(path).resolve().parents:
        if (above / "store.meta").exists():
            raise StoreNested(
                f"{path!r} lies inside the store {str(above)!r}: give a directory outside of it"
            )


# Names that do not keep a new store out: those of a store that was begun and has no store.meta yet,
# and that of a new file system.
_BEGUN = {"LOCK", "commits", "messages", "queues", "store.meta.new", "lost+found"}


def _refuse_among_others(path: str) -> None:
    """Raise NotAStore if a new store would lie among other files: the path may be a slip."""
    try:
        others = sorted(set(os.listdir(path)) - _BEGUN)  # noqa: PTH208 - bytes that are no UTF-8
        if _is_somebodys_lock(f"{path}/LOCK"):
            others.append("LOCK")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # the core makes the directory, or says what is wrong
    # Another process may have made a store since the caller looked.
    if others and not os.path.lexists(f"{path}/store.meta"):
        raise NotAStore(
            f"{path!r} is no store (no store.meta), and holds other files ({others[0]!r}): "
            "name a store, or a new or empty directory"
        )


def _is_somebodys_lock(path: str) -> bool:
    """Ours is empty, or says which process has the store."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return False
    return bool(content) and not content.startswith(b"pid ")


def _what_is_missing(path: str | bytes, makes: bool) -> str:
    above = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - also of bytes
    if makes and not os.path.isdir(above):  # noqa: PTH112
        return (
            f"a store cannot be made at {path!r}: there is no folder {above!r}, "
            "and folders above a store are not created"
        )
    return f"there is no store at {path!r}"


def file_in(path: str) -> str | None:
    """The path, or one above it, if something is there that is no directory."""
    for place in (Path(path), *Path(path).parents):
        if place.exists():
            return None if place.is_dir() else str(place)
    return None


def open_handle(
    path: str | os.PathLike[str], options: Options, disk: Disk | None = None
) -> tuple[str, Any]:
    """Open the core's store; return the path as text, and the handle."""
    core = options.to_core()
    text = os.fspath(path)
    if "\0" in os.fsdecode(text):
        raise ValueError(f"a path cannot hold a NUL character: {text!r}")
    if disk is not None and not hasattr(disk, "capsule"):
        raise TypeError(f"disk must be a qindex.testing.SimulatedDisk, not {disk!r}")
    plain = os.fsdecode(text)
    makes = options.create and not options.read_only
    if disk is None and makes and not os.path.lexists(f"{plain}/store.meta"):
        _refuse_among_others(plain)
        _refuse_inside_a_store(plain)
    result = ffi.new("qi_store **")
    if disk is None:
        code = lib.qi_store_open(os.fsencode(text), core, result)
    else:
        code = lib.qi_store_open_capsule(ffi.cast("void *", disk.capsule), core, result)
    if code == lib.QI_E_MISSING:
        raise StoreMissing(_what_is_missing(text, makes))
    if code == lib.QI_E_IO and disk is None and (file := file_in(plain)) is not None:
        raise NotAStore(f"a store is a directory, and {file!r} is a file")
    if code < 0:
        raise_error(code)
    return text, result[0]
