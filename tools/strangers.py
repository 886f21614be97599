"""Random use of a store by somebody who has read the guide and nothing else.

    python tools/strangers.py model --steps 20000   each call's result against a model
    python tools/strangers.py kills --kills 100     the same in a child that is killed
    python tools/strangers.py crowd --kills 100     120 queues, hostile names, transactions, moves
    python tools/strangers.py clocks --steps 5000   a clock that is set forward and back
    python tools/strangers.py consumers --steps 9000   a consumer, events, counters, and 1 kill of
                                                    the same for each 100 steps

The model is written from docs/guide, not from the code: priorities, delays (0 and other times that
are over, and far ones), expiry, deliveries, dead letters, redrive, reschedule, delete, purge, the
limits with all they do instead, fan-out, stacks. It is a list that is sorted for each question.
Exit code 0: no difference. A difference is printed with the seed and the last calls.
"""

from __future__ import annotations

import argparse
import copy
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import stranger_clocks
import stranger_consumers
import stranger_kills
from stranger_model import RULES, Difference
from stranger_play import Call, Play

OPTIONS: Final[list[dict[str, Any]]] = [
    {"segment_entries": 16, "max_journal_entries": 60, "embed_below": 20},
    {"format": 2, "segment_entries": 32, "max_journal_entries": 100},
    {"keep_history": 1 << 16, "idle": 0.01, "max_journal_entries": 40},
    {"io": "pwrite", "sync": "never", "message_file_size": 4096, "embed_below": 9},
]


def plays(folder: Path, seed: int) -> Iterator[Play]:
    while True:
        options = {**OPTIONS[seed % len(OPTIONS)], "expire": False}
        yield Play(folder / f"s{seed}", seed, options)
        seed += 1


def run_model(folder: Path, steps: int, seed: int) -> str:
    done = opened = 0
    for play in plays(folder, seed):
        if done >= steps:
            break
        try:
            for _ in range(4):
                play.open()
                opened += 1
                for model in play.models:
                    model.restart()
                for number in range(len(RULES)):
                    play.compare(number)
                play._same(play.contents(), play.wanted(play.models))
                for _ in range(min(steps - done, 250)):
                    play.call()
                    done += 1
                play.store.close()
        except Difference as difference:
            raise SystemExit(_told(play, difference)) from None
    return f"{done:,} calls, {opened:,} opens: as the guide says"


def _told(play: Play, difference: Difference) -> str:
    number = play.last[-1][1] if play.last else 0
    calls = "\n".join(f"  {call}" for call in play.last if call[1] == number)
    there = "\n".join(f"  {m}" for m in play.models[number].waiting())
    return f"{play.path.name}, {play.options}:\n{calls}\nin order:\n{there}\n{difference}"


# --- kills --------------------------------------------------------------------------------------


def run_kills(folder: Path, kills: int, seed: int) -> str:
    """A child plays and writes each call before it and each result behind it."""
    done = killed = 0
    for play in plays(folder, seed):
        play.dice = random.Random(seed)
        for _ in range(min(10, kills - killed)):
            done += _one_kill(play)
            killed += 1
        if killed >= kills:
            return f"{killed} kills within {done:,} calls: nothing lost, doubled or wrong"
        seed += 1
    raise AssertionError


def _one_kill(play: Play) -> int:
    start = play.dice.randrange(1 << 30)
    calls, last = stranger_kills.killed(
        play.path, play.dice.uniform(0.02, 0.4), lambda fd: _play_until_killed(play, fd, start)
    )
    try:
        for call, result in calls:
            play.last = [*play.last[-40:], call]
            play.follow(call, result)
        _after_kill(play, last)
    except Difference as difference:
        raise SystemExit(_told(play, difference)) from None
    return len(calls)


def _play_until_killed(play: Play, fd: int, start: int) -> None:
    try:
        play.dice = random.Random(start)
        play.open()
        while True:
            call = play.choose()
            if call[0] == "reschedule":
                model = play.models[call[1]].kept.get(call[2][0])
                if model is not None and model.timed and call[2][1] is None:
                    continue  # its time would be that of the call, which the log may not tell
            os.write(fd, b"C" + pickle.dumps(call).hex().encode() + b"\n")
            result = play.do(call)
            if call[0] in ("publish", "many", "fan out", "nack", "later"):
                for queue in play.queues:
                    queue.expire()
            os.write(fd, b"R" + pickle.dumps(result).hex().encode() + b"\n")
            play.follow(call, result)
    except BaseException as error:
        os.write(fd, repr(error).encode())
        os._exit(1)


