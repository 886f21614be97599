"""Which directories at and below some paths are stores or dead brokers, and which may be one.

Many directories are looked at together, level by level. Nothing of a file but its name and its size
is read. No link is followed below a path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from qindex.brokers.reader import formats_in
from qindex.spark.leftovers import LAYOUT, Listing, list_folder, looks_like, problem_of
from qindex.spark.weigh import bytes_below

log: Final = logging.getLogger("qindex.spark")
NATIVE: Final = "qindex"
UNKNOWN: Final = "unknown"
STORE_FILE: Final = "store.meta"  # in each native store
DEPTH_MAX: Final = 4
GONE: Final = "no such directory"
NOTHING: Final = (
    f"neither a store nor a dead broker's directory, and none is up to {DEPTH_MAX} folders below it"
)
_OWN_FOLDERS: Final = ("rabbitmq",)  # formats with folders of their own: these are not looked into
_NOT_LISTED: Final = ("lost+found",)  # only root may list it, and no broker has it


class Place(NamedTuple):
    """What a directory is."""

    format: str
    bytes: int = 0
    problem: str = ""  # of the format UNKNOWN


class Search:
    """`named`: paths that exist. `matched`: what a pattern stands for; some of it may be anything,
    so that nothing is said of what looks like nothing.
    """

    def __init__(self, named: Sequence[str], matched: Sequence[str] = ()) -> None:
        self._found: dict[str, Place] = {}
        self._by_format: dict[str, list[str]] = {}  # not weighed yet
        self._guesses: dict[str, str] = {}  # format that an unknown place looks like
        self._links: list[str] = []
        self._deep: set[str] = set()  # paths with folders that are too far below
        self._named = [self._root(path) for path in named]
        self._matched = [self._root(path) for path in matched if os.path.isdir(path)]  # noqa: PTH112
        self._look_at_others([path for path in matched if not os.path.isdir(path)])  # noqa: PTH112

    def run(self, format_name: str | None = None) -> dict[str, Place]:
        """What was found, by its real path; of the known formats only `format_name`, if given."""
        self._look_below(DEPTH_MAX)
        self._look_at_links()
        self._tell_empty()
        for path in sorted(self._deep):
            log.warning("%s: folders more than %d levels below are not read", path, DEPTH_MAX)
        return {
            path: place
            for path, place in self._found.items()
            if format_name is None or self._looks(path, place) in (format_name, UNKNOWN)
        }

    def _looks(self, path: str, place: Place) -> str:
        return self._guesses[path] if place.problem else place.format

    def _look_below(self, depth_max: int) -> None:
        level = [(path, path) for path in dict.fromkeys([*self._named, *self._matched])]
        for depth in range(depth_max, -1, -1):
            level = self._look_at_level(level, depth)
        for kind, its in self._by_format.items():
            sizes = zip(its, bytes_below(its), strict=True)
            self._found.update({path: Place(kind, size) for path, size in sizes})

    def _root(self, path: str) -> str:
        """Resolved, since a link that was named is followed."""
        return os.path.realpath(path)

    def _problem(self, path: str, text: str, looks: str = UNKNOWN) -> None:
        self._found.setdefault(path, Place(UNKNOWN, 0, text))
        self._guesses.setdefault(path, looks)

    def _look_at_level(self, level: Sequence[tuple[str, str]], depth: int) -> list[tuple[str, str]]:
        """(folder, the path that led there) one level below these."""
        below: list[tuple[str, str]] = []
        folders = [folder for folder, _ in level]
        for (folder, root), size in zip(level, bytes_below(folders, STORE_FILE), strict=True):
            names = list(self._look_at(folder, size))
            if depth:
                below += [(f"{folder.rstrip('/')}/{name}", root) for name in names]
            elif names:
                self._deep.add(root)
        return below

    def _look_at(self, folder: str, size: int) -> Iterable[str]:
        """Notes what it is; gives the folders in it that are to be looked at."""
        try:
            listing = list_folder(folder)
        except NotADirectoryError:
            self._problem(folder, "a file: name the directory that it is in")
            return ()
        except OSError as error:
            if Path(folder).name not in _NOT_LISTED:
                self._problem(folder, f"it cannot be listed: {error.strerror}")
            return ()
        if size >= 0:
            self._found[folder] = Place(NATIVE, size)
            return (name for name in listing.folders if name not in LAYOUT)
        if kind := self._format(folder):
            self._by_format.setdefault(kind, []).append(folder)
            return () if kind in _OWN_FOLDERS else listing.folders
        self._links += [f"{folder}/{name}" for name in listing.links]
        if found := looks_like(folder, listing):
            self._problem(folder, problem_of(*found), found[0])
            return (name for name in listing.folders if name not in LAYOUT)
        return listing.folders

    def _format(self, folder: str) -> str | None:
        try:
            return next(iter(formats_in(Path(folder))), None)
        except OSError as error:  # it is no reason to read none of the others
            self._problem(folder, f"it cannot be looked at: {error.strerror}")
            return None

    def _look_at_links(self) -> None:
        """Of those that lead to a store or a broker which is not found anyway."""
        for link in self._links:
            if not os.path.isdir(link):  # noqa: PTH112
                continue
            target = os.path.realpath(link)
            inner = Search([], [target])
            inner._look_below(1)  # links in it are left alone: they may lead in a circle
            if inner._found.keys() - self._found.keys():
                self._problem(link, f"a link to {target}, which is not followed: name that path")

    def _look_at_others(self, paths: Sequence[str]) -> None:
        """Links to nothing, and files that a pattern stands for in a broker's directory."""
        for path in paths:
            if not os.path.exists(path):  # noqa: PTH110
                self._problem(path, "a link to nothing")
        files = [path for path in paths if os.path.exists(path)]  # noqa: PTH110
        for folder in dict.fromkeys(os.path.dirname(path) for path in files):  # noqa: PTH120
            names = [Path(path).name for path in files if os.path.dirname(path) == folder]  # noqa: PTH120
            root = self._root(folder or ".")
            if looks_like(root, Listing(names, [], [])) or self._format(root):
                text = "only the files in it match the pattern: name the directory itself"
                self._problem(root, text)

    def _tell_empty(self) -> None:
        """Paths that were named, and in which there is nothing."""
        above = {
            str(parent) for path in self._found for parent in (Path(path), *Path(path).parents)
        }
        for path in self._named:
            if path not in above:
                self._problem(path, NOTHING)
