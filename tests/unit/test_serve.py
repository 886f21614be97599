"""A broker that listens, and pika as its client; the command that runs one."""

from __future__ import annotations

import os
import signal
import socket

import pika
import pytest
from broker_process import BrokerProcess, connect
from hostile_commands import ESCAPES
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

import qindex
from qindex.serve import Broker
from qindex.serve.fixture import qindex_broker  # noqa: F401 - the fixture

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]
PERSISTENT = pika.BasicProperties(delivery_mode=2)
OTHER_TYPE = (
    "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
    "received 'fanout' but current is 'direct'"
)


@pytest.fixture
def channel(qindex_broker):  # noqa: F811
    with connect(qindex_broker.url) as connection:
        yield connection.channel()


def take(channel, queue):
    """All that is in the queue, acked."""
    found = []
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            return found
        channel.basic_ack(method.delivery_tag)
        found.append((body, properties))


def test_a_published_message_is_confirmed_and_delivered(channel):
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT, mandatory=True)
    bodies = []
    for method, properties, body in channel.consume("q"):
        assert properties.delivery_mode == 2
        channel.basic_ack(method.delivery_tag)
        bodies.append(int(body))
        if len(bodies) == 50:
            break
    assert bodies == list(range(50))


def test_a_large_body_arrives_whole(channel):
    body = os.urandom(3_000_000)
    channel.queue_declare("q")
    channel.basic_publish("", "q", body)
    assert channel.basic_get("q", auto_ack=True)[2] == body


def test_what_has_no_queue_comes_back(channel):
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("", "nowhere", b"body", mandatory=True)
    (back,) = caught.value.messages
    assert (back.method.reply_code, back.method.reply_text) == (312, "NO_ROUTE")
    assert back.body == b"body"


def test_a_full_queue_says_no_to_a_publisher(channel):
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("q", arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"1")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "q", b"2")


def test_unacked_messages_go_back_when_the_channel_closes(qindex_broker, channel):  # noqa: F811
    channel.queue_declare("q")
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    with connect(qindex_broker.url) as other:
        second = other.channel()
        assert second.basic_get("q")[2] == b"1"
        assert second.basic_get("q")[2] == b"2"
        second.close()
        method, _, body = channel.basic_get("q")
        assert (body, method.redelivered) == (b"1", True)


def test_a_multiple_ack_settles_all_up_to_its_tag(channel):
    channel.queue_declare("q")
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    tags = [channel.basic_get("q")[0].delivery_tag for _ in range(3)]
    channel.basic_ack(tags[1], multiple=True)
    channel.basic_recover(requeue=True)
    assert [body for body, _ in take(channel, "q")] == [b"3"]


def test_copies_and_blind_copies(channel):
    for name in ("a", "b", "c"):
        channel.queue_declare(name)
    headers = {"CC": ["b"], "BCC": ["c"], "kept": 1}
    channel.basic_publish("", "a", b"x", pika.BasicProperties(headers=headers))
    for name in ("a", "b", "c"):
        ((_, properties),) = take(channel, name)
        assert properties.headers == {"CC": ["b"], "kept": 1}


def test_a_dead_letter_does_not_show_blind_copies(channel):
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", arguments=arguments)
    headers = {"CC": ["shown", 5], "BCC": ["secret"]}
    channel.basic_publish("", "q", b"x", pika.BasicProperties(headers=headers))
    channel.basic_nack(channel.basic_get("q")[0].delivery_tag, requeue=False)
    ((_, properties),) = take(channel, "dead")
    assert properties.headers["x-death"][0]["routing-keys"] == ["q", "shown"]


def test_a_reply_goes_straight_to_who_asked(channel):
    replies = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda *delivery: replies.append(delivery[3]),
        auto_ack=True,
    )
    channel.queue_declare("work")
    asks = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    channel.basic_publish("", "work", b"question", asks)
    ((_, properties),) = take(channel, "work")
    channel.basic_publish("", properties.reply_to, b"answer")
    while not replies:
        channel.connection.process_data_events(time_limit=1)
    assert replies == [b"answer"]


def test_a_global_prefetch_is_shared_by_the_consumers_of_a_channel(channel):
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=3, global_qos=True)
    got = []
    for _ in range(2):
        channel.basic_consume("q", lambda ch, method, *rest: got.append(method))
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number)
    while len(got) < 3:
        channel.connection.process_data_events(time_limit=1)
    assert channel.queue_declare("q", passive=True).method.message_count == 2
    assert not any(method.redelivered for method in got)
    channel.basic_ack(got[0].delivery_tag)
    while len(got) < 4:
        channel.connection.process_data_events(time_limit=1)


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (
            lambda c: c.queue_declare("x", passive=True),
            404,
            "NOT_FOUND - no queue 'x' in vhost '/'",
        ),
        (lambda c: c.basic_get("x"), 404, "NOT_FOUND - no queue 'x' in vhost '/'"),
        (lambda c: c.queue_bind("q", "x"), 404, "NOT_FOUND - no exchange 'x' in vhost '/'"),
        (
            lambda c: c.queue_declare("amq.q"),
            403,
            "ACCESS_REFUSED - queue name 'amq.q' contains reserved prefix 'amq.*'",
        ),
        (
            lambda c: c.exchange_declare("amq.direct", "fanout"),
            406,
            OTHER_TYPE,
        ),
        (
            lambda c: c.exchange_delete("amq.direct"),
            403,
            "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        ),
    ],
)
def test_what_is_refused_closes_the_channel_with_rabbitmqs_words(channel, call, code, text):
    channel.queue_declare("q")
    with pytest.raises(ChannelClosedByBroker) as caught:
        call(channel)
    assert (caught.value.reply_code, caught.value.reply_text) == (code, text)
    assert channel.connection.is_open


