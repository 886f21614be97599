"""Who may import whom (pyproject.toml, [tool.importlinter]), and that a violation is seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

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


UPWARDS = [
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
]


def copied(home: Path) -> Path:
    """The sources of qindex, to be changed."""
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    return Path(shutil.copytree(ROOT / "qindex", home / "qindex", ignore=left_out))


def test_lines_that_import_upwards_are_found(tmp_path: Path) -> None:
    """Also those inside a function, as these are."""
    sources = copied(tmp_path)
    for number, (file, imported) in enumerate(UPWARDS):
        with (sources / file).open("a") as into:
            into.write(f"\n\ndef _lazy_{number}():\n    import {imported}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    for file, imported in UPWARDS:
        module = "qindex." + file.removesuffix(".py").replace("/", ".")
        assert f"{module} -> {imported}" in done.stdout


def test_a_new_module_of_the_library_needs_a_line(tmp_path: Path) -> None:
    (copied(tmp_path) / "novel.py").write_text("")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "novel" in done.stdout
