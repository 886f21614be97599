"""What a power cut may leave of files: a disk rebuilt from a list of operations.

A file's bytes are safe when the file was synced later, a name when its directory was. Of what is
not safe, a cut takes nothing, everything, or any part (see Disk.power_cut). Pure: no I/O here.
"""

from __future__ import annotations

import posixpath
import random
from dataclasses import dataclass, field
from typing import Final, Literal

SECTOR: Final = 512
MODES: Final = ("nothing", "everything", "prefix", "parts")  # of what is not safe, what is left


@dataclass(frozen=True, slots=True)
class DiskRules:
    """How harsh the disk is."""

    sector: int = SECTOR
    """Bytes that are written whole or not at all."""
    file_sync_keeps_name: bool = False
    """True: the sync of a new file makes its name durable, too, as on ext4, xfs and btrfs. POSIX
    does not promise it."""


@dataclass(frozen=True, slots=True)
class Op:
    """One change or sync. `number` names a file (its inode), paths are relative to the root."""

    kind: Literal[
        "create",
        "mkdir",
        "write",
        "resize",
        "rename",
        "link",
        "unlink",
        "rmdir",
        "sync",
        "syncdir",
        "syncall",
    ]
    number: int = 0
    path: str = ""
    to: str = ""
    offset: int = 0  # of a write; the new size of a resize
    data: bytes = b""

    def __str__(self) -> str:
        what = f"{self.path}{' -> ' + self.to if self.to else ''}" or f"file {self.number}"
        more = {
            "write": f" {len(self.data)} bytes at {self.offset}",
            "resize": f" to {self.offset}",
        }
        return f"{self.kind} {what}{more.get(self.kind, '')}"


