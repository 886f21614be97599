"""Prints what extras in pyproject.toml need, for pip install -r: `tools/extras.py test docs`."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def requirements(extra: str) -> Iterator[str]:
    """Without qindex itself: the extras that it names are followed."""
    for line in PROJECT["optional-dependencies"][extra]:
        own = re.fullmatch(r"qindex\[(.*)\]", line)
        for name in own[1].split(",") if own else ():
            yield from requirements(name)
        if own is None:
            yield line


if __name__ == "__main__":
    print(*PROJECT["dependencies"], sep="\n")
    for name in sys.argv[1:]:
        print(*requirements(name), sep="\n")
