import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sysconfig import get_config_var

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# CPython without the GIL has no stable ABI of 3.11: there is one extension for each version of it.
HAS_STABLE_ABI = not get_config_var("Py_GIL_DISABLED")
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"]


class BuildOnAllProcessors(build_ext):
    """The files of an extension are compiled side by side; setuptools takes one after the other."""

    def build_extensions(self):
        compile_all, compile_one = self.compiler.compile, self.compiler._compile

        def compile_side_by_side(*args, **options):
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                begun = []
                self.compiler._compile = lambda *file: begun.append(pool.submit(compile_one, *file))
                objects = compile_all(*args, **options)
            for file in begun:
                file.result()  # raises what the compiler said
            return objects

        self.compiler.compile = compile_side_by_side
        super().build_extensions()


setup(
    cmdclass={"build_ext": BuildOnAllProcessors},
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
