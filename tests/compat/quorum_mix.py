"""Files of a node in each other's place, as by a restore that went wrong, and what is then said.

The rule is that of quorum_sweep.py: whatever differs from what the sound directory gives is said.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from .quorum_sweep import files_of, read


def over(one: Path, other: Path, dice: Random) -> None:
    other.write_bytes(one.read_bytes())


def swap(one: Path, other: Path, dice: Random) -> None:
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def twice(one: Path, other: Path, dice: Random) -> None:
    shutil.copy(one, renumbered(one, dice))


def renumber(one: Path, other: Path, dice: Random) -> None:
    one.rename(renumbered(one, dice))


def renumbered(file: Path, dice: Random) -> Path:
    names = [
        f"{number:0{len(file.stem)}d}{file.suffix}" for number in (0, 1, 2, 3, 9, 50, 10**7, 10**15)
    ]
    return file.with_name(dice.choice([name for name in names if name != file.name]))


def join(one: Path, other: Path, dice: Random) -> None:
    one.write_bytes(one.read_bytes() + other.read_bytes())


def lose(one: Path, other: Path, dice: Random) -> None:
    one.unlink()


def link(one: Path, other: Path, dice: Random) -> None:
    one.unlink()
    one.symlink_to(other)


def become_a_folder(one: Path, other: Path, dice: Random) -> None:
    one.unlink()
    one.mkdir()


def copy_the_folder(one: Path, other: Path, dice: Random) -> None:
    shutil.copytree(one.parent, one.parent.with_name(one.parent.name[:-3] + "XYZ"))


WAYS: list[Callable[[Path, Path, Random], None]] = [
    over, swap, twice, renumber, join, lose, link, become_a_folder, copy_the_folder,
]  # fmt: skip


def mixtures(path: Path, work: Path, dice: Random, count: int) -> Iterator[str]:
    """What breaks the rule, of so many copies of the directory `path` made at `work`."""
    truth = read(path)
    for _ in range(count):
        shutil.copytree(path, work)
        files = files_of(work)
        one = dice.choice(files)
        alike = [each for each in files if each.suffix == one.suffix and each != one]
        other = dice.choice(alike or [each for each in files if each != one])
        way = dice.choice(WAYS)
        place = f"{way.__name__} {one.relative_to(work)} {other.relative_to(work)}"
        way(one, other, dice)
        told = read(work)
        if not told.says_more_than(truth) and told.rows != truth.rows:
            yield f"nothing is said: {place}"
        shutil.rmtree(work)
