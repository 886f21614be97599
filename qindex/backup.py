"""Backups of a store that stays open: all of it as it was at one moment.

The core holds the files of that moment under second names (c_ext/store/backup.c), so that they can
be copied while publishers go on. The copy is made beside the backup, as DIR.partial; store.meta
comes last, and then the two change places. So after a power cut DIR is the old backup or the new
one, and what is not whole is no store.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qindex._core import ffi, lib
from qindex.errors import NotAStore, StoreClosed, StoreNested, raise_error

if TYPE_CHECKING:
    from qindex.store import Store

NOTE: Final = "backup.json"  # in each backup: what it is of, and which files it took
HOLD: Final = "backup.hold"  # in the store, while a backup is made
_FLUSHED_ABOVE: Final = 1000  # entries in a journal; those of fewer are quickly copied
_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Backup:
    """What Store.backup() has made."""

    path: str
    """Where it is."""
    files: int
    """Files that it has."""
    copied_bytes: int
    """Bytes that were copied for it; the rest it shares with the store or the backup before."""
    held_seconds: float
    """How long the store's lock was held: publishers waited so long."""


def back_up(store: Store, target: str) -> Backup:
    """See Store.backup()."""
    root, final = Path(os.fsdecode(store.path)).resolve(), Path(target).resolve()
    if final == root or root in final.parents or final in root.parents:
        raise StoreNested(f"{target!r} and the store lie in each other: give another directory")
    partial, hold = final.with_name(final.name + ".partial"), root / HOLD
    _base(final, None)
    store._miss_queues()  # the copy cannot say later that they were there
    with store._backing_up:
        shutil.rmtree(hold, ignore_errors=True)  # of a process that was killed
        hold.mkdir(mode=0o700)
        try:
            held = _hold(store, hold)
            note = _base(final, bytes(held.identity).hex())
            _begin(partial)
            making = _Making(hold, partial, final if note else None, note.get("files", {}))
            making.copy_all(_lengths(held), int(held.session))
        finally:
            shutil.rmtree(hold, ignore_errors=True)
        making.finish(bytes(held.identity).hex())
        _put_in_place(partial, final)
    return Backup(target, making.files, making.copied + int(held.copied), int(held.us) / 1e6)


def _begin(partial: Path) -> None:
    """An empty folder that no open takes for a store, or for a place to make one."""
    if os.path.lexists(partial):
        names = {each.name for each in partial.iterdir()} if partial.is_dir() else {"a file"}
        begun = names <= {f"{NOTE}.new", "LOCK"}  # cut off at once; somebody tried to open it
        if partial.is_symlink() or not (begun or (partial / NOTE).is_file()):
            raise NotAStore(
                f"{str(partial)!r} is in the way: a backup is made there first. Move it elsewhere"
            )
        _remove(partial)
    partial.mkdir(mode=0o700)
    _write(partial / NOTE, b'{"complete": false}')
    _sync(partial)


def _remove(folder: Path) -> None:
    """Remove a backup: store.meta first: the rest is no store. What says that it is ours, last."""
    with contextlib.suppress(FileNotFoundError):
        (folder / "store.meta").unlink()
    _sync(folder)
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != NOTE:
            each.unlink()
    with contextlib.suppress(FileNotFoundError):
        (folder / NOTE).unlink()
    folder.rmdir()


def _hold(store: Store, hold: Path) -> Any:
    for queue in list(store._queues.values()):
        with contextlib.suppress(StoreClosed):  # it was deleted meanwhile
            if queue.dirty_count > _FLUSHED_ABOVE:  # so that the lock is not held for its journal
                queue.flush()
    held = ffi.new("qi_held *")
    code = lib.qi_store_hold(store._open_handle(), os.fsencode(hold), held)
    if code < 0:
        raise_error(code)
    return held


def _lengths(held: Any) -> dict[str, int]:
    """How many bytes belong to the moment, of files that go on growing."""
    lengths = {}
    if held.messages_number >= 0:
        lengths[f"messages/{held.messages_number}.qms"] = int(held.messages_length)
    if held.log_number >= 0:
        lengths[f"commits/{held.log_number}.log"] = int(held.log_length)
    return lengths


# --- what is there already ------------------------------------------------------------------------


def _base(final: Path, identity: str | None) -> dict[str, Any]:
    """The note of the backup that is there; {}: there is none. NotAStore: it is something else."""
    if not os.path.lexists(final):
        return {}
    if final.is_dir() and not final.is_symlink() and not any(final.iterdir()):
        return {}
    with contextlib.suppress(OSError, ValueError):
        note: dict[str, Any] = json.loads((final / NOTE).read_bytes())
        if note.get("complete") is True:
            if identity is not None and note["identity"] != identity:
                raise NotAStore(f"{str(final)!r} is a backup of another store: nothing was changed")
            if note["meta"] != _digest(final / "store.meta"):
                raise NotAStore(
                    f"{str(final)!r} was opened as a store since it was made, and may be in use: "
                    "give another directory"
                )
            return note
    raise NotAStore(
        f"{str(final)!r} is no backup and is not empty: nothing was changed, give another directory"
    )


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


