"""gmq's version 2 on the broker's queues, over sockets."""

from __future__ import annotations

import asyncio
import json

import pytest
from gmq_client import Client, door, run, served


@pytest.fixture(params=["memory", "store"])
def directory(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "data"


def test_a_transcript_of_version_2(directory):
    async def test():
        async with served(directory) as server:
            client = await Client.connect(server.gmq)
            command = client.command
            missing = b"E_INVALID_PUSH - routeKey:k is not match with queue, the mode is 2"
            assert await command("pub t k 0", b"x") == (102, missing)
            assert await command("queue t k") == (103, b"ok")
            assert await command("queue t k") == (102, b"E_INVALID_DECLARE - bindKey k has exist.")
            assert await command("pop t x") == (
                102,
                b"E_INVALID_POP - bindKey:x can't match queue",
            )
            kind, number = await command("pub t k 0", b"<a\xff")
            assert kind == 103
            expected = b'{"id":"%s","body":"\\u003ca\\ufffd","retry_count":0}' % number
            assert await command("pop t k") == (101, expected)
            wrong = b"E_INVALID_ACK - msgId:%s is not exist." % number
            assert await command(f"ack {int(number)} t k") == (102, wrong)  # it was acked by itself
            assert await command("set t 0 1 60 5") == (103, b"ok")
            bodies = [b'{"body":"1","route_key":"k"}', b'{"Body":"2","route_key":"k","delay":0}']
            kind, numbers = await command("mpub t 2", *bodies)
            assert kind == 103
            for each, body in zip(json.loads(numbers), "12", strict=True):
                expected = f'{{"id":"{each}","body":"{body}","retry_count":0}}'.encode()
                assert await command("pop t k") == (101, expected)
                assert await command(f"ack {each} t k") == (103, b"ok")
            assert await command("mpub t 1", b"no") == (
                102,
                b"E_INVALID_JSON - decode msg failed, line 1, column 1: a value is missing",
            )
            assert await command("dead t k") == (
                102,
                b"E_INVALID_DEAD - bindkey:k is not associated with queue",
            )
            wrong = b"E_INVALID_DELAY - delay must be a whole number that is not negative, not '-1'"
            assert await command("pub t k -1", b"x") == (102, wrong)
            assert await command("ping") == (105, b"ping")
            assert await command("what") == (102, b"E_INVALID_CMD - unkown cmd: what")
            assert await command("pop t") == (102, b"E_INVALID_PARAMS - 2 parameters required.")
            assert await client.reader.read() == b""
            await client.close()

    run(test())


def test_keys_are_matched_in_full_or_as_patterns_by_the_topics_mode():
    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            for key in ("math", "maths", "art"):
                await client.command(f"queue t {key}")
            for line in ("set t 1 2", "pub t ^mat 0"):
                await client.command(line, *([b"fuzzy"] if "pub" in line else []))
            assert [
                len(server.node.vhost("/").queues[f"t_{key}"]) for key in ("math", "maths")
            ] == [
                1,
                1,
            ]
            await client.command("set t 1 1")
            await client.command("pub t math 0", b"full")
            counts = [len(queue) for queue in server.node.vhost("/").queues.values()]
            assert counts == [2, 1, 0]
            refused = b"E_INVALID_PUSH - counts like {2,3} are not there, in 'a{9999}'"
            await client.command("set t 1 2")
            assert await client.command("pub t a{9999} 0", b"x") == (102, refused)
            assert (await client.command("pub t  0", b"default"))[0] == 103
            assert json.loads((await client.command("pop t default"))[1])["body"] == "default"
            await client.close()

    run(test())


def test_a_message_that_fails_too_often_goes_to_the_dead_letters_of_its_key(directory):
    async def test():
        async with served(directory) as server:
            client = await Client.connect(server.gmq)
            await client.command("queue t k")
            await client.command("set t 0 1 1 1")
            _, number = await client.command("pub t k 0", b"x")
            for retries in (0, 1):
                found = json.loads((await client.command("pop t k"))[1])
                assert (found["id"], found["retry_count"]) == (number.decode(), retries)
            await asyncio.sleep(1.1)
            found = json.loads((await client.command("dead t k"))[1])
            assert (found["id"], found["body"]) == (number.decode(), "x")
            assert await client.command(f"ack {int(number)} t k") == (103, b"ok")
            assert await client.command("dead t k") == (102, b"E_INVALID_DEAD - no message")
            queue = server.node.vhost("/").queues["t_k"]
            assert (len(queue), queue.unacked) == (0, 0)
            await client.close()

    run(test())


def test_a_pop_that_waits_sends_heartbeats_and_holds_up_what_follows():
    async def test():
        async with served() as server:
            door(server).heartbeat_seconds = 0.05
            client, other = await Client.connect(server.gmq), await Client.connect(server.gmq)
            await client.command("queue t k")
            assert await client.command("pop t k") == (105, b"ping")
            client.writer.write(b"what\n")
            await other.command("pub t k 0", b"x")
            kinds = [kind async for kind in kinds_until(client, 102)]
            assert set(kinds[:-2]) <= {105}
            assert kinds[-2:] == [101, 102]
            client.writer.write(b"pop t k\n")
            await asyncio.sleep(0.02)
            await client.close()
            await other.command("pub t k 0", b"for nobody that is gone")
            assert (await other.command("pop t k"))[0] == 101
            await other.close()

    run(test())


async def kinds_until(client, last):
    kind = 0
    while kind != last:
        kind, _ = await client.answer()
        yield kind


def test_channels_reach_who_has_subscribed():
    async def test():
        async with served() as server:
            one, two = await Client.connect(server.gmq), await Client.connect(server.gmq)
            nobody = b"E_INVALID_PUBLISH - no subscribers"
            assert await two.command("publish c", b"x") == (102, nobody)
            assert await one.command("subscribe c") == (103, b"ok")
            assert await two.command("publish c", b"news") == (103, b"ok")
            assert await one.answer() == (104, b"news")
            await one.close()
            await asyncio.sleep(0.05)
            assert await two.command("publish c", b"x") == (102, nobody)
            assert not door(server).channels
            await two.close()

    run(test())


def test_topics_and_their_keys_are_there_after_a_restart(tmp_path):
    async def test():
        for round_ in range(2):
            async with served(tmp_path / "data") as server:
                client = await Client.connect(server.gmq)
                if not round_:
                    await client.command("queue t k")
                    await client.command("set t 0 1 7 3")
                    await client.command("pub t k 0", b"x")
                else:
                    topic = door(server).topics.topics["t"]
                    assert (topic.keys, topic.auto_ack, topic.ttr) == (["k"], False, 7)
                    assert json.loads((await client.command("pop t k"))[1])["body"] == "x"
                await client.close()

    run(test())


def test_answers_come_in_order_however_many_commands_are_sent_at_once(tmp_path):
    async def test():
        async with served(tmp_path / "data") as server:
            client = await Client.connect(server.gmq)
            await client.command("queue t k")
            client.writer.write(b"".join(b"pub t k 0\n\0\0\0\4%04d" % at for at in range(3000)))
            ids = [int((await client.answer())[1]) for _ in range(3000)]
            assert ids == sorted(ids)
            client.writer.write(b"pop t k\n" * 3000)
            bodies = [json.loads((await client.answer())[1])["body"] for _ in range(3000)]
            assert bodies == [f"{at:04}" for at in range(3000)]
            await client.close()

    run(test())
