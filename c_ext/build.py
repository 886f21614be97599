"""Builds qindex._core. What Python sees stands between two marks in each of HEADERS.

QINDEX_CFLAGS and QINDEX_LDFLAGS are added last, for developer and sanitizer builds.
"""

import os
import platform
import shlex
import sysconfig
from pathlib import Path

from cffi import FFI

# Relative to the project's root, where every build runs: setuptools refuses absolute sources.
HERE = Path(os.path.relpath(Path(__file__).parent))


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


ffi = FFI()
HEADERS = ("qindex.h", "sim/sim.h", "formats/erlang_terms.h", "formats/rabbitmq.h")
SOURCES = ("*.c", "sim/*.c", "formats/*.c", "python/*.c")
for header in HEADERS:
    ffi.cdef(declarations((HERE / header).read_text(encoding="utf-8")))
ffi.set_source(
    "qindex._core",
    "".join(f'#include "{header}"\n' for header in HEADERS),
    sources=sorted(str(file) for pattern in SOURCES for file in HERE.glob(pattern)),
    depends=sorted(map(str, HERE.glob("**/*.h"))),
    include_dirs=[str(HERE)],
    extra_compile_args=compile_args(),
    extra_link_args=["-pthread", *shlex.split(os.environ.get("QINDEX_LDFLAGS", ""))],
    py_limited_api=not sysconfig.get_config_var("Py_GIL_DISABLED"),
)
