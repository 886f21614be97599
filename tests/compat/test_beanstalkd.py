"""beanstalkd's binlogs: the jobs that are left, tube by tube, also of a real one, killed."""

from __future__ import annotations

import random
import shutil
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

import qindex
from qindex.brokers.reader import Account, DeadMessage, open_node, total
from qindex.cli.main import main

from .beanstalkd_files import (
    BURIED,
    CREATED_NS,
    DELETED,
    READY,
    binlog,
    bodies,
    change,
    put,
    ready,
    write_files,
)
from .test_rabbitmq_damage import damages

SMALLEST_RECORD = 84


def read(path: Path) -> tuple[dict[str, list[DeadMessage]], list[str]]:
    """Messages by queue and kinds of findings; the account adds up."""
    with open_node(path) as node:
        assert total(node.queues).adds_up
        found = {queue.name: list(queue.messages()) for queue in node.queues}
        assert {q.name: q.account.live for q in node.queues} == {
            n: len(m) for n, m in found.items()
        }
        return found, [finding.kind for finding in node.findings]


def bodies_of(messages: list[DeadMessage]) -> list[bytes]:
    return [message.body for message in messages]


def test_the_last_record_of_a_job_tells_what_it_is(tmp_path: Path) -> None:
    write_files(tmp_path)
    found, findings = read(tmp_path)
    numbered = list(enumerate(bodies(300), 1))
    assert bodies_of(found["t"]) == ready(300)
    assert bodies_of(found["t.buried"]) == [body for n, body in numbered if n % 10 == 4]
    delayed = [body for n, body in numbered if n % 10 == 5]
    assert bodies_of(found["t.delayed"]) == delayed[::-1]  # the last one is due first
    assert found["t.delayed"][0].headers["due"] == CREATED_NS / 10**9 + 5
    with open_node(tmp_path) as node:
        assert total(node.queues) == Account(
            found=300,
            live=210,
            live_body_bytes=sum(len(b) for n, b in numbered if n % 10 > 2),
            gone={"deleted": 90},
            marks={"redelivered": 210},
        )
    assert not findings


def test_ready_jobs_come_by_priority_then_age(tmp_path: Path) -> None:
    records = [put(b"%d" % n, n, READY, pri=n % 3) for n in range(1, 10)]
    records.append(change(b"9", 9, READY, pri=2))  # released with another priority
    (tmp_path / "binlog.7").write_bytes(binlog(*records))
    found, _ = read(tmp_path)
    assert bodies_of(found["t"]) == [b"3", b"6", b"1", b"4", b"7", b"2", b"5", b"8", b"9"]
    headers = found["t"][0].headers
    assert (headers["id"], headers["pri"], headers["ttr"], headers["reserves"]) == ("3", 0, 60.0, 1)


def test_a_job_that_was_moved_to_a_later_file_counts_once(tmp_path: Path) -> None:
    (tmp_path / "binlog.9").write_bytes(binlog(put(b"a", 1), put(b"b", 2)))
    (tmp_path / "binlog.10").write_bytes(binlog(put(b"a", 1), change(b"b", 2, BURIED)))
    found, findings = read(tmp_path)
    assert bodies_of(found["t"]) == [b"a"]
    assert found["t"][0].file == "binlog.10"
    assert bodies_of(found["t.buried"]) == [b"b"]
    (tmp_path / "binlog.9").unlink()
    found, findings = read(tmp_path)
    assert (found.keys(), findings) == ({"t"}, ["body missing"])


def test_a_change_of_a_job_whose_file_is_gone_means_nothing(tmp_path: Path) -> None:
    records = [change(b"a", 1, BURIED), change(b"a", 1, DELETED), change(b"b", 2, DELETED)]
    (tmp_path / "binlog.3").write_bytes(binlog(*records))
    assert read(tmp_path) == ({}, [])


@pytest.mark.parametrize("version", [0, 5, 9])
def test_another_version_is_told(tmp_path: Path, version: int) -> None:
    data = struct.pack("<I", version) + binlog(put(b"a", 1))[4:]
    (tmp_path / "binlog.1").write_bytes(data)
    found, findings = read(tmp_path)
    assert (findings, list(found)) == (["version"], ["t"])


def test_a_file_of_the_old_version_is_told_once(tmp_path: Path) -> None:
    old = struct.pack("<IQ1sQI", 5, 1, b"t", 1, 0) * 50
    (tmp_path / "binlog.1").write_bytes(old)
    assert read(tmp_path) == ({}, ["version"])


@pytest.mark.parametrize("name", ["binlog.1", "binlog.2"])
def test_a_damaged_file_costs_what_was_damaged(tmp_path: Path, name: str) -> None:
    write_files(tmp_path)
    data = (tmp_path / name).read_bytes()
    used = len(data.rstrip(b"\0"))
    whole = Counter(bodies(300)) - Counter(b for n, b in enumerate(bodies(300), 1) if n % 10 < 3)
    for what, affected, damaged in damages(data[:used]):
        if "behind" in what:
            continue
        (tmp_path / name).write_bytes(damaged + data[used:])
        found, findings = read(tmp_path)
        lost = (whole - Counter(b for m in found.values() for b in bodies_of(m))).total()
        assert findings or not lost or what in ("cut", "flipped", "zeroed"), what
        if what != "cut":
            assert lost <= affected // SMALLEST_RECORD + 2, what


