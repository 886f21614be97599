"""The tests of tools/test.sh, with the engine built under a sanitizer.

    python tools/sanitize.py asan              wrong memory accesses, undefined behaviour
    python tools/sanitize.py tsan              data races
    python tools/sanitize.py leaks             memory that the engine allocated and nobody freed
    python tools/sanitize.py all               one after the other
    python tools/sanitize.py asan --slow       the slow tests, too
    python tools/sanitize.py all --canary      bugs on purpose, each of which has to be found
    python tools/sanitize.py tsan -- -k kill   what follows -- goes to pytest

JOBS says how many processes share the tests (else one for each processor). What cannot run under a
sanitizer is skipped; each reason is printed, with the number of tests.

The core is built with asserts in a temporary copy of the source tree; this tree stays as it is.
Needs gcc, its sanitizer libraries, and what `pip install -e '.[dev]'` brings. CPython itself is not
instrumented: what is reported is about the engine. Exit code 0: nothing was found and the tests
passed; 1: otherwise.
"""

import argparse
import ctypes
import gc
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.so", "__pycache__", ".*_cache", ".hypothesis"
)
# Files, and words in the names of tests, that are skipped: under all sanitizers, or under one.
BOUNDS = "it bounds time or memory, which a sanitizer multiplies"
COMPILES = "it compiles the engine itself, with sanitizers of its own"
FORKS = "TSan follows no process with threads through a fork"
SKIPPED = {
    "": {
        "test_shape.py": "it is about the source text",
        "test_bench_smoke.py": BOUNDS,
        "test_many_queues_cost.py": BOUNDS,
        "test_limits.py": BOUNDS,
        "test_corpus.py": BOUNDS,
        "test_explorer.py": COMPILES,
        "test_schedules.py": COMPILES,
        "test_messages_c.py": COMPILES,
    },
    "tsan": {
        "fork": FORKS,
        "a_child_may_open": FORKS,
        "closed_pipe": "TSan takes a closed pipe for the end",
        "test_strangers.py": FORKS,
        "what_a_process_leaves": FORKS,
        "rabbitmqadmin_works": FORKS,
        "batch_ends_at_4_mib": BOUNDS,
        "reads_one_very_large_message_slowly": BOUNDS,
    },
}


