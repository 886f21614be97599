"""The one command before saying "done": format, lint, types, build, tests. CI runs the same.

    python tools/check.py              everything, in about the time that the tests take
    python tools/check.py --fix        first repairs what a tool can repair
    python tools/check.py --package    also builds the sdist, a wheel from it, and imports that

Needs ``pip install -e '.[dev]'``. Exit code 0: all passed; 1: something did not, or could not run.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sysconfig.get_path("scripts"))
PYTHON = sys.executable
PYTHON_SOURCES = ["qindex", "c_ext", "docs", "tests", "tools", "setup.py"]

COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ
GREEN, RED, YELLOW, GREY = "32", "31", "33", "90"


@dataclass
class Result:
    passed: bool
    output: str = ""
    note: str = ""  # What stands in the summary; the output is shown only for a failure.


def paint(colour: str, text: str) -> str:
    return f"\033[{colour}m{text}\033[0m" if COLOURED else text


def run(command: Sequence[str | Path], **environment: str) -> Result:
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            env={**os.environ, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError:
        return Result(False, f"{command[0]} is missing: pip install -e '.[dev]'\n", "not installed")
    return Result(done.returncode == 0, done.stdout)


def c_sources() -> list[Path]:
    return sorted((ROOT / "c_ext").glob("**/*.[ch]"))


def python_format(fix: bool) -> Result:
    return run([BIN / "ruff", "format", *([] if fix else ["--check"]), *PYTHON_SOURCES])


def python_lint(fix: bool) -> Result:
    return run([BIN / "ruff", "check", "--quiet", *(["--fix"] if fix else []), *PYTHON_SOURCES])


def c_format(fix: bool) -> Result:
    result = run(
        [BIN / "clang-format", *(["-i"] if fix else ["--dry-run", "--Werror"]), *c_sources()]
    )
    result.note = result.note or f"{len(c_sources())} files"
    return result


def types(_fix: bool) -> Result:
    result = run([BIN / "mypy", "--strict"])
    if result.passed:
        result.note = last_line(result.output)
    return result


def build(_fix: bool) -> Result:
    flags = f"{os.environ.get('QINDEX_CFLAGS', '')} -Werror"
    # Forced: a warning in a file that did not change since the last build counts too.
    return run([PYTHON, "setup.py", "-q", "build_ext", "--inplace", "--force"], QINDEX_CFLAGS=flags)


def tests(_fix: bool) -> Result:
    result = run([PYTHON, "-m", "pytest", "-n", "auto", "-q", "-rs", "--color=no"])
    skips = [line for line in result.output.splitlines() if line.startswith("SKIPPED")]
    result.note = "\n".join([last_line(result.output), *skips])
    return result


def docs(_fix: bool) -> Result:
    result = run([PYTHON, "tools/docs.py", "--fresh"])
    result.note = last_line(result.output)
    return result


def package(_fix: bool) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        # Without --wheel or --sdist, the wheel is built from the sdist: so both are proven.
        result = run([PYTHON, "-m", "build", "--outdir", folder])
        if not result.passed:
            return result
        (wheel,) = Path(folder).glob("*.whl")
        target = Path(folder, "installed")
        for command in (
            [PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--target", target, wheel],
            [PYTHON, "-P", "-c", "from qindex._core import lib; print(lib.qi_crc32c(0, b'', 0))"],
        ):
            result = run(command, PYTHONPATH=str(target))
            if not result.passed:
                return result
        return Result(True, note=wheel.name)


def last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1].strip("= ") if lines else ""


STEPS: dict[str, Callable[[bool], Result]] = {
    "format (ruff)": python_format,
    "lint (ruff)": python_lint,
    "format (clang-format)": c_format,
    "types (mypy --strict)": types,
    "build (-Werror)": build,
    "docs (sphinx -W -n)": docs,
    "tests (pytest)": tests,
    "package (sdist, wheel)": package,
}


def show(colour: str, mark: str, name: str, seconds: str, note: str) -> None:
    first, *more = note.splitlines() or [""]
    line = f"  {mark} {name:<24} {seconds:>7}  {first}".rstrip()
    if COLOURED:  # A terminal: what is running stands there until its result takes the line.
        line = f"\r{paint(colour, f'{line:<60}')}"
    print(line, end="" if mark == "…" else "\n", flush=True)
    for line in more:
        print(paint(YELLOW, f"{'':38}{line}"))


def check(names: Sequence[str], fix: bool) -> list[str]:
    """Run the steps in turn, say how each went, and return the names of those that failed."""
    failed: list[str] = []
    for name, step in STEPS.items():
        if name not in names:
            show(GREY, "-", name, "", "not asked for: --package")
            continue
        if step is tests and "build (-Werror)" in failed:
            show(YELLOW, "-", name, "", "not run: the build failed")
            failed.append(name)
            continue
        if COLOURED:
            show(GREY, "…", name, "", "")
        begin = time.monotonic()
        result = step(fix)
        seconds = f"{time.monotonic() - begin:.1f} s"
        if result.passed:
            show(GREEN, "✓", name, seconds, result.note)
        else:
            show(RED, "✗", name, seconds, result.note or "failed")
            print(result.output)
            failed.append(name)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fix", action="store_true", help="repair format and lint first")
    parser.add_argument("--package", action="store_true", help="also prove the sdist and the wheel")
    options = parser.parse_args()
    names = [name for name, step in STEPS.items() if step is not package or options.package]
    failed = check(names, options.fix)
    if failed:
        print(paint(RED, f"\n{len(failed)} of {len(names)} failed: {', '.join(failed)}"))
        return 1
    print(paint(GREEN, f"\nAll {len(names)} passed."))
    return 0


if __name__ == "__main__":
    sys.exit(main())
