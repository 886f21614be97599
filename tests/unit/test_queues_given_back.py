"""Which queue gives its descriptors back, and what that costs."""

from pathlib import Path
from typing import Any

import pytest
from helpers import count_syncs

import qindex

BOUND = 24  # the least that a store may be given
QUEUES = 40


def folders_open() -> str:
    """What the process has open, as paths, one behind the other."""
    links = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(each.readlink()))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return " ".join(links)


def test_the_queue_that_was_used_the_longest_time_ago_gives_its_files_back(tmp_path: Path) -> None:
    # A queue that the background thread syncs keeps its files meanwhile, and one that is idle does
    # not: both out of turn.
    options: dict[str, Any] = {"max_open_files": BOUND, "sync": "never", "idle": 3600}
    with qindex.open(tmp_path / "store", **options) as store:
        queues = [store.queue(f"{number}") for number in range(QUEUES)]
        for queue in queues:
            queue.publish(b"x")
            queues[0].publish(b"in use all the time")
        paths = folders_open()
        folders = [store.queue_directory(queue.name) for queue in queues]
        assert folders[0] in paths
        assert folders[-1] in paths
        assert folders[1] not in paths
        assert [folder in paths for folder in folders[1:]] == sorted(
            folder in paths for folder in folders[1:]
        )


@pytest.mark.slow
def test_giving_files_back_costs_no_sync(tmp_path: Path) -> None:
    def syncs(turns: int) -> int:
        program = f"""
            import sys, qindex
            store = qindex.open(sys.argv[1], sync="never", max_open_files={BOUND}, idle=3600)
            store.create_queues(f"{{i}}" for i in range({QUEUES}))
            for turn in range({turns}):
                for i in range({QUEUES}):
                    store.queue(f"{{i}}").publish(b"x")
            store.close()
            """
        folder = tmp_path / f"{turns}"
        folder.mkdir()
        return sum(count_syncs(program, folder))

    assert syncs(30) <= syncs(2) + 4  # 1,120 times more a queue is opened again