# What --canary puts into the core (qi_crc32c_portable), and a test that calls it in two threads.
BUGS = {
    "asan": [
        "char *volatile small = malloc(8); small[8] = 1; free(small);",
        "volatile int bits = 40; bits = 1 << bits;",
    ],
    "tsan": ["static volatile int calls; calls++;"],
    "leaks": ["char *volatile lost = malloc(777); lost[0] = 1; lost = 0;"],
}
CANARY = """
from threading import Thread
from qindex._core import lib

def calls():
    for _ in range(50_000):
        lib.qi_crc32c_portable(0, b"", 0)

def test_the_bug_is_reached():
    threads = [Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@dataclass(frozen=True)
class Sanitizer:
    libraries: str
    flags: str
    options: str  # environment variables, {log}: where reports go


# qindex.testing preloads its recorder in front of ASan's library.
ANY_ORDER = "verify_asan_link_order=0"
# The first one's log_path counts. Of UBSan's reports the summaries go there, and the process ends.
ASAN_LIBRARIES = "libasan.so libubsan.so"
ASAN_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
SANITIZERS = {
    "asan": Sanitizer(
        ASAN_LIBRARIES,
        ASAN_FLAGS,
        f"ASAN_OPTIONS=detect_leaks=0:log_path={{log}}:allocator_may_return_null=1:{ANY_ORDER}"
        " UBSAN_OPTIONS=print_summary=1:log_path={log}",
    ),
    "tsan": Sanitizer(
        "libtsan.so",
        "-fsanitize=thread",
        # CPython's own locks are not seen, so what it does with them is not reported either.
        "TSAN_OPTIONS=log_path={log}:exitcode=0:report_signal_unsafe=0:die_after_fork=0",
    ),
    "leaks": Sanitizer(
        ASAN_LIBRARIES,
        ASAN_FLAGS,
        f"ASAN_OPTIONS=detect_leaks=1:log_path={{log}}:fast_unwind_on_malloc=0:{ANY_ORDER}"
        # It faults when it looks into what is local to threads that have ended.
        " LSAN_OPTIONS=exitcode=0:max_leaks=0:report_objects=0:use_tls=0",
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
    if subprocess.run(command, cwd=tree, env=environment, check=False).returncode:
        raise SystemExit("sanitize: the engine was not built: did you pip install -e '.[dev]'?")


def run_tests(kind: str, tree: Path, log: Path, arguments: Sequence[str]) -> int:
    sanitizer = SANITIZERS[kind]
    # Without the last, ASan ends the process at the first exception of an extension in C++.
    preload = " ".join(map(library, [*sanitizer.libraries.split(), "libstdc++.so.6"]))
    environment = {**os.environ, "LD_PRELOAD": preload, "QINDEX_SANITIZER": kind}
    environment |= {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tools'}"}
    for assignment in sanitizer.options.format(log=log).split():
        name, _, value = assignment.partition("=")
        environment[name] = value
    # Address space randomisation with many bits leaves TSan's shadow no room.
    fixed = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
    jobs = os.environ.get("JOBS") or len(os.sched_getaffinity(0))
    # This module is a plugin of pytest there: see below.
    command = [*fixed, sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    command += ["-p", "sanitize", "-n", str(jobs), "--dist", "worksteal", *arguments]
    return subprocess.run(command, cwd=tree, env=environment).returncode


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipped = SKIPPED[""] | SKIPPED.get(os.environ["QINDEX_SANITIZER"], {})
    for item in items:
        for word, reason in skipped.items():
            if word in (item.path.name if word.endswith(".py") else item.name):
                item.add_marker(pytest.mark.skip(reason=f"not here: {reason}"))


def pytest_unconfigure() -> None:
    """A process of pytest -n ends without the calls at its exit, so LSan is asked before."""
    if os.environ["QINDEX_SANITIZER"] == "leaks":
        gc.collect()
        ctypes.CDLL(None).__lsan_do_recoverable_leak_check()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    here = sum(count for reason, count in reasons.items() if "not here: " in reason)
    terminalreporter.write_line(f"{here} tests were skipped because of the sanitizer")


def findings(kind: str, folder: Path) -> list[str]:
    """The reports that are about the engine, each once."""
    seen: dict[str, str] = {}
    for file in sorted(folder.glob("report.*")):
        text = file.read_text(errors="replace")
        if kind == "leaks":
            blocks = re.split(r"\n(?=(?:Direct|Indirect) leak)", text)[1:]
            # Frame 0 is malloc, frame 1 is who called it.
            blocks = [b for b in blocks if re.search(r"#1 [^\n]*(c_ext/|_(core|sim)\.abi3)", b)]
            # Events that a program has at its end are left to the interpreter (qindex/events.py):
            # 120 bytes, which look like a leak. test_events.py bounds what they may grow to.
            blocks = [b for b in blocks if "qi_listener_new" not in b]
        else:
            blocks = re.split(r"\n(?===+\n)", text)
            blocks = [b for b in blocks if re.search(r"ERROR|WARNING|SUMMARY: Undef", b)]
            # glibc's own threads and allocations look like races to TSan; so do thread-local blocks
            # that a thread leaves behind, for which glibc has no lock that TSan sees.
            blocks = [b for b in blocks if re.search(r"_(core|sim)\.abi3|c_ext/", b)]
            blocks = [b for b in blocks if "_dl_deallocate_tls" not in b]
        for block in blocks:
            key = re.sub(r"0x[0-9a-f]+|pid=\d+|==\d+==|T\d+|\d+ byte", "", block)[:1500]
            seen.setdefault(key, block.strip())
    return list(seen.values())


def plant(tree: Path, bug: str) -> list[str]:
    """Put the bug into the core; the arguments for pytest, which run the test that reaches it."""
    file = tree / "c_ext/base/crc32c.c"
    head = "\nuint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length) {"
    text = file.read_text()
    assert text.count(head) == 1
    file.write_text("#include <stdlib.h>\n" + text.replace(head, f"{head}\n    {bug}"))
    (tree / "tests/unit/test_canary.py").write_text(CANARY)
    return ["tests/unit/test_canary.py"]


def sanitize(kind: str, arguments: Sequence[str], bug: str = "") -> bool:
    """Build, run, tell; True if all is well: nothing was found, or the bug on purpose."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"qindex-{kind}-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        if (ROOT.parent / "shared").is_dir():  # fixtures that lie beside the project
            Path(folder, "shared").symlink_to(ROOT.parent / "shared")
        if bug:
            arguments = plant(tree, bug)
        build(SANITIZERS[kind], tree)
        code = run_tests(kind, tree, Path(folder, "report"), arguments)
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
    return bool(found) if bug else code == 0 and not found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=[*SANITIZERS, "all"])
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    parser.add_argument("--slow", action="store_true", help="also run the tests marked slow")
    parser.add_argument("--canary", action="store_true", help="find bugs on purpose")
    options = parser.parse_args()
    chosen = ["-m", "not long" if options.slow else "not slow and not long"]
    kinds = list(SANITIZERS) if options.kind == "all" else [options.kind]
    arguments = [*chosen, *options.pytest]
    runs = [(kind, bug) for kind in kinds for bug in (BUGS[kind] if options.canary else [""])]
    return int(sum(not sanitize(kind, arguments, bug) for kind, bug in runs) > 0)


if __name__ == "__main__":
    sys.exit(main())
