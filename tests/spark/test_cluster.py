"""A standalone cluster of real processes: a master and two workers, on this machine.

python tests/spark/test_cluster.py FOLDER MASTER      the driver's part; prints JSON
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import qindex

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'qindex[spark]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

import pyspark
from fleet import make_fleet

WORKERS = 2
SECONDS_MAX = 400  # JVMs start slowly where other work is done
ROOT = Path(__file__).parents[2]
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def drive(folder: Path, master: str) -> dict[str, Any]:
    """Counts, audits, copies; and who did it."""
    from qindex.spark import register, start_session
    from qindex.spark.audit import run_on_spark
    from qindex.spark.examine import Limits
    from qindex.spark.output import Output

    conf = {
        "spark.executor.memory": "512m",
        "spark.archives": f"{pack(folder)}#shipped",  # as docs/spark/clusters.rst says
        "spark.executorEnv.PYTHONPATH": "./shipped",
        # No task before both workers have an executor.
        "spark.cores.max": str(WORKERS),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SECONDS_MAX}s",
    }
    spark = register(start_session(master, short_lived=True, conf=conf))
    paths = [str(folder / "fleet")]
    rows = spark.read.format("qindex").option("columns", "broker,queue,body").load(paths[0])
    counts = {row.broker: row["count"] for row in rows.groupBy("broker").count().collect()}
    report = run_on_spark(spark, paths, Limits(), Output(str(folder / "out"), "2026-01-01"))
    copies = rows.selectExpr("concat(broker, '/', queue) as queue", "body")
    copies.write.format("qindex").mode("append").save(str(folder / "copies"))
    made = spark.range(0, WORKERS * 2, 1, WORKERS * 2).mapInArrow(parents, "parent long")
    found = {
        "counts": counts,
        "summaries": [asdict(each) for each in report.summaries],
        "executors": sorted({row.parent for row in made.collect()}),
    }
    spark.stop()
    return found


def pack(folder: Path) -> Path:
    """The package with its core, for executors that do not have it."""
    path = folder / "qindex.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(ROOT / "qindex", "qindex")
    return path


def parents(batches: Any) -> Iterator[Any]:
    """The executor of this worker: its daemon's parent. Slow, so that no executor has them all."""
    import pyarrow as pa

    daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    for _ in batches:
        time.sleep(0.5)
        yield pa.RecordBatch.from_pydict({"parent": [int(daemon[1])]})


@pytest.fixture
def master(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Its URL; and the processes, the master first."""
    from qindex.spark.session import find_java

    home = str(Path(pyspark.__file__).parent)
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_WORKER_DIR": str(tmp_path / "work")}
    environment |= {"PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)
    environment |= {"JAVA_HOME": java} if (java := find_java()) else {}
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> None:
        command = [f"{home}/bin/spark-class", name, "--host", "127.0.0.1", "--webui-port", "0"]
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *words],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)

    try:
        start(_MASTER, "--port", str(port))
        for _ in range(WORKERS):
            start(_WORKER, "--cores", "1", "--memory", "1g", url)
        yield url, started
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_a_cluster_finds_and_copies_what_one_process_does(
    master: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    from qindex.spark.audit import run
    from qindex.spark.examine import Limits
    from qindex.spark.output import Output
    from qindex.spark.plan import find

    url, started = master
    make_fleet(tmp_path / "fleet", brokers=8, messages=2000)
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path), url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")])},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    log = (tmp_path / "log").read_text()
    assert done.returncode == 0, done.stderr[-3000:] + log[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["executors"]) == WORKERS  # processes, and none of them the driver's
    assert not set(told["executors"]) & {process.pid for process in started}
    units = find([str(tmp_path / "fleet")])
    alone = run(units, Limits(), Output(str(tmp_path / "alone"), "2026-01-01"))
    for ours, theirs in zip(alone.summaries, told["summaries"], strict=True):
        mine = json.loads(json.dumps(asdict(ours)))
        for name in ("broker", "queues", "kinds", "file_bytes"):
            assert mine[name] == theirs[name]
        assert mine["sums"]["live"] == theirs["sums"]["live"]
    with qindex.open(tmp_path / "copies", read_only=True) as store:
        copied: dict[str, int] = {}
        for name in store.queues():
            broker = name.partition("/")[0]
            copied[broker] = copied.get(broker, 0) + len(store.queue(name))
    assert copied == told["counts"]
    assert sum(copied.values()) > 1000


if __name__ == "__main__":
    print(json.dumps(drive(Path(sys.argv[1]), sys.argv[2])))
