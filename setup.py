import os
import shlex
from pathlib import Path
from sysconfig import get_config_var

from setuptools import Extension, setup

# CPython without the GIL has no stable ABI of 3.11: there is one extension for each version of it.
HAS_STABLE_ABI = not get_config_var("Py_GIL_DISABLED")
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"]

setup(
    cffi_modules=["c_ext/build.py:ffi", "c_ext/build.py:sim_ffi"],
    ext_modules=[
        # For LD_PRELOAD, by qindex.testing; nothing imports it.
        Extension(
            "qindex.testing._record",
            ["c_ext/proof/record/record.c"],
            extra_compile_args=WARNINGS,
            extra_link_args=["-pthread", "-ldl"],
            py_limited_api=HAS_STABLE_ABI,
        ),
        # What qindex.amqp does by the million. It does not know the engine, nor the engine it.
        Extension(
            "qindex._wire",
            sorted(map(str, Path("c_ext/amqp").glob("*.c"))),
            depends=["c_ext/amqp/amqp.h", "c_ext/amqp/amqp_private.h"],
            include_dirs=["c_ext"],
            extra_compile_args=[
                *WARNINGS,
                "-UNDEBUG",
                *shlex.split(os.environ.get("QINDEX_CFLAGS", "")),
            ],
            extra_link_args=shlex.split(os.environ.get("QINDEX_LDFLAGS", "")),
            py_limited_api=HAS_STABLE_ABI,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_STABLE_ABI else {},
)