@dataclass(slots=True, eq=False)
class File:
    """An inode: what a process reads, what is safe, and the changes between the two."""

    now: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)

    def change(self, change: tuple[int, bytes] | int) -> None:
        change_bytes(self.now, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.safe = bytes(self.now)
        self.pending.clear()

    def after_power_cut(self, mode: str, dice: random.Random, sector: int) -> bytes:
        """The bytes that are left; `mode` is one of MODES."""
        if not self.pending or mode == "nothing":
            return self.safe
        if mode == "everything":
            return bytes(self.now)
        if mode == "prefix":
            left = bytearray(self.safe)
            for change in self.pending[: dice.randrange(len(self.pending) + 1)]:
                change_bytes(left, change)
            return bytes(left)
        return self._sectors(dice, sector)

    def _sectors(self, dice: random.Random, sector: int) -> bytes:
        """Each sector, and the size, as they were at a moment of their own since the last sync."""
        moments = len(self.pending) + 1
        ends = [c if isinstance(c, int) else c[0] + len(c[1]) for c in self.pending]
        count = -(-max([*ends, len(self.safe)]) // sector)
        wanted: dict[int, list[int]] = {}
        for number in range(count):
            wanted.setdefault(dice.randrange(moments), []).append(number)
        size_at = dice.randrange(moments)
        left, past, size = bytearray(count * sector), bytearray(self.safe), 0
        for moment in range(moments):
            if moment:
                change_bytes(past, self.pending[moment - 1])
            if moment == size_at:
                size = len(past)
            for number in wanted.get(moment, ()):
                piece = past[number * sector : (number + 1) * sector]
                left[number * sector : number * sector + len(piece)] = piece
        return bytes(left[:size])


def change_bytes(data: bytearray, change: tuple[int, bytes] | int) -> None:
    """Write (offset, bytes), or take a new size; what lies between is zero."""
    end = change if isinstance(change, int) else change[0] + len(change[1])
    if len(data) < end:
        data.extend(bytes(end - len(data)))
    if isinstance(change, int):
        del data[change:]
    else:
        data[change[0] : end] = change[1]


Entry = File | None  # None: a directory


@dataclass(slots=True, eq=False)
class Naming:
    """A change of names that happens as one: path -> its new entry, or "gone"."""

    changes: dict[str, Entry | Literal["gone"]]
    directories: set[str]

    def apply(self, names: dict[str, Entry]) -> None:
        for path, entry in self.changes.items():
            if entry == "gone":
                names.pop(path, None)
            else:
                names[path] = entry


class Disk:
    """Files and directories below one root: as a process sees them, and what is safe of them."""

    def __init__(self, rules: DiskRules | None = None) -> None:
        self.rules = rules or DiskRules()
        self.names: dict[str, Entry] = {}  # as a process sees them
        self.safe: dict[str, Entry] = {}
        self.pending: list[Naming] = []
        self.numbers: dict[int, File] = {}

    def files(self) -> dict[str, bytes | None]:
        """The files that a process sees, and that kill -9 leaves; None stands for a directory."""
        return {p: None if e is None else bytes(e.now) for p, e in sorted(self.names.items())}

    def apply(self, op: Op) -> None:
        """Do one operation, which succeeds."""
        match op.kind:
            case "create":
                self.numbers[op.number] = File()
                self._name({op.path: self.numbers[op.number]}, op)
            case "mkdir":
                self._name({op.path: None}, op)
            case "link":
                self._name({op.to: self.names[op.path]}, op)
            case "unlink" | "rmdir":
                self._name({op.path: "gone"}, op)
            case "rename":
                self._rename(op)
            case "write":
                self.numbers[op.number].change((op.offset, op.data))
            case "resize":
                self.numbers[op.number].change(op.offset)
            case "sync" | "syncdir" | "syncall":
                self._sync(op)

    def _name(self, changes: dict[str, Entry | Literal["gone"]], op: Op) -> None:
        paths = [path for path in (op.path, op.to) if path]
        naming = Naming(changes, {posixpath.dirname(path) for path in paths})
        naming.apply(self.names)
        self.pending.append(naming)

    def _rename(self, op: Op) -> None:
        changes: dict[str, Entry | Literal["gone"]] = {}
        for path, entry in self.names.items():
            if path == op.path or path.startswith(op.path + "/"):
                changes[path] = "gone"
                changes[op.to + path[len(op.path) :]] = entry
        self._name(changes, op)

    def _sync(self, op: Op) -> None:
        if op.kind == "syncdir":
            self._settle([n for n in self.pending if op.path in n.directories])
        elif op.kind == "sync":
            file = self.numbers[op.number]
            file.sync()
            if self.rules.file_sync_keeps_name:
                self._settle([n for n in self.pending if file in n.changes.values()])
        else:
            for entry in [*self.names.values(), *self.numbers.values()]:
                if entry is not None:
                    entry.sync()
            self._settle(self.pending)

    def _settle(self, namings: list[Naming]) -> None:
        """These are safe, and so is what came before them with the same names."""
        needed: list[Naming] = []
        paths = set[str]()
        for naming in reversed(self.pending):
            if naming in namings or paths & naming.changes.keys():
                needed.insert(0, naming)
                paths |= naming.changes.keys()
        for naming in needed:
            naming.apply(self.safe)
            self.pending.remove(naming)

    def power_cut(self, seed: int) -> None:
        """Lose power now: what is left is safe from here on. The same seed leaves the same.

        Of names: nothing new, everything, the first few changes, or some of them; a rename happens
        as one, and a change only with all earlier ones of the same names. Of a file's bytes:
        nothing new, everything, the first few writes, or every sector, and the size, as it was at
        some moment since the last sync. Seed 0 leaves nothing new; 1 all names and no bytes; 2 all
        bytes and no names.
        """
        dice = random.Random(seed)  # noqa: S311
        names = self._names_left(dice.choice(MODES) if seed > 2 else MODES[seed == 1], dice)
        left: dict[File, File] = {}
        for _, entry in sorted(names.items()):
            if entry is not None and entry not in left:
                mode = dice.choice(MODES) if seed > 2 else MODES[seed == 2]
                data = entry.after_power_cut(mode, dice, self.rules.sector)
                left[entry] = File(bytearray(data), data)
        self.names = {p: None if e is None else left[e] for p, e in names.items()}
        self.safe = dict(self.names)
        self.pending, self.numbers = [], {}

    def _names_left(self, mode: str, dice: random.Random) -> dict[str, Entry]:
        first = dice.randrange(len(self.pending) + 1)
        names, dropped = dict(self.safe), set[str]()
        for index, naming in enumerate(self.pending):
            kept = {
                "nothing": False,
                "everything": True,
                "prefix": index < first,
                "parts": dice.random() < 0.5,
            }[mode]
            if kept and not dropped & naming.changes.keys():
                naming.apply(names)
            else:
                dropped |= naming.changes.keys()
        return {path: entry for path, entry in names.items() if _reachable(path, names)}

    def bind(self, numbers: dict[str, int]) -> None:
        """Take over the files' new numbers (inodes): path -> number."""
        self.numbers = {n: f for p, n in numbers.items() if (f := self.names[p]) is not None}


def _reachable(path: str, names: dict[str, Entry]) -> bool:
    parent = posixpath.dirname(path)
    return not parent or (names.get(parent, "gone") is None and _reachable(parent, names))
