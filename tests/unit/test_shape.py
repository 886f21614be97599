"""What review need not argue about: sizes, borders between rooms, and what an import costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import qindex

ROOT = Path(__file__).parents[2]
PYTHON_LINES_MAX = 400
C_LINES_MAX = 500
C_FUNCTION_LINES_MAX = 70
SYSTEM_HEADERS = {"unistd.h", "fcntl.h", "sys/mman.h", "sys/stat.h"}

PYTHON_FILES = sorted(
    file
    for folder in ("qindex", "c_ext", "docs", "tests", "tools")
    for file in ROOT.glob(f"{folder}/**/*.py")
)
C_FILES = sorted(ROOT.glob("c_ext/**/*.[ch]"))


def shown(file):
    return str(file.relative_to(ROOT))


def lines_of(file):
    return file.read_text(encoding="utf-8").splitlines()


def includes_of(file):
    return set(
        re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', file.read_text(encoding="utf-8"), re.M)
    )


def c_functions(lines):
    """Yield (name, number of lines) of each function, trusting clang-format for the columns."""
    start = name = None
    for number, line in enumerate(lines):
        if start is None:
            found = re.match(r"[A-Za-z_].*?\b(\w+)\((?!.*;\s*$)", line)
            if found and not line.startswith("typedef") and "=" not in line:
                start, name = number, found[1]
        elif line.endswith(";") and not line.startswith((" ", "}")):
            start = None  # A declaration that took more than one line.
        if start is not None and line.startswith("}"):
            yield name, number - start + 1
            start = None


def test_a_python_file_is_short_enough_to_read():
    sizes = {shown(file): len(lines_of(file)) for file in PYTHON_FILES}
    assert {name: size for name, size in sizes.items() if size > PYTHON_LINES_MAX} == {}


def test_a_c_file_is_short_enough_to_read():
    sizes = {shown(file): len(lines_of(file)) for file in C_FILES}
    assert {name: size for name, size in sizes.items() if size > C_LINES_MAX} == {}


def test_a_c_function_fits_on_a_screen():
    sizes = {
        f"{shown(file)}: {name}": size
        for file in C_FILES
        for name, size in c_functions(lines_of(file))
    }
    assert {name: size for name, size in sizes.items() if size > C_FUNCTION_LINES_MAX} == {}


def test_the_function_counter_sees_functions():
    names = [name for name, _ in c_functions(lines_of(ROOT / "c_ext/base/crc32c.c"))]
    assert "qi_crc32c" in names
    assert "qi_crc32c_portable" in names


def test_the_files_are_there():
    assert len(PYTHON_FILES) > 500
    assert len(C_FILES) > 150


def test_the_core_does_not_know_python():
    others = ("python", "amqp")  # the one door; an extension that knows no core
    core = [file for file in C_FILES if file.parent.name not in others]
    assert [shown(file) for file in core if any("Python.h" in h for h in includes_of(file))] == []


def is_disk_room(file):
    """The record is a library of its own, which stands in libc's place."""
    is_disk = file.parent.name == "disk" and file.suffix == ".c"
    return is_disk or file.name == "disk_sim.c" or file.parent.name == "record"


def test_only_the_disk_rooms_talk_to_the_operating_system():
    others = [file for file in C_FILES if not is_disk_room(file)]
    assert [shown(file) for file in others if includes_of(file) & SYSTEM_HEADERS] == []


@pytest.mark.parametrize("also", ["", "qindex.DiskQueue;"])
def test_importing_qindex_loads_no_heavy_friend(also):
    names = "{name.partition('.')[0] for name in sys.modules}"
    script = f"import sys, qindex; {also} print(*{names})"
    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd="/"
    ).stdout.split()
    heavy = {"asyncio", "hypothesis", "lmdb", "multiprocessing", "pandas", "pika", "pyarrow"}
    heavy |= {"http", "pyspark", "pytest", "rich", "sqlite3", "subprocess", "unittest"}
    assert not heavy & set(loaded)


def test_every_public_name_exists_and_is_listed_once():
    names = getattr(qindex, "__all__", [])
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(qindex, name)] == []


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "qindex/py.typed").is_file()
