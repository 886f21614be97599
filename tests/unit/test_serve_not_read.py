"""Clients that do not read what waits for them: bounded at every door, and told why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time

import pytest
from gmq_client import Client, door, run, served
from raw_client import RawClient, publish

from qindex.amqp import methods as m
from qindex.amqp.wire import HEARTBEAT_FRAME, encode_method
from qindex.serve import Broker, outlet
from qindex.serve.outlet import ANSWERS_HIGH, NOT_READ, WRITE_HIGH
from qindex.serve.server import Server

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
BODY = b"x" * (1 << 18)
REPLY_TO = "amq.rabbitmq.reply-to"
PIECES = 256  # 64 MiB in all: much more than the kernel keeps


def waiting(broker):
    """Bytes that wait for the client that has most of them."""
    transports = list(broker.server._transports.values())
    return max((each.get_write_buffer_size() for each in transports), default=0)


def test_a_publisher_that_does_not_read_its_returns_is_not_read_either():
    with Broker() as broker, RawClient(broker.url) as client:
        client.socket.setblocking(False)
        data = publish("", "nowhere", b"\0\0", BODY, mandatory=True) * PIECES
        sent, most, until = 0, 0, time.monotonic() + 2
        while time.monotonic() < until and sent < len(data):
            try:
                sent += client.socket.send(data[sent : sent + (1 << 20)])
            except BlockingIOError:
                time.sleep(0.01)
            most = max(most, waiting(broker))
        assert sent < len(data)
        assert WRITE_HIGH < most < ANSWERS_HIGH + 4 * WRITE_HIGH
        client.socket.settimeout(60)  # it reads: all of them come, and the rest is taken
        returned = 0
        while returned < PIECES:
            if sent < len(data):
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    sent += client.socket.send(data[sent : sent + (1 << 20)])
                client.socket.settimeout(60)
            client.expect(m.BasicReturn)
            returned += 1


def test_replies_to_a_client_that_does_not_read_end_its_connection(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "qindex.serve")
    monkeypatch.setattr(outlet, "WRITE_MAX", 4 * WRITE_HIGH)
    with Broker() as broker, RawClient(broker.url) as asks, RawClient(broker.url) as answers:
        asks.ask(m.BasicConsume(0, REPLY_TO, "", False, True, False, False, {}), m.BasicConsumeOk)
        (name,) = broker.server.replies
        most = 0
        for _ in range(PIECES):
            answers.send(publish("", name, b"\0\0", BODY))
            most = max(most, waiting(broker))
        answers.declare("still-there", durable=False)
        until = time.monotonic() + 30
        while len(broker.server.sessions) > 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(broker.server.sessions) == 1
        assert most < 8 * WRITE_HIGH
        assert not broker.server.replies
        assert [each for each in caplog.messages if NOT_READ in each]


@pytest.mark.slow
def test_a_client_that_does_not_read_but_lives_stays_and_one_that_has_died_does_not():
    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        loop = asyncio.get_running_loop()

        def begin():
            client = RawClient(url, heartbeat=1)
            client.declare("q", durable=False)
            client.send(publish("", "q", b"\0\0", BODY) * PIECES)
            consume = m.BasicConsume(0, "q", "", False, True, False, True, {})
            client.send(encode_method(1, consume))
            return client

        lives = await loop.run_in_executor(None, begin)
        name = lives.socket.getsockname()[1]
        for _ in range(16):  # four times as long as a silent one has
            await asyncio.sleep(0.5)
            lives.send(HEARTBEAT_FRAME)
        assert [each for each in server.sessions if each.peer.endswith(str(name))]
        assert waiting_of(server) > WRITE_HIGH
        while server.sessions:  # from now on it is silent
            await asyncio.sleep(0.05)
        lives.socket.close()
        await server.stop()

    run(test())


def waiting_of(server):
    return max(each.get_write_buffer_size() for each in server._transports.values())


# --- gmq ----------------------------------------------------------------------------------------


def silent(port):
    """A client of gmq that never reads."""
    found = socket.create_connection(("127.0.0.1", port))
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    return found


def test_a_subscriber_that_does_not_read_is_closed_and_the_others_go_on(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "qindex.serve")
    monkeypatch.setattr(outlet, "WRITE_MAX", 4 * WRITE_HIGH)

    async def test():
        async with served() as server:
            subscriber = silent(server.gmq)
            subscriber.sendall(b"subscribe news\n")
            publisher, reads = [await Client.connect(server.gmq) for _ in range(2)]
            await reads.command("subscribe news")
            while len(door(server).channels.get("news", ())) < 2:
                await asyncio.sleep(0.01)
            most = 0
            for _ in range(PIECES):
                assert await publisher.command("publish news", BODY) == (103, b"ok")
                assert await reads.answer() == (104, BODY)
                for each in door(server).connections:
                    most = max(most, each._transport.get_write_buffer_size())
            assert most < 8 * WRITE_HIGH
            while len(door(server).connections) > 2:
                await asyncio.sleep(0.05)
            assert [each for each in caplog.messages if NOT_READ in each]
            subscriber.close()
            await publisher.close()
            await reads.close()

    run(test())


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", [1, 2])
def test_what_was_popped_and_could_not_be_written_is_there_after_the_stop(tmp_path, version):
    size = 16 << 20

    async def test():
        async with served(tmp_path / "data") as server:
            client = await Client.connect(server.gmq)
            if version == 1:
                assert await client.push("1", body="x" * size) == "success"
            else:
                await client.command("queue t k")
                await client.command("set t 1")
                await client.command("pub t k 0", b"x" * size)
            await client.close()
            lost = silent(server.gmq)
            pop = b'{"method":"Service.Pop","params":[["t"]],"id":1}'
            lost.sendall(pop if version == 1 else b"pop t k\n")
            while not any(
                each._transport.get_write_buffer_size() for each in door(server).connections
            ):
                await asyncio.sleep(0.01)
        lost.close()
        async with served(tmp_path / "data") as server:
            client = await Client.connect(server.gmq)
            if version == 1:
                job, _ = await client.call("Pop", ["t"])
                assert (len(job["body"]), job["id"]) == (size, "1")
            else:
                kind, raw = await client.command("pop t k")
                assert (kind, len(raw) > size) == (101, True)
            await client.close()
        async with served(tmp_path / "data") as server:  # it was handed over, and is gone
            queues = server.node.vhost("/").queues
            assert len(queues["t" if version == 1 else "t_k"]) == 0

    run(test())


def test_a_job_without_a_time_to_run_is_gone_when_its_client_has_it():
    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            for _ in range(20):  # the same id is free as soon as the pop is answered
                assert await client.push("1") == "success"
                assert (await client.call("Pop", ["t"]))[0]["id"] == "1"
            await client.close()

    run(test())


def test_what_a_client_that_has_gone_had_popped_is_ready_again():
    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            await client.push("1", body="x" * (16 << 20))
            gone = silent(server.gmq)
            gone.sendall(b'{"method":"Service.Pop","params":[["t"]],"id":1}')
            queue = server.node.vhost("/").queues["t"]
            while len(queue):
                await asyncio.sleep(0.01)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
            while not len(queue):
                await asyncio.sleep(0.01)
            assert (await client.call("Pop", ["t"]))[0]["id"] == "1"
            await client.close()

    run(test())


# --- what else a client can do to a door -------------------------------------------------------


def test_a_count_of_five_thousand_digits_is_refused_in_words():
    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            kind, text = await client.command(f"mpub t {'9' * 5000}")
            assert (kind, text) == (
                102,
                b"E_INVALID_PUSHNUM - number of push must be between 1 and 1000",
            )
            await client.close()

    run(test())


def test_a_push_is_answered_when_a_pop_cannot_wait_for_its_queue():
    async def test():
        async with served() as server:
            waits, client = [await Client.connect(server.gmq) for _ in range(2)]
            waits.send("Pop", ["t"])
            while not door(server).jobs._waiting:
                await asyncio.sleep(0.01)
            # Somebody else makes the queue meanwhile, and has it for itself.
            vhost = server.node.vhost("/")
            queue = vhost.declare_queue(
                "t", durable=True, auto_delete=False, owner=None, user=None, arguments={}
            )
            queue.add_consumer(Exclusive(), "q")
            assert await asyncio.wait_for(client.push("1"), 10) == "success"
            assert '"empty"' in await waits.line()
            await waits.close()
            await client.close()

    run(test())


class Exclusive:
    """A consumer that has its queue for itself, and takes nothing."""

    waiting = no_ack = shares_credit = False
    exclusive = True
    priority = 0

    def credit(self):
        return 0

    def cancelled(self, queue):
        pass


class Pipe:
    """A transport that remembers whether it is read."""

    reads = True
    waits = 0

    def set_write_buffer_limits(self, high):
        self.high = high

    def get_write_buffer_size(self):
        return self.waits

    def write(self, data):
        self.waits += len(data)

    def is_closing(self):
        return False

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


def test_a_client_that_sends_without_a_pause_rests_after_each_full_read():
    async def test():
        pipe = Pipe()
        found = outlet.Outlet(pipe, asyncio.get_running_loop(), lambda: None)
        found.received(outlet.READ_FULL - 1)
        assert pipe.reads
        found.received(outlet.READ_FULL)
        assert not pipe.reads
        await asyncio.sleep(0)
        assert pipe.reads
        found.received(outlet.READ_FULL)
        found.read(False)  # what it has sent waits for something
        await asyncio.sleep(0)
        assert not pipe.reads
        found.read(True)
        assert pipe.reads

    run(test())


def test_a_client_with_many_deliveries_is_read_until_it_has_many_answers_too():
    async def test():
        pipe = Pipe()
        found = outlet.Outlet(pipe, asyncio.get_running_loop(), lambda: None)
        pipe.waits = 200 << 20
        found.pause()
        assert pipe.reads
        found.write(b"x" * outlet.ANSWERS_HIGH)
        assert pipe.reads
        found.write(b"x")
        assert not pipe.reads
        pipe.waits = 1000  # it has read all but a few
        found.received(1)
        assert pipe.reads
        found.write(b"x" * outlet.ANSWERS_HIGH)
        assert not pipe.reads
        found.resume()
        assert pipe.reads

    run(test())


def test_a_flood_of_publishes_is_read_once_in_a_turn_of_uvloop():
    uvloop = pytest.importorskip("uvloop")

    async def test():
        server = Server(None)
        port = await server.listen("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        client = await loop.run_in_executor(
            None, RawClient, f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        )
        await loop.run_in_executor(None, lambda: client.declare("q", durable=False))
        (session,) = server.sessions
        turns, most, over = [session.received], 0, False

        def turn():
            nonlocal most
            most = max(most, session.received - turns[-1])
            turns.append(session.received)
            if not over:
                loop.call_soon(turn)

        turn()
        data = publish("", "q", b"\0\0", b"x" * 1000) * 20_000
        await loop.run_in_executor(None, client.send, data)
        over = True
        client.socket.close()
        await server.stop()
        assert most < 600_000  # two reads of uvloop's buffer; without a rest, 32 of them

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
