"""docs/rescue/runbook.rst is run: each `$ command` in it prints what stands below it."""

import doctest
import re
import shlex
import shutil
import subprocess
from pathlib import Path

RUNBOOK = Path(__file__).parents[2] / "docs/rescue/runbook.rst"
UNPACK = "tar xf"  # the one command that is not run: the node is there already
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PICTURE_BYTES_MAX = 100_000


def steps():
    """(command, what it prints), in order; what is not behind a $ in a literal block is prose."""
    found = []
    for line in RUNBOOK.read_text("utf-8").splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
            continue
        is_output = not line or line.startswith("    ")
        if is_output and found and found[-1][0]:
            found[-1][1].append(line[4:])
        else:
            found.append(("", []))  # prose: the block has ended
    return [(command, "\n".join(out)) for command, out in found if command]


VARY = [  # from run to run, and with the years
    (r"\d\d:\d\d:\d\d", "TIME"),
    (r"(?:> )?[\d.]+ (?:ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?", "DURATION"),
    (r"[\d.]+(?: [kM])? messages/s", "RATE"),
]
SIZES = (r"[\d.]+ (?:B|kB|MB|GB|TB)\b", "SIZE")  # of files, where the file system has a say
TODAY = (r"\d{4}-\d\d-\d\d(?=T\d\d:)", "DATE")


def settled(command, text):
    sizes = [SIZES] if command.startswith(("qindex top", "qindex check")) else []
    today = [TODAY] if command.startswith("qindex top") else []
    for pattern, word in [*today, *VARY, *sizes]:
        text = re.sub(pattern, word, text)
    return text


def test_the_runbook_prints_what_it_says(run, dead_node, tmp_path, monkeypatch):
    (node,) = (folder for folder in dead_node.iterdir() if folder.is_dir())
    shutil.copytree(node, tmp_path / "node")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    checker, code, wrong = doctest.OutputChecker(), 0, []
    ran = 0
    for command, expected in steps():
        if command.startswith(UNPACK):
            continue
        if command == "echo $?":
            shown = f"{code}\n"
        elif command.startswith("qindex "):
            code, out, err = run(*shlex.split(command)[1:])
            shown = err + out
        else:
            subprocess.run(command, shell=True, check=True)  # noqa: S602 - cp, truncate, rm
            shown = ""
        ran += 1
        want = expected.strip("\n") + "\n" if expected.strip() else ""
        if not checker.check_output(settled(command, want), settled(command, shown), FLAGS):
            wrong.append(f"$ {command}\n{shown}\n--- the page says ---\n{want}")
    assert not wrong, "\n\n".join(wrong)
    assert ran > 15


def test_the_pictures_of_the_runbook_are_there_and_small():
    names = re.findall(r"^\.\. image:: (\S+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    files = [RUNBOOK.parent / name for name in names]
    assert len(files) >= 4
    assert sum(file.stat().st_size for file in files) < PICTURE_BYTES_MAX
    assert {file.name for file in files} == {file.name for file in files[0].parent.iterdir()}
