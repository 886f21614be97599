"""NSQ's own diskqueue, played through a small Go program, and calls to play on it and on ours."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from qindex import DiskQueue

PROGRAM = Path(__file__).with_name("go_diskqueue")
RECORDED = PROGRAM / "recorded.json"  # what the original answered and left, without Go
NAME = "q"
CALLS = 400
SEEDS = range(12)


class Original:
    """The original. Its process is killed at the end, if not before."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def open(self, folder: Path, max_bytes: int) -> None:
        assert self.call("open", folder, NAME, max_bytes) == "ok"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Ours:
    """qindex.DiskQueue in the original's files, with the same calls and answers."""

    def open(self, folder: Path, max_bytes: int) -> None:
        self._queue = DiskQueue(NAME, folder, max_bytes_per_file=max_bytes, format="nsq")

    def call(self, *words: str) -> str:
        match words:
            case "put", body:
                self._queue.put(bytes.fromhex(body))
            case (("get" | "peek") as verb,):
                body = getattr(self._queue, verb)()
                return "none" if body is None else f"0x{body.hex()}"
            case ("depth",):
                return str(self._queue.depth)
            case (("empty" | "close") as verb,):
                getattr(self._queue, verb)()
            case _:
                raise ValueError(words)
        return "ok"


def build(folder: Path) -> Path:
    """The Go program, built there; skips the test where that is not possible."""
    if shutil.which("go") is None:
        pytest.skip("no Go here (Debian: apt-get install golang-go)")
    source = shutil.copytree(PROGRAM, folder / "source")
    program = folder / "go_diskqueue"
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOCACHE": str(folder / "cache")}
    built = subprocess.run(
        ["go", "build", "-o", program, "."],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
    )
    if "github.com/nsqio/go-diskqueue" in built.stderr:
        pytest.skip("go-diskqueue's source is neither in Go's cache nor to be fetched")
    assert built.returncode == 0, built.stderr
    return program


def script(seed: int) -> list[list[tuple[str, ...]]]:
    """Sessions of calls, each ended by a close; what is in the bodies does not matter."""
    dice = random.Random(seed)
    sessions: list[list[tuple[str, ...]]] = [[]]
    weights = {"put": 12, "get": dice.choice([6, 11, 14]), "peek": 3, "depth": 2, "close": 0.3}
    weights["empty"] = 0.2
    for number in range(CALLS):
        (verb,) = dice.choices(list(weights), list(weights.values()))
        if verb == "put":
            size = dice.choice([0, 3, 30, dice.randrange(300)])
            sessions[-1].append(("put", (f"{number:06x}" * 100)[: 2 * size]))
        else:
            sessions[-1].append((verb,))
        if verb == "close":
            sessions.append([])
    return [*sessions[:-1], [*sessions[-1], ("close",)]]


def max_bytes(session: int) -> int:
    """A restart may bring another size of files."""
    return [1000, 300, 4096][session % 3]


def left(folder: Path) -> dict[str, str]:
    """The files, but for those that the original calls .bad in the middle of health (nsq #1514)."""
    return {
        file.name: file.read_text()
        if "meta" in file.name
        else f"{file.stat().st_size} {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
        for file in sorted(folder.iterdir())
        if file.suffix != ".bad"
    }


def play(players: list[Original | Ours], folder: Path, seed: int) -> list[object]:
    """For each session, which the players have in turn, its answers and the files that it left."""
    folder.mkdir()
    told: list[object] = []
    for number, calls in enumerate(script(seed)):
        player = players[number % len(players)]
        player.open(folder, max_bytes(number))
        answers = "\n".join(player.call(*call) for call in calls)
        told.append([hashlib.sha256(answers.encode()).hexdigest()[:16], left(folder)])
    return told


def record(program: Path, folder: Path) -> dict[str, list[object]]:
    """What the original answers and leaves, for each seed."""
    original = Original(program)
    try:
        return {str(seed): play([original], folder / f"{seed}", seed) for seed in SEEDS}
    finally:
        original.kill()
