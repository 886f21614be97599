"""tools/strangers.py: what the guide says against what the store does, with and without kills."""

from __future__ import annotations

from pathlib import Path

import pytest
import strangers
from stranger_model import Kept, Model


def test_random_calls_do_what_the_guide_says(tmp_path: Path) -> None:
    assert "600 calls" in strangers.run_model(tmp_path, 600, seed=7)


def test_what_is_there_after_a_kill_is_what_was_done(tmp_path: Path) -> None:
    assert "4 kills" in strangers.run_kills(tmp_path, 4, seed=9)


@pytest.mark.slow
@pytest.mark.long
def test_many_random_calls_do_what_the_guide_says(tmp_path: Path) -> None:
    assert strangers.run_model(tmp_path, 50_000, seed=1000)


@pytest.mark.slow
@pytest.mark.long
def test_many_kills_lose_nothing(tmp_path: Path) -> None:
    assert strangers.run_kills(tmp_path, 300, seed=1000)


def test_a_model_that_is_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that does not count, as if a kill had taken it."""
    deliver = Model.deliver

    def forgets(model: Model, message: Kept) -> None:
        deliver(model, message)
        message.count -= message.priority == 2

    monkeypatch.setattr(Model, "deliver", forgets)
    with pytest.raises(SystemExit, match="the guide"):
        strangers.run_model(tmp_path, 600, seed=7)