@pytest.mark.slow
def test_a_flipped_bit_costs_one_record_at_most(tmp_path: Path) -> None:
    write_files(tmp_path)
    file = tmp_path / "binlog.1"
    data = file.read_bytes()
    dice = random.Random(1)
    whole = Counter(bodies(300))
    for _ in range(150):
        damaged = bytearray(data)
        damaged[dice.randrange(4, len(data))] ^= 1 << dice.randrange(8)
        file.write_bytes(damaged)
        found, _ = read(tmp_path)
        given = Counter(b for messages in found.values() for b in bodies_of(messages))
        assert abs(given.total() - 210) <= 1
        assert (given - whole).total() <= 1


def test_the_end_of_a_file_without_its_last_bytes_is_no_job(tmp_path: Path) -> None:
    whole = binlog(put(b"one", 1), put(b"two", 2))
    for size in range(len(whole)):
        (tmp_path / "binlog.1").write_bytes(whole[:size])
        found, _ = read(tmp_path)
        complete = size >= len(binlog(put(b"one", 1)))
        assert bodies_of(found.get("t", [])) == [b"one"] * complete


def test_the_command_brings_jobs_into_a_store(tmp_path: Path) -> None:
    write_files(tmp_path / "wal")
    (tmp_path / "wal" / "binlog.000001").write_bytes(b"another program's")
    (tmp_path / "wal" / "binlog.3").symlink_to(tmp_path / "wal" / "binlog.2")
    assert main(["recover", str(tmp_path / "wal"), "--out", str(tmp_path / "s")]) == 0
    with qindex.open(tmp_path / "s", read_only=True) as store:
        assert [m.body for m in store.queue("t").browse()] == ready(300)
        assert len(store.queue("t.delayed")) == len(store.queue("t.buried")) == 30


# --- a real one ---------------------------------------------------------------------------------


class Client:
    """As much of the protocol as the test needs."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file: BinaryIO = self._socket.makefile("rwb")

    def do(self, line: str, body: bytes | None = None) -> list[str]:
        self._file.write(line.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))
        self._file.flush()
        return self._file.readline().decode().split()

    def reserve(self) -> tuple[int, bytes]:
        _, number, size = self.do("reserve-with-timeout 5")
        return int(number), self._file.read(int(size) + 2)[:-2]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def start() -> Iterator[Callable[[Path], tuple[subprocess.Popen[bytes], Client]]]:
    """Starts a beanstalkd on a binlog directory, and a client that watches the tube "orders"."""
    program = shutil.which("beanstalkd")
    if program is None:
        pytest.skip("beanstalkd is not installed")
    started = []

    def start(folder: Path) -> tuple[subprocess.Popen[bytes], Client]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-s", "16384"]
        process = subprocess.Popen([program, *options])
        client = connect(port)
        started.append((process, client))
        client.do("use orders")
        client.do("watch orders")
        return process, client

    yield start
    for process, client in started:
        process.kill()
        process.wait()
        client.close()


def connect(port: int) -> Client:
    for _ in range(500):
        try:
            return Client(port)
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("beanstalkd does not listen")


@pytest.mark.interop
def test_a_real_one_that_was_killed_gives_what_it_gives_itself(
    start: Callable[[Path], tuple[subprocess.Popen[bytes], Client]], tmp_path: Path
) -> None:
    folder, again = tmp_path / "wal", tmp_path / "again"
    folder.mkdir()
    process, client = start(folder)
    for number, body in enumerate(bodies(400)):
        delay = 3600 + number % 7 if number % 5 == 0 else 0
        client.do(f"put {number % 3} {delay} 60 {len(body)}", body)
    counts = Counter({"orders": 320, "orders.delayed": 80})
    for turn in range(150):
        job, _ = client.reserve()
        counts["orders"] -= turn % 4 < 3
        counts["orders.buried"] += turn % 4 == 0
        counts["orders.delayed"] += turn % 4 == 1
        verbs = [f"bury {job} 9", f"release {job} 7 5000", f"delete {job}", f"release {job} 2 0"]
        client.do(verbs[turn % 4])
    client.reserve()
    process.kill()
    process.wait()
    shutil.copytree(folder, again)
    found, findings = read(folder)
    assert {name: len(messages) for name, messages in found.items()} == counts
    dues = [message.headers["due"] for message in found["orders.delayed"]]
    assert dues == sorted(dues)
    assert not findings
    assert len(list(folder.glob("binlog.*"))) > 2
    _, client = start(again)
    assert bodies_of(found["orders"]) == [client.reserve()[1] for _ in found["orders"]]
    client.do("kick 1000")  # first what is buried, then what is delayed
    buried = [client.reserve()[1] for _ in found["orders.buried"]]
    assert sorted(bodies_of(found["orders.buried"])) == sorted(buried)
    client.do("kick 1000")
    delayed = [client.reserve()[1] for _ in found["orders.delayed"]]
    assert sorted(bodies_of(found["orders.delayed"])) == sorted(delayed)
