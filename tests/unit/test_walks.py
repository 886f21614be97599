"""docs/internals/walks.rst names files and functions: each of them is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/internals/walks.rst").read_text()
WALK = re.compile(r"^\*(\w[\w ]*)\*[^\n]*::\n\n((?:    \S[^\n]*\n)+)", re.MULTILINE)
WALKS = {name: [line.split() for line in lines.splitlines()] for name, lines in WALK.findall(PAGE)}
STEPS = [(name, *step) for name, steps in WALKS.items() for step in steps]
SOURCES = [
    *(ROOT / "c_ext").rglob("*.[ch]"),
    *(ROOT / "qindex").rglob("*.py"),
]


def defines(text, name, *, is_python):
    """The definition: in C its line begins in the first column, and a body follows."""
    if is_python:
        return re.search(rf"^(class|def) {name}\b", text, re.MULTILINE)
    return re.search(rf"^\w[^;{{}}]*\b{name}\([^;{{}}]*\{{", text, re.MULTILINE)


def test_the_five_walks_are_there():
    assert list(WALKS) == ["Publish", "Get", "Ack", "Recover", "A row of Spark"]


@pytest.mark.parametrize(("walk", "file", "names"), [(s[0], s[1], s[2:]) for s in STEPS])
def test_each_file_defines_what_the_walk_says(walk, file, names):
    text = (ROOT / file).read_text()
    assert names, walk
    for name in names:
        assert defines(text, name, is_python=file.endswith(".py")), f"{file} has no {name}"


def test_a_get_needs_at_most_six_files_of_the_engine():
    assert len([file for file, *_ in WALKS["Get"] if "/python/" not in file]) <= 6


def test_each_function_and_file_of_the_prose_is_there():
    code = {path: path.read_text() for path in SOURCES}
    everything = "\n".join(code.values())
    functions = set(re.findall(r"``(qi_\w+)``", PAGE))
    assert len(functions) > 30
    missing = [name for name in functions if not re.search(rf"\b{name}\(", everything)]
    assert missing == []
    names = {path.name for path in code}
    files = set(re.findall(r"\b([a-z_]+\.(?:c|h|py))\b", PAGE))
    assert len(files) > 20
    assert files - names == set()
