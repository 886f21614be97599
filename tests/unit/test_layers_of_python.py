"""Who may import whom (pyproject.toml, [tool.importlinter]), and that a violation is seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = "from importlinter.cli import lint_imports_command as lint; lint()"


def lint(home: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over `home`/qindex. It reads the files and imports none of them."""
    arguments = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"]
    return subprocess.run(
        [sys.executable, "-c", LINT, *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_go_down() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "imported"),
    [
        ("store.py", "qindex.cli.main"),
        ("spark/tables.py", "qindex.cli.main"),
        ("look/text.py", "qindex.cli.main"),
        ("store.py", "qindex.spark.sink_commit"),
        ("handle.py", "qindex.testing.simulated"),
        ("arguments.py", "qindex.brokers.amqp"),
        ("message.py", "qindex.native.frames"),
        ("queue.py", "qindex.look.text"),
        ("names.py", "qindex.store"),
        ("spark/tables.py", "qindex.testing.simulated"),
        ("brokers/tree.py", "qindex.native.frames"),
        ("cli/ls.py", "qindex.testing.simulated"),
        ("native/frames.py", "qindex.brokers.reader"),
        ("brokers/nsq/file.py", "qindex.brokers.rabbitmq.erlang"),
    ],
)
def test_a_line_that_imports_upwards_is_found(tmp_path: Path, file: str, imported: str) -> None:
    """Also one inside a function, as this one is."""
    copied = tmp_path / "qindex"
    shutil.copytree(ROOT / "qindex", copied, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    with (copied / file).open("a") as into:
        into.write(f"\n\ndef _lazy():\n    import {imported}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    module = "qindex." + file.removesuffix(".py").replace("/", ".")
    assert f"{module} -> {imported}" in done.stdout


def test_a_new_module_of_the_library_needs_a_line(tmp_path: Path) -> None:
    copied = tmp_path / "qindex"
    shutil.copytree(ROOT / "qindex", copied, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (copied / "novel.py").write_text("")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "novel" in done.stdout
