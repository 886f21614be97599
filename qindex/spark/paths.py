"""Paths that users write: literal where something has that very name, patterns elsewhere."""

from __future__ import annotations

import glob
import os

from qindex.names import unwritten


def expand(path: str) -> list[str]:
    """What a path stands for, sorted; empty: nothing.

    A name in it that exists as it is written is no pattern: "/data/[x]/*" is all of the folder
    "[x]" if there is one. A path may also be as the column `source` has it (qindex.names).
    """
    found = _expand(path)
    return found or _expand(unwritten(path))


def is_named(path: str) -> bool:
    """Whether it stands for one thing: no wildcard had to be resolved."""
    return not glob.has_magic(path) or _there(path) or _there(unwritten(path))


def _there(path: str) -> bool:
    return os.path.lexists(path)


def _expand(path: str) -> list[str]:
    if _there(path) or not glob.has_magic(path):
        return [path] if _there(path) else []
    found = ["/" if path.startswith("/") else ""]
    for name in filter(None, path.split("/")):
        found = [
            each
            for folder in found
            for each in (
                [os.path.join(folder, name)]  # noqa: PTH118 - of thousands
                if _there(os.path.join(folder, name))  # noqa: PTH118
                else _matching(folder, name)
            )
        ]
    return found


def _matching(folder: str, pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        return []
    names = sorted(glob.glob(pattern, root_dir=folder or None))  # noqa: PTH207
    return [os.path.join(folder, name) for name in names]  # noqa: PTH118
