"""Opening any input up to 1 MiB takes at most a second and 64 MiB, whatever it asks for."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys

import pytest
from costs import hold_in_time
from hostile import MAKERS, write

SECONDS = 1.0
BYTES = 64 << 20

# Opens a store and its queue; says what that cost the process.
SCRIPT = """
import json, resource, sys, time
import qindex

def rss():
    status = open("/proc/self/status").read()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024

before, begin = rss(), time.process_time()
error = ""
try:
    store = qindex.open(sys.argv[1], read_only=sys.argv[2] == "reader", io="pwrite", sync="never")
    store.queue("q", create=False)
    len(store.queue("q"))
except qindex.QindexError as problem:
    error = str(problem)
print(json.dumps([time.process_time() - begin, rss() - before, error]))
"""


def cost(path, mode):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), mode],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reader", "writer"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_hostile_mebibyte_is_opened_within_the_limits(tmp_path, name, mode):
    def measure():
        shutil.rmtree(tmp_path, ignore_errors=True)
        write(tmp_path / "store", *MAKERS[name]())
        seconds, size, error = cost(tmp_path / "store", mode)
        assert size <= BYTES, error
        return {"seconds": seconds}

    hold_in_time(measure, lambda least: least if least["seconds"] > SECONDS else None)


PLACES = """
import resource, sys
from qindex.brokers.tree import Findings, Tree
from qindex.brokers.rabbitmq.store import read_store

findings = Findings()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store = read_store(Tree(sys.argv[1], findings), "", findings)
print(len(store), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_message_in_a_store_of_rabbitmq_costs_twenty_bytes_of_memory(tmp_path):
    count, term = 200_000, b"\x83h\x01m\0\0\0\0"
    entries = (
        struct.pack(">QQQ", 16 + len(term), number * 0x9E3779B97F4A7C15 % 2**64, number) + term
        for number in range(count)
    )
    (tmp_path / "0.rdq").write_bytes(b"".join(entry + b"\xff" for entry in entries))
    done = subprocess.run(
        [sys.executable, "-c", PLACES, tmp_path], check=True, capture_output=True, text=True
    )
    found, grown = map(int, done.stdout.split())
    assert found == count
    assert grown < count * 20 * 1.3 + (2 << 20)
