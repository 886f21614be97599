"""The fuzzers' corpora once more, without libFuzzer: what was found and mended stays mended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fuzz
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"


def run(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_corpus_of_stores_is_opened_within_the_limits():
    files = sorted((CORPUS / "store").iterdir())
    shown = run(ROOT / "tools" / "fuzz.py", "--replay", *files).splitlines()
    assert len(shown) == len(files)
    for line in shown:
        assert float(line.split("opened in ")[1].split()[0]) <= 1.0, line
        assert int(line.split(" KiB")[0].split()[-1]) <= 64 * 1024, line


def test_the_corpus_of_foreign_formats_is_read_within_the_limits():
    files = sorted((CORPUS / "formats").iterdir())
    assert f"{len(files)} inputs" in run(CORPUS.parent / "fuzz_formats.py", "--replay", *files)


@pytest.mark.slow
def test_the_readers_in_c_read_the_corpus_without_a_sanitizers_word(tmp_path):
    files = sorted((CORPUS / "formats").iterdir())
    sanitizers = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = tmp_path / "foreign"
    engine = ROOT / "c_ext"
    if fuzz.compile_foreign(program, ["cc", "-DSTANDALONE", *sanitizers], engine):
        assert fuzz.compile_foreign(program, ["cc", "-DSTANDALONE"], engine) == ""  # a cc without
    environment = {**os.environ, "LD_PRELOAD": ""}
    done = subprocess.run([program, *files], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == (f"foreign: {len(files)} inputs\n", "")


@pytest.mark.slow
def test_amqp_in_c_reads_its_corpus_without_a_sanitizers_word(tmp_path):
    files = sorted((CORPUS / "amqp").iterdir())
    program, engine = tmp_path / "amqp", ROOT / "c_ext"
    sanitizers = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    problem = fuzz.compile_amqp(program, ["cc", "-DSTANDALONE", *sanitizers], engine)
    if problem:
        pytest.skip(problem)
    environment = {**os.environ, "LD_PRELOAD": "", "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([program, *files], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == (f"amqp: {len(files)} inputs\n", "")
