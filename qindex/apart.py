"""What is read stays as it is: nothing is made in a directory from which something is made."""

from __future__ import annotations

import os
from pathlib import Path

from qindex.errors import StoreNested


def refuse_inside(
    path: str | os.PathLike[str], source: str | os.PathLike[str], *roots: str | os.PathLike[str]
) -> None:
    """Raise StoreNested if `path` lies in `source`, which is only read.

    `roots`: what `source` stands for, if it is read elsewhere, too.
    """
    target = Path(path).resolve()
    if any(target.is_relative_to(Path(root).resolve()) for root in (source, *roots)):
        raise StoreNested(
            f"{str(path)!r} is inside {str(source)!r}, where nothing is changed: go elsewhere"
        )
