"""What each of Spark's Python workers does once."""

from __future__ import annotations

import gc

_tasks = 0


def settle() -> None:
    """Call it first in each task: Spark collects garbage after every one, over all objects.

    Those that are there after the first tasks stay for ever, so they are not looked at again: 40 ms
    less per task. Three, because modules are still being imported during the first two.
    """
    global _tasks
    if _tasks < 3:
        gc.collect()
        gc.freeze()
        _tasks += 1
