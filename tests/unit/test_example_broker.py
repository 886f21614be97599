"""The example brokers of docs/examples, as the page tells of them, and killed."""

import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
KINDS = ["broker_aio", "broker_threads"]
WRONG = [
    b"",
    b"{",
    b"[]",
    b"5",
    b"[" * 5000,
    b'{"do": 5}',
    b'{"do": "__init__"}',
    b'{"do": "pop", "x": 1}',
    b'{"do": "pop", "timeout": -1}',
    b'{"do": "push", "queue": "none", "body": "x"}',
    b'{"do": "push", "queue": "q", "body": 5}',
    b'{"do": "ack", "token": "x"}',
    b'{"do": "ack", "token": null}',
]
pytestmark = pytest.mark.parametrize("kind", KINDS)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.file = self.socket.makefile("rwb")

    def __call__(self, do, **arguments):
        self.send(json.dumps({"do": do, **arguments}).encode())
        return json.loads(self.file.readline())

    def send(self, line):
        self.file.write(line + b"\n")
        self.file.flush()

    def close(self):
        self.file.close()
        self.socket.close()


@contextmanager
def broker(kind, directory):
    command = [sys.executable, str(EXAMPLES / f"{kind}.py"), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_it_is_short_enough_to_read(kind):
    assert len((EXAMPLES / f"{kind}.py").read_text().splitlines()) <= 150


def test_push_pop_settle_exchange_and_dead_letters(kind, tmp_path):
    with broker(kind, tmp_path / "data") as (_, port):
        one, other = Client(port), Client(port)
        for queue in ("red", "green"):
            assert one("bind", exchange="news", queue=queue) == {"ok": True}
        assert one("push", exchange="news", body="größe") == {
            "ok": True,
            "queues": ["green", "red"],
        }
        assert one("push", exchange="nobody", body="x") == {"ok": True, "queues": []}
        assert other("watch", queues=["red", "green"]) == {"ok": True}
        got = [other("pop"), other("pop")]
        assert sorted((each["queue"], each["body"], each["tries"]) for each in got) == [
            ("green", "größe", 1),
            ("red", "größe", 1),
        ]
        assert other("pop") == {"ok": True, "token": None}
        assert other("ack", token=got[0]["token"]) == {"ok": True}
        assert other("ack", token=got[0]["token"])["error"] == "AlreadyAcked"
        assert other("nack", token=got[1]["token"], dead=True) == {"ok": True}
        stats = one("stats", queue=got[1]["queue"])
        assert stats == {"ok": True, "ready": 0, "unacked": 0, "delayed": 0, "dead": 1}
        assert one("redrive", queue=got[1]["queue"]) == {"ok": True, "count": 1}
        assert other("pop", timeout=5)["tries"] == 2
        other.close()  # what it had goes back
        one("watch", queues=["red", "green"])
        back = one("pop", timeout=10)
        assert (back["body"], back["tries"]) == ("größe", 3)
        assert one("push", queue="red", body="later", delay=0.2)["ok"]
        assert one("ignore", queues=["green"])["ok"]
        assert one("pop") == {"ok": True, "token": None}
        assert one("pop", timeout=10)["body"] == "later"
        one.close()


def test_a_message_whose_time_to_run_is_over_goes_to_the_next_one(kind, tmp_path):
    with broker(kind, tmp_path / "data") as (_, port):
        slow, quick = Client(port), Client(port)
        slow("declare", queue="jobs", tries=2)
        slow("push", queue="jobs", body="job")
        for client in (slow, quick):
            client("watch", queues=["jobs"])
        late = slow("pop", ttr=0.3)["token"]
        assert slow("touch", token=late, ttr=0.3)["ok"]
        again = quick("pop", timeout=10, ttr=0.1)
        assert (again["body"], again["tries"]) == ("job", 2)
        assert slow("ack", token=late)["error"] in ("DeliveryEnded", "LeaseExpired")
        until = time.monotonic() + 20
        while quick("stats", queue="jobs")["dead"] == 0 and time.monotonic() < until:
            quick("pop")  # its last try is over
            time.sleep(0.05)
        assert quick("stats", queue="jobs")["dead"] == 1
        slow.close()
        quick.close()


@pytest.mark.parametrize("line", WRONG)
@pytest.mark.sample(8)
def test_what_is_wrong_is_told_to_who_asked_and_the_broker_goes_on(kind, tmp_path, line):
    with broker(kind, tmp_path / "data") as (_, port):
        client = Client(port)
        client.send(line)
        answer = json.loads(client.file.readline())
        assert not answer["ok"]
        assert answer["text"]
        assert client("declare", queue="q") == {"ok": True}
        client.close()


@pytest.mark.sample(2)
def test_no_answered_push_is_lost_and_no_answered_ack_comes_back_in_a_kill(kind, tmp_path):
    pushed, acked, number = set(), set(), 0
    for _ in range(4):
        with broker(kind, tmp_path / "data") as (process, port):
            client = Client(port)
            client("declare", queue="jobs", tries=100)
            client("watch", queues=["jobs"])
            for _ in range(60):  # a third of these stay unacked, fewer than the limit
                number += 1
                assert client("push", queue="jobs", body=str(number))["ok"]
                pushed.add(str(number))
                got = client("pop")
                assert got["body"] not in acked
                if number % 3:
                    assert client("ack", token=got["token"])["ok"]
                    acked.add(got["body"])
            client.send(b'{"do": "push", "queue": "jobs", "body": "unanswered"}')
            process.kill()
            process.wait()
            client.close()
    with broker(kind, tmp_path / "data") as (_, port):
        client = Client(port)
        client("watch", queues=["jobs"])
        left = set()
        while (got := client("pop", timeout=0.1))["token"]:
            left.add(got["body"])
            client("ack", token=got["token"])
        assert left - {"unanswered"} == pushed - acked
        client.close()
