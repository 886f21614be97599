"""tools/bench/queuelib_queues.py on tiny counts: it runs, and says what it measured. No timing."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "bench"))

import queuelib_queues


# A LifoDiskQueue that cannot read its file after the kill leaves it open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.slow
def test_queuelibs_queues_are_measured_and_killed(tmp_path: Path) -> None:
    pytest.importorskip("queuelib", reason="queuelib is not installed")
    best, alive = queuelib_queues.rounds(str(tmp_path), 1, 400)
    assert not list(tmp_path.iterdir())
    text = queuelib_queues.shown({"CPU": "one"}, best, alive)
    assert text.count("queuelib, files, saved") == 2  # there is none that is last in, first out
    assert {count for (kind, *_), count in alive.items() if kind == "qindex"} == {200}
    assert str(tmp_path) not in text
