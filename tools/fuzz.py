"""Fuzz what opens foreign bytes: the store, the readers of dead nodes, AMQP's frames in C.

    python tools/fuzz.py                      60 seconds: half store, the rest the others
    python tools/fuzz.py --minutes 30         longer; --target NAME: store, foreign, formats, amqp
    python tools/fuzz.py --canary             breaks length checks in copies: each must be found
    python tools/fuzz.py --replay FILE ...    inputs of the store once more, and what they cost

Inputs that were found interesting are kept in --work (build/fuzz) for the next run; the few
in tests/fuzz/corpus are the seeds. An input that fails is written there too; add it to the corpus
with its repair: the tests replay the corpus. What is in C (store, foreign, amqp) is built with
ASan and UBSan, and needs clang with libFuzzer (Debian: clang, libclang-rt-VERSION-dev); amqp also
needs this Python as a shared library. The readers in Python (formats) use atheris if it is
installed, else plain dice.

Exit code 0: nothing found (a target that cannot run here says so); 1: something was found.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from sysconfig import get_config_var, get_path

import layers

ROOT = Path(__file__).resolve().parents[1]
FUZZ = ROOT / "tests" / "fuzz"
LEFT_OUT = {"posix.c"}  # the disk is in memory
HARNESS = ["fuzz_store.c", "archive.c", "disk_memory.c"]
FLAGS = ["-std=c11", "-g", "-UNDEBUG", "-pthread", "-Dqi_disk_posix=qi_disk_memory"]
SANITIZED = ["-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
# The sanitizers make everything several times slower; the true limit is held to by the replay.
SANITIZED += ["-DLIMIT_SECONDS=4.0"]
SHARES = {"store": 1 / 2, "foreign": 1 / 6, "formats": 1 / 6, "amqp": 1 / 6}  # of the time
INPUT_BYTES_MAX = 64 * 1024
CANARIES = {  # target: the file, what is broken in it, and how
    "store": ("base/frame.c", "length > size - offset - QI_FRAME_HEADER", "length > size"),
    "foreign": ("foreign/cursor.h", "left(at) < told", "at->size < told"),
    "amqp": ("amqp/stored.c", "if (size > (size_t)", "if (size > 64 + (size_t)"),
}


def compile_store(target: Path, compiler: list[str], engine: Path) -> str:
    """The engine, a disk in memory and the harness as one program; returns why not, or nothing."""
    sources = [file for file in layers.engine(engine) if file.name not in LEFT_OUT]
    sources += [FUZZ / name for name in HARNESS]
    return _compile([*compiler, *FLAGS, f"-I{engine}", f"-I{FUZZ}"], sources, target)


def compile_foreign(target: Path, compiler: list[str], engine: Path) -> str:
    """The readers of foreign formats that are in C, and their harness; as compile_store()."""
    sources = [*sorted(engine.glob("foreign/*.c")), FUZZ / "fuzz_foreign.c"]
    return _compile([*compiler, "-std=c11", "-g", "-UNDEBUG", f"-I{engine}"], sources, target)


def compile_amqp(target: Path, compiler: list[str], engine: Path) -> str:
    """What reads AMQP in C, and its harness, with this Python around them; as compile_store()."""
    library = Path(get_config_var("LIBDIR") or "", get_config_var("LDLIBRARY") or "")
    if library.suffix != ".so" or not library.exists():
        return "this Python is no shared library"
    sources = [*sorted(engine.glob("amqp/*.c")), FUZZ / "fuzz_amqp.c", library]
    options = ["-std=c11", "-g", "-UNDEBUG", f"-I{engine}", f"-I{get_path('include')}"]
    options.append(f'-DPYTHON_HOME="{sys.base_prefix}"')
    return _compile([*compiler, *options, f"-Wl,-rpath,{library.parent}"], sources, target)


def _compile(compiler: list[str], sources: list[Path], target: Path) -> str:
    command = [*compiler, *map(str, sources), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return f"{compiler[0]} is not installed"
    return done.stderr.strip() if done.returncode else ""


def build_plain(target: Path) -> str:
    """The same without libFuzzer and sanitizers: opens the files that it is given."""
    return compile_store(target, ["cc", "-O2", "-DSTANDALONE"], ROOT / "c_ext")


def fuzz_store(seconds: float, work: Path, engine: Path, expected: str = "", seed: int = 0) -> bool:
    """True if nothing was found; a failure without the `expected` text in it is an error."""
    problem = compile_store(work / "fuzz_store", ["clang", *SANITIZED], engine)
    return problem_told("store", problem) or search("store", "store", seconds, work, expected, seed)


def fuzz_foreign(
    seconds: float, work: Path, engine: Path, expected: str = "", seed: int = 0
) -> bool:
    """The same for the readers in C, beginning with the seeds of those in Python."""
    problem = compile_foreign(work / "fuzz_foreign", ["clang", *SANITIZED], engine)
    told = problem_told("foreign", problem)
    return told or search("foreign", "formats", seconds, work, expected, seed)


def fuzz_amqp(seconds: float, work: Path, engine: Path, expected: str = "", seed: int = 0) -> bool:
    """The same for frames and messages of AMQP."""
    problem = compile_amqp(work / "fuzz_amqp", ["clang", *SANITIZED], engine)
    return problem_told("amqp", problem) or search("amqp", "amqp", seconds, work, expected, seed)


def problem_told(target: str, problem: str) -> bool:
    if problem:
        print(f"fuzz: {target}: NOT RUN: {problem.splitlines()[-1]}", flush=True)
    return bool(problem)


def search(
    target: str, seeds: str, seconds: float, work: Path, expected: str = "", seed: int = 0
) -> bool:
    """Runs work/fuzz_TARGET; what it finds interesting is kept in work/TARGET."""
    corpus = work / target
    corpus.mkdir(parents=True, exist_ok=True)
    command = [str(work / f"fuzz_{target}"), f"-max_total_time={seconds:.0f}"]
    command += [f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={work}/", "-verbosity=0"]
    command += ["-timeout=20", "-rss_limit_mb=3000", f"-seed={seed}"]  # 0: another one each time
    command += ["-detect_leaks=0"] if target == "amqp" else []  # Python's own, at its end
    command += ["-print_final_stats=1", str(corpus), str(FUZZ / "corpus" / seeds)]
    begin = time.monotonic()
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if done.returncode:
        if not expected or expected not in done.stderr:
            print(done.stderr[-6000:])
            if expected:
                raise SystemExit("fuzz: the canary: something else failed")
        print(f"fuzz: {target}: FAILED; the input is in {work}", flush=True)
        return False
    took = time.monotonic() - begin
    print(f"fuzz: {target}: {inputs_of(done)} inputs in {took:.0f} s: nothing found", flush=True)
    return True


def inputs_of(done: subprocess.CompletedProcess[str]) -> int:
    """How many inputs libFuzzer says that it tried."""
    (stat,) = (s for s in done.stderr.splitlines() if s.startswith("stat::number_of_executed"))
    return int(stat.partition(": ")[2])


def fuzz_formats(seconds: float, work: Path, seed: int = 0) -> bool:
    command = [sys.executable, str(FUZZ / "fuzz_formats.py"), str(FUZZ / "corpus" / "formats")]
    command += ["--seconds", str(seconds), "--crashes", str(work / "formats")]
    command += ["--seed", str(seed)] if seed else []
    with tempfile.TemporaryDirectory() as folder:  # atheris ends without cleaning up
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-6000:])
        print("fuzz: formats: FAILED", flush=True)
        return False
    last = [line for line in done.stdout.splitlines() if line.startswith("formats:")]
    if last:
        print(f"fuzz: {last[-1]}", flush=True)
    else:
        print(f"fuzz: formats: {inputs_of(done)} inputs in {seconds:.0f} s, guided: nothing found")
    return True


def canary(target: str) -> bool:
    """A fuzzer that finds nothing may be one that looks at nothing."""
    name, sound, broken = CANARIES[target]
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder, "c_ext")
        shutil.copytree(ROOT / "c_ext", engine)
        text = (engine / name).read_text(encoding="utf-8")
        if sound not in text:
            raise SystemExit(f"fuzz: the canary's line is not in {name} any more: choose another")
        (engine / name).write_text(text.replace(sound, broken), encoding="utf-8")
        print(f"fuzz: the canary: {name} is broken; the next line should say FAILED")
        fuzz = {"store": fuzz_store, "foreign": fuzz_foreign, "amqp": fuzz_amqp}[target]
        found = not fuzz(60, Path(folder), engine, "heap-buffer-overflow")
    print(f"fuzz: the canary was {'found' if found else 'NOT found'}")
    return found


def replay(files: list[Path]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "plain")
        problem = build_plain(program)
        if problem:
            raise SystemExit(f"fuzz: {problem}")
        return subprocess.run([program, *files]).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=["all", *SHARES], default="all")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=0, help="the same inputs again (0: new ones)")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--canary", action="store_true")
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.replay:
        return 0 if replay(options.replay) else 1
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if options.canary:
        return 0 if all(canary(target) for target in CANARIES) else 1
    seconds = options.minutes * 60 if options.minutes else options.seconds
    share = SHARES if options.target == "all" else {options.target: 1.0}
    passed = True
    if "store" in share:
        passed &= fuzz_store(seconds * share["store"], work, ROOT / "c_ext", seed=options.seed)
    if "foreign" in share:
        passed &= fuzz_foreign(seconds * share["foreign"], work, ROOT / "c_ext", seed=options.seed)
    if "formats" in share:
        passed &= fuzz_formats(seconds * share["formats"], work, options.seed)
    if "amqp" in share:
        passed &= fuzz_amqp(seconds * share["amqp"], work, ROOT / "c_ext", seed=options.seed)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
