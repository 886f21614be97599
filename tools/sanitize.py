"""The test suite, with the engine built under a sanitizer.

    python tools/sanitize.py asan              wrong memory accesses, undefined behaviour
    python tools/sanitize.py tsan              data races: all tests
    python tools/sanitize.py leaks             memory that the engine allocated and nobody freed
    python tools/sanitize.py all               one after the other
    python tools/sanitize.py tsan -- -k kill   what follows -- goes to pytest

The core is built with asserts in a temporary copy of the source tree; this tree stays as it is.
Needs gcc and its sanitizer libraries. CPython itself is not instrumented: what is reported is about
the engine. Exit code 0: nothing was found and the tests passed; 1: otherwise.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.so", "__pycache__", ".*_cache", ".hypothesis"
)
# About the source text, or about time and memory, which are not the same under a sanitizer.
NOT_FOR_SANITIZERS = ["tests/unit/test_shape.py", "tests/unit/test_bench_smoke.py"]
NOT_FOR_SANITIZERS += ["tests/unit/test_many_queues_cost.py"]
NOT_FOR_SANITIZERS += ["tests/fuzz/test_limits.py", "tests/fuzz/test_corpus.py"]
# These compile the engine themselves, the tests in C with sanitizers of their own.
NOT_FOR_SANITIZERS += ["tests/crash/test_explorer.py", "tests/crash/test_schedules.py"]
NOT_FOR_SANITIZERS += ["tests/unit/test_messages_c.py"]


@dataclass(frozen=True)
class Sanitizer:
    libraries: str
    flags: str
    options: str  # environment variables, {log}: where reports go
    arguments: tuple[str, ...] = ()  # for pytest


# qindex.testing preloads its recorder in front of ASan's library.
ANY_ORDER = "verify_asan_link_order=0"
# UBSan writes its reports where log_path says only if it is loaded before ASan.
ASAN_LIBRARIES = "libubsan.so libasan.so"
ASAN_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
SANITIZERS = {
    "asan": Sanitizer(
        ASAN_LIBRARIES,
        ASAN_FLAGS,
        f"ASAN_OPTIONS=detect_leaks=0:log_path={{log}}:allocator_may_return_null=1:{ANY_ORDER}"
        " UBSAN_OPTIONS=print_stacktrace=1:log_path={log}",
    ),
    "tsan": Sanitizer(
        "libtsan.so",
        "-fsanitize=thread",
        # CPython's own locks are not seen, so what it does with them is not reported either.
        "TSAN_OPTIONS=log_path={log}:exitcode=0:report_signal_unsafe=0:die_after_fork=0",
        # TSan follows no process with threads through a fork, and takes a closed pipe for the end.
        ("-k", "not fork and not a_child_may_open and not closed_pipe"),
    ),
    "leaks": Sanitizer(
        ASAN_LIBRARIES,
        ASAN_FLAGS,
        f"ASAN_OPTIONS=detect_leaks=1:log_path={{log}}:fast_unwind_on_malloc=0:{ANY_ORDER}"
        " LSAN_OPTIONS=exitcode=0:max_leaks=0:report_objects=0",
    ),
}


def library(name: str) -> str:
    path = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        raise SystemExit(f"sanitize: gcc has no {name}: install its sanitizer libraries")
    return path


def build(sanitizer: Sanitizer, tree: Path) -> None:
    environment = {
        **os.environ,
        "QINDEX_CFLAGS": f"-O1 -g -fno-omit-frame-pointer {sanitizer.flags}",
        "QINDEX_LDFLAGS": sanitizer.flags,
    }
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tree, env=environment, check=True)


def run_tests(sanitizer: Sanitizer, tree: Path, log: Path, arguments: Sequence[str]) -> int:
    # Without the last, ASan ends the process at the first exception of an extension in C++.
    preload = " ".join(map(library, [*sanitizer.libraries.split(), "libstdc++.so.6"]))
    environment = {**os.environ, "LD_PRELOAD": preload}
    environment |= {"PYTHONPATH": str(tree)}
    for assignment in sanitizer.options.format(log=log).split():
        name, _, value = assignment.partition("=")
        environment[name] = value
    # Address space randomisation with many bits leaves TSan's shadow no room.
    fixed = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
    left_out = [f"--ignore={name}" for name in NOT_FOR_SANITIZERS]
    python = str(Path(sys.executable))
    command = [*fixed, python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *left_out]
    arguments = [*sanitizer.arguments, *arguments]
    return subprocess.run([*command, *arguments], cwd=tree, env=environment).returncode


def findings(kind: str, folder: Path) -> list[str]:
    """The reports that are about the engine, each once."""
    seen: dict[str, str] = {}
    for file in sorted(folder.glob("report.*")):
        text = file.read_text(errors="replace")
        if kind == "leaks":
            blocks = re.split(r"\n(?=(?:Direct|Indirect) leak)", text)[1:]
            # Frame 0 is malloc, frame 1 is who called it.
            blocks = [b for b in blocks if re.search(r"#1 [^\n]*(c_ext/|_(core|sim)\.abi3)", b)]
        else:
            blocks = re.split(r"\n(?===+\n)", text)
            blocks = [b for b in blocks if re.search(r"ERROR|WARNING|runtime error", b)]
            # glibc's own threads and allocations look like races to TSan; so do thread-local blocks
            # that a thread leaves behind, for which glibc has no lock that TSan sees.
            blocks = [b for b in blocks if re.search(r"_(core|sim)\.abi3|c_ext/", b)]
            blocks = [b for b in blocks if "_dl_deallocate_tls" not in b]
        for block in blocks:
            key = re.sub(r"0x[0-9a-f]+|pid=\d+|==\d+==|T\d+|\d+ byte", "", block)[:1500]
            seen.setdefault(key, block.strip())
    return list(seen.values())


def sanitize(kind: str, arguments: Sequence[str]) -> bool:
    """Build, run, tell; True if all is well."""
    sanitizer = SANITIZERS[kind]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"qindex-{kind}-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        if (ROOT.parent / "shared").is_dir():  # fixtures that lie beside the project
            Path(folder, "shared").symlink_to(ROOT.parent / "shared")
        build(sanitizer, tree)
        code = run_tests(sanitizer, tree, Path(folder, "report"), arguments)
        found = findings(kind, Path(folder))
        reports = sorted(Path(folder).glob("report.*"), key=lambda file: file.stat().st_mtime)
        if code and reports and not found:  # it may be what ended the tests
            text = reports[-1].read_text(errors="replace")
            print("\nnot about the engine, as it seems:\n" + "\n".join(text.splitlines()[:40]))
    for text in found:
        print(f"\n{text}\n")
    seconds = time.monotonic() - begin
    verdict = "tests passed" if code == 0 else f"pytest ended with {code}"
    print(f"{kind}: {len(found)} reports about the engine, {verdict}, {seconds:.0f} s", flush=True)
    return code == 0 and not found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=[*SANITIZERS, "all"])
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    options = parser.parse_args()
    kinds = list(SANITIZERS) if options.kind == "all" else [options.kind]
    results = [sanitize(kind, options.pytest) for kind in kinds]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
