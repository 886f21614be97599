"""What gmq's jobs get of the broker, and what can never be: a job in two places, in none, or half.

gmq's version 1 keeps a job in a pool, in a bucket and in a ready queue. It knows jobs in a bucket
that are in no pool, jobs in a pool that are nowhere else, ready jobs in a bucket after a restart,
jobs in both, and jobs that have nothing but a status. A random play looks for each of these.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import socket
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess
from gmq_client import Client, door, run, served

from qindex.broker.backlog import Looked
from qindex.broker.timers import DueTimer
from qindex.serve.gmq.shop import decoded

STEPS = 400
ROOT = Path(__file__).parents[2]


def test_each_row_of_the_table_in_the_documentation_names_tests_that_are_there():
    text = (ROOT / "docs/internals/tests.rst").read_text()
    table = text.split("gmq, row by row\n")[1].split("\nFigures\n")[0]
    rows = table.split("   * - ")[2:]
    assert len(rows) > 20
    for row in rows:
        files = re.findall(r"``(\w+/\w+\.py)``: ((?:``\w+``(?:, )?)+)", row)
        assert files, row
        for file, names in files:
            there = (ROOT / "tests" / file).read_text()
            for name in re.findall(r"``(\w+)``", names):
                assert f"def {name}(" in there, f"{file} has no {name}"


class Play:
    """What gmq's jobs are by a model, and what the server says that they are."""

    def __init__(self, dice):
        self.dice = dice
        self.states: dict[str, str] = {}
        self.pushed = 0

    def of(self, state):
        return {name for name, found in self.states.items() if found == state}

    async def step(self, client):
        verb = self.dice.choice(["push", "push", "push", "pop", "pop", "ack", "again"])
        if verb == "push":
            name, self.pushed = f"job{self.pushed}", self.pushed + 1
            delay = self.dice.choice(["0", "100000"])
            assert await client.push(name, delay=delay, ttr="100000") == "success"
            self.states[name] = "ready" if delay == "0" else "delayed"
        elif verb == "pop" and self.of("ready"):
            job, _ = await client.call("Pop", ["t"])
            assert set(job) == {"TTR", "body", "consume_num", "delay", "id", "status", "topic"}
            assert self.states[job["id"]] == "ready"
            self.states[job["id"]] = "reserved"
        elif verb == "ack" and self.states:
            name = self.dice.choice(sorted(self.states))
            acked, _ = await client.call("Ack", name)
            assert bool(acked) == (self.states[name] == "reserved")
            if acked:
                del self.states[name]
        elif verb == "again" and self.states:
            name = self.dice.choice(sorted(self.states))
            assert (await client.push(name)).endswith("has exist")

    def restarted(self):
        for name in self.of("reserved"):
            self.states[name] = "ready"

    def check(self, server):
        gmq = door(server)
        queue = gmq.shop.vhost.queues["t"]
        found: dict[str, set[str]] = {"ready": set(), "delayed": set(), "reserved": set()}
        for each in queue.backlog.look(0, None):
            assert isinstance(each, Looked)
            state = "reserved" if each.state == "unacked" else each.state
            name = decoded(each.message).message_id
            assert not any(name in names for names in found.values()), f"{name} is twice there"
            found[state].add(name)
        reserved = {each.name for each in gmq.shop.leases.rows()}
        assert reserved == self.of("reserved")
        assert found["reserved"] in (set(), reserved)  # a backlog in memory does not show them
        assert (found["ready"], found["delayed"]) == (self.of("ready"), self.of("delayed"))
        assert queue.unacked == len(reserved)
        assert all(gmq.jobs.deliveries_of(name) is not None for name in self.of("ready"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(2)
def test_each_job_is_in_one_place_in_one_state_whatever_is_done_with_it(tmp_path, seed):
    async def test():
        play = Play(random.Random(seed))
        for _ in range(4):
            async with served(tmp_path / "data") as server:
                client = await Client.connect(server.gmq)
                await client.push(f"first{play.pushed}", ttr="100000")
                play.states[f"first{play.pushed}"] = "ready"
                for step in range(STEPS // 4):
                    await play.step(client)
                    if not step % 10:
                        play.check(server)
                play.check(server)
                await client.close()
            play.restarted()
        assert play.of("delayed")
        assert play.of("ready")

    run(test())


def test_one_timer_wakes_for_jobs_that_are_due_and_for_nothing_else(tmp_path, monkeypatch):
    woken = []
    look = DueTimer._look
    monkeypatch.setattr(DueTimer, "_look", lambda timer: woken.append(timer) or look(timer))

    async def test():
        async with served(tmp_path / "data") as server:
            client, loop = await Client.connect(server.gmq), asyncio.get_running_loop()
            begun = loop.time()
            for name, delay in (("far", "1000"), ("two", "2"), ("one", "1"), ("first", "1")):
                await client.push(name, delay=delay)
            waits = []
            while len(waits) < 3:
                job, _ = await client.call("Pop", ["t"])
                if job is not None:
                    waits.append((job["id"], loop.time() - begun - int(job["delay"])))
            assert [name for name, _ in waits[2:]] == ["two"]
            assert all(late >= -0.01 for _, late in waits), waits
            assert min(late for _, late in waits) < 1, waits
            await asyncio.sleep(0.5)
            assert (
                2 <= len(woken) <= 3
            )  # the two jobs of one second were pushed one after the other
            await client.close()

    run(test())


def declare(port, **arguments):
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    channel = connection.channel()
    channel.queue_declare("t", durable=True, arguments=arguments)
    channel.queue_declare("dead", durable=True)
    connection.close()


def test_jobs_come_by_their_priority_if_the_queue_has_priorities():
    async def test():
        async with served() as server:
            await asyncio.to_thread(declare, server.amqp, **{"x-max-priority": 9})
            client = await Client.connect(server.gmq)
            for name, priority in (("low", 1), ("high", 9), ("none", 0), ("middle", "5")):
                job = {"id": name, "topic": "t", "TTR": "0", "priority": priority}
                assert (await client.call("Push", job))[0] == "success"
            found = [(await client.call("Pop", ["t"]))[0]["id"] for _ in range(4)]
            assert found == ["high", "middle", "low", "none"]
            await client.close()

    run(test())


def test_a_job_that_was_tried_too_often_is_a_dead_letter(tmp_path):
    async def test():
        limits = {
            "x-queue-type": "quorum",
            "x-delivery-limit": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
        async with served(tmp_path / "data") as server:
            await asyncio.to_thread(declare, server.amqp, **limits)
            client = await Client.connect(server.gmq)
            await client.push("j", ttr="1")
            for tried in ("0", "1"):
                job, error = await client.call("Pop", ["t"])
                assert error is None
                assert job["consume_num"] == tried
            await asyncio.sleep(1.2)
            queues = door(server).shop.vhost.queues
            assert (len(queues["t"]), len(queues["dead"])) == (0, 1)
            assert (await client.call("Pop", ["dead"]))[0]["id"] == "j"
            await client.close()

    run(test())


def call(address, method, parameter):
    with socket.create_connection(address, timeout=60) as found:
        request = {"method": f"Service.{method}", "params": [parameter], "id": 1}
        found.sendall(json.dumps(request).encode())
        return json.loads(found.makefile("rb").readline())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
@pytest.mark.sample(3)
def test_a_safe_exit_and_a_new_start_with_the_same_sockets_lose_no_job(tmp_path, number):
    options = ("--gmq", "127.0.0.1:0", "--gmq-http", "127.0.0.1:0", str(tmp_path / "data"))

    def addresses(broker):
        lines = [broker.process.stdout.readline() for _ in range(2)]
        return [("127.0.0.1", int(re.search(r":(\d+)/?$", line)[1])) for line in lines]

    with BrokerProcess(*options) as broker:
        gmq, http = addresses(broker)
        for name, delay in (("now", "0"), ("later", "1"), ("reserved", "0")):
            job = {"id": name, "topic": "t", "body": "", "delay": delay, "TTR": "100"}
            assert call(gmq, "Push", job)["result"] == "success"
        assert call(gmq, "Pop", ["t"])["result"]["id"] == "now"
        if number == signal.SIGUSR2:
            broker.process.send_signal(number)
            assert "serving" in broker.process.stdout.readline()
            assert addresses(broker) == [gmq, http]
            check(gmq)
            assert broker.end(signal.SIGTERM) == 0
            return
        assert broker.end(number) == 0
    with BrokerProcess(*options) as broker:
        check(addresses(broker)[0])


def check(address):
    found = [call(address, "Pop", ["t"])["result"] for _ in range(3)]
    numbers = {job["id"]: job["consume_num"] for job in found}
    assert numbers == {"now": "1", "later": "0", "reserved": "0"}


def test_how_long_a_pop_waits_is_an_option():
    options = ("--memory", "--gmq", "127.0.0.1:0", "--gmq-pop-seconds", "0")
    with BrokerProcess(*options) as broker:
        port = int(re.search(r":(\d+)$", broker.process.stdout.readline())[1])
        with socket.create_connection(("127.0.0.1", port), timeout=1.5) as found:
            found.sendall(b'{"method":"Service.Pop","params":[["t"]],"id":1}')
            assert json.loads(found.makefile("rb").readline())["error"] == "empty"
