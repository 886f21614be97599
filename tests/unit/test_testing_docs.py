"""The documentation of qindex.testing shows what is true."""

import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import qindex
import qindex.testing
from qindex.testing import find
from qindex.testing.adapters.naive import Naive

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing/index.rst").read_text(encoding="utf-8")


def test_the_example_is_the_adapter_that_ships():
    assert textwrap.indent(inspect.getsource(Naive), "    ") in PAGE


def test_the_example_is_found_out(capsys):
    broken = find(Naive, examples=50)
    assert broken is not None
    assert broken.violations[0].kind in ("unreadable", "lost")


@pytest.mark.slow
def test_the_example_is_a_test_file_that_fails_for_the_right_reason(tmp_path):
    block = PAGE.partition(".. code-block:: python\n")[2].partition("\n``pytest`` runs it")[0]
    (tmp_path / "test_naive.py").write_text(textwrap.dedent(block))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_naive.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(qindex.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 failed" in done.stdout
    assert "replay(Naive" in done.stdout
    assert "JSONDecodeError" in done.stdout


def test_every_promise_is_explained():
    for name in qindex.testing.Promise.__dataclass_fields__:
        assert f"``{name}``" in PAGE


def test_names_that_do_not_exist_are_told():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = qindex.testing.nonsense