# --- the copy -------------------------------------------------------------------------------------


class _Making:
    """A backup that is being made, of what is held."""

    def __init__(
        self, hold: Path, partial: Path, base: Path | None, seen: dict[str, list[int]]
    ) -> None:
        self.hold, self.partial, self.base, self.seen = hold, partial, base, seen
        self.taken: dict[str, list[int]] = {}  # of files that were copied: their state in the store
        self.files = self.copied = 0

    def copy_all(self, lengths: dict[str, int], session: int) -> None:
        """All but store.meta, which makes a store of it."""
        self.session = session
        for folder in _folders_below(self.hold):
            (self.partial / folder).mkdir(mode=0o700, exist_ok=True)
        for name in sorted(_files_below(self.hold)):
            if name != "store.meta":
                self._copy(name, lengths.get(name))
        self.meta = (self.hold / "store.meta").read_bytes()

    def _copy(self, name: str, length: int | None) -> None:
        source, made = self.hold / name, self.partial / name
        state = source.stat()
        self.files += 1
        if length is None and name.startswith("messages/") and _link(source, made):
            return  # a full message file is never written again, by no store that has it
        if length is None and state.st_nlink == 1 and _move(source, made):
            return  # a journal, which is a copy already; or nobody else has it any more
        # The first bytes of a file that only grows stay what they are in this session; a power cut
        # can take some of them, and the next session writes others there. Other files tell by time.
        size = state.st_size if length is None else length
        self.taken[name] = [
            state.st_ino,
            size,
            state.st_mtime_ns if length is None else self.session,
        ]
        if self.base and self.seen.get(name) == self.taken[name] and _link(self.base / name, made):
            return
        self.copied += _copy_bytes(source, made, size)
        os.truncate(made, state.st_size)  # as long as it is: one that ends earlier was cut off

    def finish(self, identity: str) -> None:
        """Make all of it durable; then, and not before, it is a store."""
        files = [self.partial / name for name in _files_below(self.partial)]
        _sync_all(files)
        _sync_all(self.partial / folder for folder in _folders_below(self.partial))
        note = {
            "complete": True,
            "identity": identity,
            "meta": hashlib.blake2b(self.meta, digest_size=16).hexdigest(),
            "files": self.taken,
        }
        _write(self.partial / NOTE, json.dumps(note).encode())
        _write(self.partial / "store.meta", self.meta)
        self.files += 1
        _sync(self.partial)


def _files_below(folder: Path) -> Iterator[str]:
    for above, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(f"{above}/{name}", folder)


def _folders_below(folder: Path) -> list[str]:
    """Itself first, each before those in it."""
    return [os.path.relpath(above, folder) for above, *_ in os.walk(folder)]


def _link(source: Path, made: Path) -> bool:
    """False: it has to be copied."""
    try:
        os.link(source, made, follow_symlinks=False)
    except OSError:
        return False
    return True


def _move(source: Path, made: Path) -> bool:
    try:
        source.rename(made)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copy_bytes(source: Path, made: Path, size: int) -> int:
    """Copies, or shares blocks where the file system can do that; how many bytes."""
    with source.open("rb") as reading, made.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        left = size
        while left:
            try:
                done = os.copy_file_range(reading.fileno(), writing.fileno(), left)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
                    raise
                done = os.sendfile(writing.fileno(), reading.fileno(), size - left, left)
                os.lseek(reading.fileno(), size - left + done, os.SEEK_SET)
            if not done:
                break
            left -= done
    return size - left


def _write(path: Path, content: bytes) -> None:
    """Written durably, the name as the next sync of its folder; never half of it."""
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(content)
    draft.chmod(0o600)
    _sync(draft)
    draft.rename(path)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _sync_all(paths: Iterable[Path]) -> None:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="backup") as pool:
        list(pool.map(_sync, paths))


def _put_in_place(partial: Path, final: Path) -> None:
    """At no moment is there neither the old backup nor the new one."""
    if not os.path.lexists(final):
        partial.rename(final)
        _sync(final.parent)
        return
    code = lib.qi_exchange(os.fsencode(partial), os.fsencode(final))
    if code < 0:
        raise OSError(-code, f"cannot put {str(partial)!r} in the place of {str(final)!r}")
    _sync(final.parent)
    if (partial / NOTE).is_file():
        _remove(partial)
    else:  # an empty folder
        partial.rmdir()
    _sync(final.parent)
