"""Builds qindex._core, and qindex.testing._sim: the simulated disk that a core takes as a capsule.

What Python sees of them stands between two marks in their headers.

QINDEX_CFLAGS and QINDEX_LDFLAGS are added last, for developer and sanitizer builds.
"""

import os
import platform
import shlex
import sysconfig
import tomllib
from pathlib import Path

from cffi import FFI

# Relative to the project's root, where every build runs: setuptools refuses absolute sources.
HERE = Path(os.path.relpath(Path(__file__).parent))


# What the core calls in Python: store_log.py has it.
CALLED = 'extern "Python" void qi_told_slow(qi_store *store);'


def declarations(header: str) -> str:
    """Return the text between the two marks, so that nothing is declared twice."""
    _, found_begin, rest = header.partition("/* cffi: begin */")
    text, found_end, _ = rest.partition("/* cffi: end */")
    if not (found_begin and found_end):
        raise SystemExit("c_ext: the marks '/* cffi: begin */', '/* cffi: end */' are missing")
    return text


def compile_args() -> list[str]:
    # setuptools would take the asserts away. What one of them stands for was once about to lose a
    # message; a process that ends there is recovered from, and they are too few to be felt.
    args = ["-std=c11", "-UNDEBUG", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"]
    if platform.machine() in ("aarch64", "arm64") and platform.system() == "Linux":
        args.append("-march=armv8-a+crc")  # In every 64-bit ARM server; not in gcc's baseline.
    return args + shlex.split(os.environ.get("QINDEX_CFLAGS", ""))


def module(name: str, headers: tuple[str, ...], sources: list[Path]) -> FFI:
    """An extension module; what Python sees of it stands in these headers."""
    made = FFI()
    for header in headers:
        made.cdef(declarations((HERE / header).read_text(encoding="utf-8")))
    if name == "qindex._core":
        made.cdef(CALLED)
    made.set_source(
        name,
        "".join(f'#include "{header}"\n' for header in headers),
        sources=sorted(map(str, sources)),
        depends=sorted(map(str, HERE.glob("**/*.h"))),
        include_dirs=[str(HERE)],
        extra_compile_args=compile_args(),
        extra_link_args=["-pthread", *shlex.split(os.environ.get("QINDEX_LDFLAGS", ""))],
        py_limited_api=not sysconfig.get_config_var("Py_GIL_DISABLED"),
    )
    return made


LAYERS = tomllib.loads((HERE / "layers.toml").read_text(encoding="utf-8"))["layers"]
FOLDERS = [*(folder for layer in LAYERS for folder in layer), "foreign"]
ffi = module(
    "qindex._core",
    ("qindex.h", "data.h", "events.h", "loop.h", "look/look.h", "foreign/foreign.h"),
    [file for folder in FOLDERS for file in HERE.glob(f"{folder}/*.c")],
)
# The simulated disk alone: without the engine, which users have in _core.
sim_ffi = module(
    "qindex.testing._sim",
    ("proof/sim/sim.h",),
    [file for file in HERE.glob("proof/sim/*.c") if file.name != "sim_store.c"],
)
