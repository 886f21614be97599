"""The message store and the simulated disk, tested in C: with asserts, without Python around."""

import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ["tape", "frame", "codec", "crc32c", "disk_posix", "error"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def compiler():
    candidates = ["cc", *shlex.split(sysconfig.get_config_var("CC") or "")[:1]]
    found = next(filter(None, map(shutil.which, candidates)), None)
    if found is None:
        pytest.skip("no C compiler")
    return found


def sanitizers(cc, folder):
    """Return the sanitizers' flags if a program that uses them builds and runs."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    try:
        subprocess.run([cc, *SANITIZERS, source, "-o", program], check=True, capture_output=True)
        subprocess.run([program], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return []
    return SANITIZERS


def message_store(core):
    sources = sorted(core.glob("messages*.c")) + sorted(core.glob("compact*.c"))
    return sources + [core / f"{part}.c" for part in PARTS]


def simulated_disk(core):
    return [file for file in sorted(core.glob("sim/*.c")) if file.name != "sim_store.c"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [("messages", message_store), ("compact", message_store), ("disk_sim", simulated_disk)],
)
def test_a_room_passes_its_own_tests(name, parts, tmp_path):
    cc, program, data = compiler(), tmp_path / "program", tmp_path / "data"
    core = ROOT / "c_ext"
    sources = [ROOT / f"tests/c/test_{name}.c", *parts(core)]
    command = [cc, "-std=c11", "-D_DEFAULT_SOURCE", "-g", "-O1", "-UNDEBUG", "-pthread"]
    command += [*sanitizers(cc, tmp_path), f"-I{core}", f"-I{ROOT / 'tests/c'}", *map(str, sources)]
    built = subprocess.run([*command, "-o", program], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    data.mkdir()
    ran = subprocess.run([program, data], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{name}: all passed\n"
