from setuptools import Extension, setup

setup(
    cffi_modules=["c_ext/build.py:ffi"],
    ext_modules=[
        # For LD_PRELOAD, by qindex.testing; nothing imports it.
        Extension(
            "qindex.testing._record",
            ["c_ext/record/record.c"],
            extra_compile_args=["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
            extra_link_args=["-pthread", "-ldl"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
