"""gmq's version 1 on the broker's queues, over sockets; and the same queues by AMQP."""

from __future__ import annotations

import asyncio
import json
import time

import pika
import pytest
from gmq_client import Client, door, run, served

from qindex.broker.arriving import Arrival

POPPED = (
    '{"id":%d,"result":{"TTR":"%d","body":"\\u003cb\\u003e","consume_num":"0","delay":"0",'
    '"id":"7","status":"3","topic":"t"},"error":null}'
)
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(params=["memory", "store"])
def directory(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "data"


# --- version 1 ---------------------------------------------------------------------------------


def test_a_transcript_of_version_1(directory):
    job = '{"id":"7","topic":"t","body":"<b>","delay":"0","TTR":"%s"}'
    push = '{"method":"Service.Push","params":[%s],"id":%d}'
    transcript = [
        (push % (job % 9, 1), '{"id":1,"result":"success","error":null}'),
        (
            push % (job % 9, 2),
            '{"id":2,"result":"jobKey:gmq:jobpool:7,error:has exist","error":null}',
        ),
        (
            '{"method":"Service.Ack","params":["7"],"id":3}',
            '{"id":3,"result":null,"error":"Job is not be reserved"}',
        ),
        (
            '{"method":"Service.Pop","params":[["none","t"]],"id":4}',
            POPPED % (4, 9),
        ),
        (
            push % (job % 9, 5),
            '{"id":5,"result":"jobKey:gmq:jobpool:7,error:has exist","error":null}',
        ),
        (
            '{"method":"Service.Ack","params":["7"],"id":6}',
            '{"id":6,"result":true,"error":null}',
        ),
        (
            '{"method":"Service.Ack","params":["7"],"id":7}',
            '{"id":7,"result":null,"error":"jobKey:gmq:jobpool:7,error:not exist"}',
        ),
        (push % (job % 0, 8), '{"id":8,"result":"success","error":null}'),
        (
            '{"method":"Service.Pop","params":[["t"]],"id":9}',
            POPPED % (9, 0),
        ),
        (push % (job % 0, 10), '{"id":10,"result":"success","error":null}'),
        (
            '{"method":"Service.Pop","params":[[]],"id":11}',
            '{"id":11,"result":null,"error":"topics is empty"}',
        ),
        (push % ('{"id":"1"}', 12), '{"id":12,"result":"job.topic is empty","error":null}'),
        (
            '{"method":"Service.Drop","params":[1],"id":13}',
            '{"id":13,"result":null,"error":"rpc: can\'t find method Service.Drop"}',
        ),
        ("{]", '{"id":null,"result":null,"error":"invalid JSON: '),
    ]

    async def test():
        async with served(directory) as server:
            client = await Client.connect(server.gmq)
            for sent, expected in transcript:
                client.writer.write(sent.encode())
                assert (await client.line()).startswith(expected)
            assert await client.reader.read() == b""
            await client.close()

    run(test())


def test_a_pop_waits_for_any_of_its_topics_and_gives_up_after_two_seconds():
    async def test():
        async with served() as server:
            one, two = await Client.connect(server.gmq), await Client.connect(server.gmq)
            began = time.monotonic()
            assert await one.call("Pop", ["a", "b"]) == (None, "empty")
            assert 1.9 < time.monotonic() - began < 30
            await two.push("first", topic="a")
            await one.call("Pop", ["a"])
            for topic in ("a", "new"):  # one that is there, and one that is made by the push
                one.send("Pop", ["b", "a", "new"])
                await asyncio.sleep(0.05)
                await two.push("7", topic=topic)
                assert json.loads(await one.line())["result"]["topic"] == topic
            assert not door(server).jobs._waiting
            await one.close()
            await two.close()

    run(test())


def test_the_first_topic_comes_first_and_each_job_goes_to_one_waiter():
    async def test():
        async with served() as server:
            clients = [await Client.connect(server.gmq) for _ in range(3)]
            for topic in ("b", "a"):
                await clients[0].push(topic, topic=topic)
            for topic in ("a", "b"):
                assert (await clients[0].call("Pop", ["a", "b"]))[0]["topic"] == topic
            for client in clients:
                client.send("Pop", ["a"])
            await asyncio.sleep(0.05)
            pusher = await Client.connect(server.gmq)
            for number in ("1", "2", "3"):
                await pusher.push(number, topic="a")
            lines = [json.loads(await client.line()) for client in clients]
            assert sorted(line["result"]["id"] for line in lines) == ["1", "2", "3"]
            for client in (*clients, pusher):
                await client.close()

    run(test())


def test_a_job_without_an_ack_is_ready_again_after_its_time_and_not_before(directory):
    async def test():
        async with served(directory) as server:
            client = await Client.connect(server.gmq)
            await client.push("j", ttr="1")
            began = time.monotonic()
            assert (await client.call("Pop", ["t"]))[0]["consume_num"] == "0"
            again, error = await client.call("Pop", ["t"])
            assert error is None
            assert (again["id"], again["consume_num"]) == ("j", "1")
            assert time.monotonic() - began > 0.99  # and a pop gives up after two seconds
            assert door(server).shop.leases.wake_ups == 1
            await asyncio.sleep(1.1)
            expected = "TTR has expired and will be consumed again"
            assert await client.call("Ack", "j") == (None, expected)
            await client.close()

    run(test())


def test_a_delayed_job_comes_when_it_is_due_and_keeps_its_time_over_a_restart(tmp_path):
    async def test():
        began = time.time()
        async with served(tmp_path / "data") as server:
            client = await Client.connect(server.gmq)
            assert await client.push("late", delay="3") == "success"
            assert await client.push("now", ttr="60") == "success"
            assert (await client.call("Pop", ["t"]))[0]["id"] == "now"
            assert (await client.call("Pop", ["t"]))[1] == "empty"
            await client.close()
        async with served(tmp_path / "data") as server:
            client = await Client.connect(server.gmq)
            assert (await client.push("late")).endswith("has exist")
            back = (await client.call("Pop", ["t"]))[0]  # what was reserved is ready again
            assert (back["id"], back["consume_num"]) == ("now", "1")
            job, error = await client.call("Pop", ["t"])
            assert error is None
            assert (job["id"], job["delay"]) == ("late", "3")
            assert time.time() - began >= 3  # and a pop gives up after two seconds
            await client.close()

    run(test())


def test_numbers_lists_and_ids_that_are_left_out_are_understood():
    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            job = {"topic": ["t"], "body": "b", "delay": 0, "TTR": 5}
            given, error = await client.call("Push", job)
            assert error is None
            popped, _ = await client.call("Pop", ["t"])
            assert (popped["id"], popped["TTR"]) == (given, "5")
            for wrong in ("1.5", "-1", True):
                result, error = await client.call("Push", {"id": "x", "topic": "t", "delay": wrong})
                assert result is None
                assert error.startswith("job.delay must be a whole number")
            result, error = await client.call("Push", {"id": "x" * 300, "topic": "t"})
            assert (result, error) == (None, "job.id may have 255 bytes")
            result, error = await client.call("Push", {"id": "x", "topic": "x" * 300})
            assert result is None
            assert error.startswith("a queue's name has 1 to 255 bytes")
            await client.close()

    run(test())


# --- the same queues behind both doors ---------------------------------------------------------


def test_amqp_consumes_what_gmq_pushes_and_the_other_way_round(directory):
    def with_amqp(port):
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("mail_new", durable=True)
        method, properties, body = channel.basic_get("orders")
        found = [(properties.message_id, body)]
        channel.basic_ack(method.delivery_tag)
        method, _, body = channel.basic_get("mail_new")
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        properties = pika.BasicProperties(message_id="from amqp", delivery_mode=2)
        channel.basic_publish("", "orders", b"1", properties)
        channel.basic_publish("", "orders", b"2", PERSISTENT)
        channel.basic_publish("", "mail_new", b"3", PERSISTENT)
        connection.close()
        return found

    async def test():
        async with served(directory) as server:
            one, two = await Client.connect(server.gmq), await Client.connect(server.gmq)
            await one.push("j1", topic="orders", body="from gmq")
            await two.command("queue mail new")
            await two.command("pub mail new 0", b"\xff\0")
            found = await asyncio.to_thread(with_amqp, server.amqp)
            assert found == [("j1", b"from gmq"), b"\xff\0"]
            assert await one.push("j1", topic="orders", ttr="9") == "success"  # j1 is done
            first, second, own = [(await one.call("Pop", ["orders"]))[0] for _ in range(3)]
            assert (first["id"], first["body"], first["TTR"]) == ("from amqp", "1", "60")
            assert second["body"] == "2"
            assert second["id"].isdigit()
            assert own["id"] == "j1"
            for job in (first, second, own):
                assert await one.call("Ack", job["id"]) == (True, None)
            assert json.loads((await two.command("pop mail new"))[1])["body"] == "3"
            await one.close()
            await two.close()

    run(test())


def test_a_topic_whose_messages_a_rescue_still_brings_is_refused_until_they_are_in():
    async def test():
        async with served() as server:
            client = await Client.connect(server.gmq)
            await client.push("1")
            vhost = server.node.vhost("/")
            vhost.arriving["t"] = Arrival(1)
            text = "the messages of queue 't' in vhost '/' are still coming: try again"
            assert await client.call("Push", {"id": "2", "topic": "t"}) == (None, text)
            assert await client.call("Pop", ["t"]) == (None, text)
            del vhost.arriving["t"]
            assert (await client.call("Pop", ["t"]))[0]["id"] == "1"
            await client.close()

    run(test())
