"""Commands on stores of which any file is damaged in any way: nothing is silent, nothing changed.

A program that was written from the commands' pages alone. What salvage does not have, it, check and
export say, and ls wherever it shows in a number.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import qindex

WAYS = ["flip", "cut", "zeros", "gone", "empty", "folder", "noise", "other", "longer", "fifo"]


def filled(path: Path, form: int) -> Path:
    dice = random.Random(form)
    with qindex.open(path, format=form, segment_entries=64, max_journal_entries=100) as store:
        for name in ("orders", "mail", "ä/..\n\x1b[31m"):
            queue = store.queue(name, dead_letters=True)
            for number in range(150):
                body = b"%d-%s" % (number, b"z" * dice.choice([5, 300, 5000]))
                delay = 3600 if number % 17 == 0 else None
                queue.publish(body, headers={"n": number}, priority=number % 2 * 5, delay=delay)
                if number % 4 == 0 and (message := queue.get()) and number % 8:
                    queue.ack(message)
                if number % 60 == 59:
                    queue.flush()
            queue.nack(queue.get(), requeue=False)
    return path


def content(path: Path) -> Counter[tuple[str, bytes]]:
    with qindex.open(path, read_only=True) as store:
        return Counter(
            (name, m.body) for name in store.queues() for m in store.queue(name).browse()
        )


def sums(path: Path) -> dict[Path, str]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def damage(dice: random.Random, way: str, file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    at = dice.randrange(max(1, len(data)))
    if way == "flip" and data:
        data[at] ^= 1 << dice.randrange(8)
    elif way == "cut":
        del data[at:]
    elif way == "zeros":
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    elif way == "empty":
        data.clear()
    elif way == "noise":
        data = bytearray(dice.randbytes(dice.randrange(9000)))
    elif way == "other":
        data = bytearray(other.read_bytes())
    elif way == "longer":
        data += dice.randbytes(100)
    file.unlink()
    if way == "folder":
        file.mkdir()
    elif way == "fifo":
        os.mkfifo(file)
    elif way != "gone":
        file.write_bytes(data)


@pytest.fixture(scope="module", params=[1, 2])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("whole") / f"format {request.param}", request.param)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sample(10)
def test_what_is_lost_is_told_and_nothing_is_changed(
    run: Any, tmp_path: Path, whole: Path, way: str
) -> None:
    dice = random.Random(f"{way} {whole.name}")
    truth = content(whole)
    files = [file for file in sorted(whole.rglob("*")) if file.is_file() and file.name != "LOCK"]
    for number in range(2):
        store, out = tmp_path / f"s{number}", tmp_path / f"o{number}"
        shutil.copytree(whole, store)
        one, other = (store / dice.choice(files).relative_to(whole) for _ in range(2))
        damage(dice, way, one, other)
        before = sums(store)
        what = f"{way} of {one.relative_to(store)}"
        codes = {}
        for line in (
            "check",
            "ls --json",
            "stats",
            f"salvage --out {out}",
            "cat",
            "du",
            "replay mail",
        ):
            command, *options = line.split()
            ran = run(command, store, *options)
            assert ran.code in (0, 1, 2), what
            assert ran.code != 2 or ran.err, what
            assert "\x1b[31m" not in ran.out + ran.err, what
            codes[command] = ran.code
            if command == "ls" and ran.code == 0:
                assert sum(row["messages"] for row in json.loads(ran.out)) >= truth.total(), what
        lines = tmp_path / f"e{number}.jsonl"
        codes["export"] = run("export", store, "--out", lines).code
        if codes["export"] == 0:
            assert len(lines.read_bytes().splitlines()) >= truth.total(), what
        held = content(out) if (out / "store.meta").exists() else Counter()
        if truth - held:
            assert codes["salvage"] > 0, what
            assert codes["check"] > 0, what
        assert sums(store) == before, what


def test_a_strangers_message_file_is_damage_for_each_command(run, tmp_path):
    path = tmp_path / "s"
    with qindex.open(path, format=2, embed_below=64) as store:
        store.queue("q").publish_many([b"x" * 200] * 3)
    (path / "messages" / "7.qms").write_bytes(b"somebody else's" * 10)
    out = tmp_path / "out"
    commands = (["check"], ["ls"], ["ls", "--json"], ["stats"], ["du"], ["cat", "q"], ["peek", "q"])
    for command, *more in commands:
        assert run(command, path, *more).code == 1, command
    ran = run("salvage", path, "--out", out, "--json")
    assert (ran.code, json.loads(ran.out)["damaged_places"]) == (1, 1)
    assert "messages/7.qms" in ran.err
    with qindex.open(out) as copy:
        assert len(copy.queue("q")) == 3
