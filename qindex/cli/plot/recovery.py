"""How long it takes to bring messages back, measured: the time against the size."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qindex.look.messages import Choice
from qindex.look.screen import Screen
from qindex.look.sources import open_source
from qindex.look.text import printable


@dataclass(slots=True)
class Opening:
    """Until the number of messages in each queue is known. `bytes`: of all files, as allocated."""

    path: str
    format: str
    bytes: int
    messages: int
    seconds: float


@dataclass(slots=True)
class Reading:
    """All messages of one queue; `bytes` of their bodies."""

    path: str
    queue: str
    bytes: int
    messages: int
    seconds: float


@dataclass(slots=True)
class Times:
    openings: list[Opening] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    damaged: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(paths: list[str], screen: Screen) -> Times:
    """Opens each directory and reads all of its messages once, in order; writes nothing.

    What is read for the first time comes from the disk, the second time from memory.
    """
    times = Times()
    for path in paths:
        started = time.perf_counter()
        with open_source(path, screen) as source:
            messages = sum(source.depth(name) for name in source.names())
            seconds = time.perf_counter() - started
            size = _bytes_below(Path(path))
            times.openings.append(Opening(printable(path), source.format, size, messages, seconds))
            with screen.progress(f"reading {printable(path)}", "messages") as progress:
                done = 0
                for name in source.names():
                    reading = Reading(printable(path), printable(name), 0, 0, 0.0)
                    started = time.perf_counter()
                    for message in source.messages(name, Choice()):
                        reading.messages += 1
                        reading.bytes += len(message.body)
                        done += 1
                        progress.at(done, messages)
                    reading.seconds = time.perf_counter() - started
                    times.readings.append(reading)
            times.damaged += source.damage()
    return times


def _bytes_below(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_blocks * 512
        except OSError:  # gone meanwhile
            continue
    return total