def test_an_unknown_delivery_tag_closes_the_channel(channel):
    channel.basic_ack(7)
    with pytest.raises(ChannelClosedByBroker, match="unknown delivery tag 7"):
        channel.queue_declare("q")


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (lambda c: c.tx_select(), 540, "transactions"),
        (lambda c: c.basic_qos(prefetch_size=1), 540, "prefetch_size!=0"),
        (lambda c: c.queue_declare("s", arguments={"x-queue-type": "stream"}), 540, "no streams"),
    ],
)
def test_what_is_not_there_is_refused_and_says_so(channel, call, code, text):
    with pytest.raises(ConnectionClosedByBroker, match=text) as caught:
        call(channel)
    assert caught.value.reply_code == code


def test_a_wrong_password_and_an_unknown_virtual_host_are_refused(qindex_broker):  # noqa: F811
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(qindex_broker.url.replace("guest:guest", "guest:wrong"))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost nope not found"):
        connect(qindex_broker.url.replace("%2F", "nope"))


def test_bytes_of_another_protocol_are_answered_and_the_socket_closed(qindex_broker):  # noqa: F811
    with socket.create_connection((qindex_broker.host, qindex_broker.port)) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while piece := plain.recv(100):
            answer += piece
    assert answer == b"AMQP\x00\x00\x09\x01"


def test_a_directory_keeps_messages_and_definitions(tmp_path):
    directory = tmp_path / "data"
    with Broker(directory) as broker, connect(broker.url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("x", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_declare("gone")
        channel.queue_bind("q", "x", "a.*")
        channel.basic_publish("x", "a.b", b"kept", PERSISTENT)
        with pytest.raises(qindex.StoreLocked, match="data' is served already"), Broker(directory):
            pass
    with Broker(directory) as broker, connect(broker.url) as connection:
        channel = connection.channel()
        channel.basic_publish("x", "a.c", b"new", PERSISTENT)
        assert [body for body, _ in take(channel, "q")] == [b"kept", b"new"]
        with pytest.raises(ChannelClosedByBroker, match="no queue 'gone'"):
            channel.queue_declare("gone", passive=True)


def test_a_store_of_its_own_and_other_files_are_not_served(tmp_path):
    with qindex.open(tmp_path / "store"):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    for name in ("store", "other"):
        with pytest.raises(qindex.NotAStore, match="name a new"), Broker(tmp_path / name):
            pass
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]


def test_the_command_says_what_it_serves_and_stops_when_told(tmp_path):
    with BrokerProcess(str(tmp_path / "data")) as command:
        assert "a confirm survives a power cut" in command.line
        connection = connect(command.url)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"unconfirmed", PERSISTENT)
        assert channel.queue_declare("q", passive=True).method.message_count == 1
        command.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosedByBroker, match="shutdown") as caught:
            connection.process_data_events(time_limit=None)
        assert caught.value.reply_code == 320
        command.process.communicate()
        assert command.process.returncode == 0
    with BrokerProcess(str(tmp_path / "data")) as command:
        with connect(command.url) as connection:
            assert connection.channel().basic_get("q", auto_ack=True)[2] == b"unconfirmed"
        assert command.end(signal.SIGINT) == 0


def test_confirmed_messages_survive_kill_9_in_order_and_acked_ones_stay_away(tmp_path):
    published, taken = 0, []
    for _ in range(2):
        with BrokerProcess(str(tmp_path / "data")) as command:
            connection = connect(command.url)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            for _ in range(25):
                channel.basic_publish("", "q", b"%d" % published, PERSISTENT)
                published += 1
            for _ in range(10):
                method, _, body = channel.basic_get("q")
                taken.append(int(body))
                channel.basic_ack(method.delivery_tag)
            channel.basic_get("q")  # is out when the server dies
            assert channel.queue_declare("q", passive=True).method.message_count >= 0
            command.end(signal.SIGKILL)
    with BrokerProcess(str(tmp_path / "data")) as command, connect(command.url) as connection:
        taken += [int(body) for body, _ in take(connection.channel(), "q")]
    assert taken == list(range(published))


def test_a_hostile_name_of_a_directory_is_harmless(tmp_path):
    with BrokerProcess(str(tmp_path / ESCAPES.replace("/", ""))) as command:
        assert command.line[:-1].isprintable()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "name a DIR"),
        (["--memory", "DIR"], "not both"),
        (["--memory", "--amqp", "5672"], "HOST:PORT"),
        (["--memory", "--amqp", "localhost:70000"], "HOST:PORT"),
    ],
)
def test_wrong_usage_is_refused_in_one_line(run, arguments, text):
    ran = run("serve", *arguments)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert text in ran.err
