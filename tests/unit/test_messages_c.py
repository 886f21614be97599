"""The message store and the simulated disk, tested in C: with asserts, without Python around."""

import shlex
import shutil
import subprocess
import sysconfig

import c_tests
import pytest

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


@pytest.mark.parametrize("name", c_tests.C_TESTS)
def test_a_room_passes_its_own_tests(name, tmp_path):
    cc, program, data = compiler(), tmp_path / "program", tmp_path / "data"
    flags = ["-O1", "-UNDEBUG", *sanitizers(cc, tmp_path)]
    c_tests.compile_test(name, cc, flags, program)
    data.mkdir()
    ran = subprocess.run([program, data], capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{name}: all passed\n"