def _after_kill(play: Play, last: Call | None) -> None:
    """What is there is what the model has, without the last call or with it."""
    play.open()
    found = play.contents()
    damage = [str(f) for f in play.store.check() if f.severity == "damage"]
    play.store.close()
    if damage:
        raise Difference(f"check: {damage}")
    outcomes = []
    for happened in (False, True) if last is not None else (False,):
        models = copy.deepcopy(play.models)
        other = Play(play.path, 0, play.options)
        other.models = models
        if happened and not _imagine(other, last, found):
            continue
        for model in models:
            model.restart()
        wanted = other.wanted(models)
        if wanted == found:
            play.models = models
            return
        outcomes.append(_first_difference(wanted, found))
    raise Difference(f"after the kill in {last}: " + "\nor ".join(outcomes))


def _imagine(play: Play, call: Call, found: list[list[tuple[Any, ...]]]) -> bool:  # noqa: C901
    """The model behind a call whose result nobody has got. False: it cannot have been made."""
    verb, number, what = call
    targets = [0, 1] if verb == "fan out" else [number]
    if verb in ("publish", "many", "fan out"):
        for each in targets:
            model = play.models[each]
            made = model.publish([what[0]] * (what[1] if verb == "many" else 1), what[2])
            news = [row[0] for row in found[each] if row[0] not in model.kept]
            if isinstance(made, str):
                return False
            if len(news) == len(made):
                model.add(made, news)
            elif news or not made[0].is_expired() or model.rules.get("dead_letters"):
                return False  # only what has expired may be gone again
        return True
    model = play.models[number]
    if verb in ("get", "newest", "get many"):
        counts = {row[0]: row[3] for row in found[number]}
        for message in model.waiting():
            if counts.get(message.req_id, 0) > message.count:
                model.deliver(message)
            elif message.req_id not in counts and not model.rules.get("dead_letters"):
                tries = model.rules.get("max_deliveries")
                if tries and message.count + 1 == message.tries_end:
                    del model.kept[message.req_id]  # delivered for the last time, and dropped
        return True
    one = model.kept.get(what[0]) if isinstance(what, tuple) else None
    result: Any = None
    if verb == "redrive":  # one by one, by ReqId
        dead = sorted(m.req_id for m in model.kept.values() if m.state == "dead")[:what]
        is_dead = {row[0]: row[2] is not None for row in found[number]}
        for req_id in dead:
            if is_dead.get(req_id, True):
                break
            model.redrive(model.kept[req_id])
        return True
    if verb == "purge" and what != "all":  # in parts
        alive = {row[0] for row in found[number]}
        for req_id in model.in_state(what):
            if req_id not in alive:
                del model.kept[req_id]
        return True
    if verb == "purge":
        result = len(model.in_state(what))
    elif one is not None and verb == "reschedule":
        result = what[1]
    try:
        play.follow(call, result)
    except Difference:
        return False
    return True


def _first_difference(wanted: list[Any], found: list[Any]) -> str:
    for number, (w, f) in enumerate(zip(wanted, found, strict=True)):
        if w != f:
            missing = [row for row in w if row not in f]
            more = [row for row in f if row not in w]
            return f"q{number}: wanted and not there {missing[:5]}, there and not wanted {more[:5]}"
    return "?"


def run_consumers(folder: Path, steps: int, seed: int) -> str:
    told = stranger_consumers.run_consumers(folder, steps, seed)
    return told + "\n" + stranger_consumers.run_kills(folder, max(1, steps // 100), seed)


RUNS: Final = {
    "model": run_model,
    "kills": run_kills,
    "crowd": stranger_kills.run_crowd,
    "clocks": stranger_clocks.run_clocks,
    "consumers": run_consumers,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=list(RUNS))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strangers.") as folder:
        amount = options.kills if options.what in ("kills", "crowd") else options.steps
        print(RUNS[options.what](Path(folder), amount, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
