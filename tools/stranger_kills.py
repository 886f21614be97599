"""A child that writes each call and each result, and is killed. For strangers.py."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stranger_crowd import OPTIONS, Crowd
from stranger_model import Difference

Log = tuple[list[tuple[Any, Any]], Any]


def killed(path: Path, seconds: float, child: Callable[[int], None]) -> Log:
    """Fork, kill the child after so long; the calls with their results, and one without."""
    log = path.with_suffix(".log")
    fd = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        child(fd)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    os.close(fd)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"{path.name}: the child ended: {log.read_bytes()[-3000:]!r}")
    return _read(log)


def write(fd: int, kind: bytes, value: Any) -> None:
    os.write(fd, kind + pickle.dumps(value).hex().encode() + b"\n")


def _read(log: Path) -> Log:
    calls, last = [], None
    for line in log.read_bytes().split(b"\n")[:-1]:
        value = pickle.loads(bytes.fromhex(line[1:].decode()))  # noqa: S301 - our own child's
        if line[:1] == b"C":
            last = value
        else:
            calls.append((last, value))
            last = None
    return calls, last


def run_crowd(folder: Path, kills: int, seed: int) -> str:
    done = count = 0
    while True:
        crowd = Crowd(folder / f"crowd{seed}", seed, OPTIONS[seed % len(OPTIONS)])
        for _ in range(8):
            if count >= kills:
                return f"{count} kills within {done:,} calls: nothing lost, doubled or wrong"
            done += _one_kill(crowd)
            count += 1
        seed += 1


def _one_kill(crowd: Crowd) -> int:
    start = crowd.dice.randrange(1 << 30)
    log, last = killed(crowd.path, crowd.dice.uniform(0.1, 0.8), lambda fd: _play(crowd, fd, start))
    crowd.made += 1_000_000  # no body is like one of this child's
    crowd.restart()
    try:
        for call, result in log:
            crowd.follow(call, result)
        crowd.after_kill(last)
    except Difference as difference:
        raise SystemExit(f"{crowd.path.name}, {crowd.options}:\n{difference}") from None
    return len(log)


def _play(crowd: Crowd, fd: int, start: int) -> None:
    try:
        crowd.dice = random.Random(start)
        crowd.open()
        crowd.restart()
        crowd.compare()
        while True:
            call = crowd.choose()
            write(fd, b"C", call)
            result = crowd.do(call)
            crowd.last = [*crowd.last[-20:], (call, result)]
            write(fd, b"R", result)
            crowd.follow(call, result)
    except BaseException as error:
        os.write(fd, f"{error!r} behind {crowd.last[-3:]!r:.2000}".encode())
        os._exit(1)
