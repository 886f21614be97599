"""`qindex serve DIR --rescue NODE`: what real nodes wrote, served to pika."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from broker_process import BrokerProcess, connect
from helpers import unpack
from pika.exceptions import ChannelClosedByBroker

import qindex
from qindex.broker.rescue.copying import Copied, Copying
from qindex.broker.rescue.plan import make_plan
from qindex.brokers.amqp import decode_properties
from qindex.brokers.rabbitmq import columns
from qindex.brokers.rabbitmq.node import Message, Node
from qindex.brokers.reader import DeadQueue, open_node

from .conftest import DEMO, DeadNode
from .quorum_nodes import DATA
from .rabbitmq_files import write_node

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left_to_other_tests"),
]
CLASSIC = ["a_v1_clean", "b_v1_kill9", "e_v2_clean"]


@contextlib.contextmanager
def served(directory: Path, node: Path, *words: str) -> Iterator[BrokerProcess]:
    without = [argument for word in words for argument in ("--without", word)]
    with BrokerProcess(str(directory), "--rescue", str(node), *without) as process:
        yield process


def refusal(directory: Path, *arguments: str) -> tuple[int, str]:
    run = [sys.executable, "-m", "qindex", "serve", str(directory), "--amqp", "127.0.0.1:0"]
    done = subprocess.run([*run, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def on_vhost(process: BrokerProcess, vhost: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(process.url + "?socket_timeout=600&heartbeat=0")
    parameters.virtual_host = vhost
    return pika.BlockingConnection(parameters)


Delivery = tuple[Any, Any, bytes]


def drain(channel: Any, queue: str) -> list[Delivery]:
    """All that is there; the first get waits until the queue is in."""
    found = []
    while (delivery := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(delivery)
    return found


def is_settled(queue: DeadQueue) -> bool:
    """Nothing in it can expire, so that every reading finds the same."""
    return not queue.vanishes and all(message.expiry_us is None for message in queue.messages())


def described(message: Message) -> tuple[Any, ...]:
    properties = decode_properties(message.properties)
    return (
        message.body,
        message.exchange,
        message.routing_keys[0],
        message.redelivered,
        properties.message_id,
        properties.headers,
        properties.delivery_mode,
    )


def delivered(method: Any, properties: Any, body: bytes) -> tuple[Any, ...]:
    return (
        body,
        method.exchange,
        method.routing_key,
        method.redelivered,
        properties.message_id,
        properties.headers,
        properties.delivery_mode,
    )


@pytest.mark.parametrize("name", CLASSIC)
def test_a_node_is_served_with_all_that_it_had(
    shared_directory: Callable[[str, str], DeadNode], tmp_path: Path, name: str
) -> None:
    dead = shared_directory("rabbitmq", name)
    before = tree_of(dead.path)
    with open_node(dead.path) as node, served(tmp_path / "d", dead.path) as process:
        queues = [queue for queue in node.queues if is_settled(queue)]
        assert sum(queue.account.live for queue in queues) > 100
        for vhost in sorted({queue.group for queue in queues}):
            with on_vhost(process, vhost) as connection:
                channel = connection.channel()
                for queue in (queue for queue in queues if queue.group == vhost):
                    wanted = [described(message) for message in queue.messages()]
                    got = [delivered(*each) for each in drain(channel, queue.name)]
                    assert got == wanted, queue.name
    assert tree_of(dead.path) == before


def tree_of(path: Path) -> dict[str, tuple[int, int, str]]:
    return {
        str(file): (
            file.stat().st_size,
            file.stat().st_mtime_ns,
            hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def test_what_the_node_itself_gave_back_is_what_consumers_get(
    shared_directory: Callable[[str, str], DeadNode], tmp_path: Path
) -> None:
    dead = shared_directory("rabbitmq", "a_v1_clean")
    messages = dead.messages
    with served(tmp_path / "d", dead.path) as process:
        for (vhost, name), truth in dead.recovered.items():
            if any(messages[row[0]]["expiration_ms"] for row in truth["messages"]):
                continue
            if name in ("q.ttl", "q.ttlq", "q.dlq", "q.dlsrc"):
                continue
            with on_vhost(process, vhost) as connection:
                got = [
                    (int(properties.message_id), method.redelivered, method.exchange)
                    for method, properties, _ in drain(connection.channel(), name)
                ]
            assert got == [(row[0], bool(row[1]), row[3]) for row in truth["messages"]], name


@pytest.mark.parametrize("name", ["q1", "q2"])
@pytest.mark.sample(2)
def test_quorum_queues_are_served(tmp_path: Path, name: str) -> None:
    path = unpack(DATA / f"quorum_{name}.tar.xz", tmp_path / "node")
    with open_node(path) as node, served(tmp_path / "d", path) as process:
        queues = [queue for queue in node.queues if is_settled(queue)]
        assert sum(queue.account.live for queue in queues) > 100
        for queue in queues:
            wanted = [(message.body, message.redelivered) for message in queue.messages()]
            with on_vhost(process, queue.group) as connection:
                channel = connection.channel()
                got = [(body, m.redelivered) for m, _, body in drain(channel, queue.name)]
            assert got == wanted, queue.name


def test_definitions_are_those_of_the_node(
    shared_directory: Callable[[str, str], DeadNode], tmp_path: Path
) -> None:
    dead = shared_directory("rabbitmq", "a_v1_clean")
    with served(tmp_path / "d", dead.path) as process, connect(process.url) as connection:
        with open_node(dead.path) as node:
            told = node.facts()["vhosts"]
        for queue in next(each["queues"] for each in told if each["vhost"] == "/"):
            if queue["durable"]:
                channel = connection.channel()
                channel.queue_declare(queue["queue"], durable=True, arguments=queue["arguments"])
        with pytest.raises(ChannelClosedByBroker, match="inequivalent arg 'x-max-priority'"):
            connection.channel().queue_declare("q.prio", durable=True)
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(process.url.replace("guest:guest", "guest:wrong"))


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A node with two queues of some size, that is read in some batches."""
    return write_node(tmp_path / "node")


def test_what_is_published_meanwhile_comes_behind(big: Path, tmp_path: Path) -> None:
    with open_node(big) as node:
        queue = max(node.queues, key=lambda each: each.account.live)
        bodies = [message.body for message in queue.messages()]
        name = queue.name
    words = ["definitions"]
    with served(tmp_path / "d", big, *words) as process, connect(process.url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", name, b"new", pika.BasicProperties(delivery_mode=2))
        assert [body for _, _, body in drain(channel, name)] == [*bodies, b"new"]


@pytest.mark.slow
def test_a_rescue_goes_on_after_kills(
    shared_directory: Callable[[str, str], DeadNode], tmp_path: Path
) -> None:
    dead = shared_directory("rabbitmq", "b_v1_kill9")
    directory = tmp_path / "d"
    run = [sys.executable, "-m", "qindex", "serve", str(directory), "--amqp", "127.0.0.1:0"]
    done = 0
    for round_ in range(6):
        process = subprocess.Popen(
            [*run, "--rescue", str(dead.path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        for _ in range(round_):  # it dies behind a queue, or at some place in the next one
            while (line := process.stderr.readline()) and "is in:" not in line:
                done += "the rescue is done" in line
        time.sleep(0.003 * round_)
        process.kill()
        process.communicate()
    assert not done
    with open_node(dead.path) as node, served(directory, dead.path) as served_:
        for queue in node.queues:
            if not is_settled(queue):
                continue
            with on_vhost(served_, queue.group) as connection:
                got = [body for _, _, body in drain(connection.channel(), queue.name)]
            assert got == [message.body for message in queue.messages()], queue.name


def test_a_queue_that_somebody_waits_for_is_copied_next(
    big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "BLOCK_BYTES", 2000)
    done: list[Copied] = []
    with open_node(big) as node, qindex.open(tmp_path / "s", format=2) as store:
        assert isinstance(node, Node)
        plan = make_plan(node, [])
        places = [("/", name) for name in plan.queues["/"]]
        copying = Copying(plan, {"/": store}, places, done.append)
        first, *_, last = places
        copying._go_on(first)
        copying.want(last)
        assert copying._next() == last
        copying._go_on(last)  # two queues are half copied now, and each goes on where it was
        assert [0 < copying._copies[place].messages < 100 for place in (first, last)] == [True] * 2
        copying.start()
        while len(done) < len(places):
            time.sleep(0.01)
        copying.stop()
        assert (done[0].vhost, done[0].name) == last
        assert not any(each.failed for each in done)
        for queue in node.queues:
            wanted = [message.body for message in queue.messages()]
            assert [message.body for message in store.queue(queue.name).browse()] == wanted


def wait_until_done(process: BrokerProcess) -> str:
    lines = ""
    assert process.process.stderr is not None
    while "the rescue is done" not in lines:
        lines += process.process.stderr.readline()
    return lines


@pytest.mark.slow
def test_when_it_is_done_the_node_is_not_needed(big: Path, tmp_path: Path) -> None:
    directory = tmp_path / "d"
    with served(directory, big, "definitions") as process:
        assert "queues" in process.line
        wait_until_done(process)
        with connect(process.url) as connection:
            channel = connection.channel()
            name = next(queue.name for queue in open_node(big).queues if queue.account.live)
            first = channel.basic_get(name, auto_ack=True)[2]
        assert process.end(signal.SIGTERM) == 0
    big.rename(tmp_path / "elsewhere")
    for arguments in ((), ("--rescue", str(big))):
        with (
            BrokerProcess(str(directory), *arguments) as process,
            connect(process.url) as connection,
        ):
            body = connection.channel().basic_get(name, auto_ack=True)[2]
            assert body
            assert body != first


def test_a_rescue_that_is_not_done_is_not_served_without_it(big: Path, tmp_path: Path) -> None:
    from qindex.broker.node import Node
    from qindex.broker.rescue.rescue import KEY
    from qindex.field_table import encode_table

    class Loop:
        def call_soon(self, *_: object) -> None: ...
        def call_later(self, *_: object) -> None: ...

    node = Node(tmp_path / "d", Loop(), lambda work, done: None, {}, is_rescue=True)  # type: ignore[arg-type]
    node.change({KEY: encode_table({"state": "messages", "source": str(big)})})
    node.close()
    code, text = refusal(tmp_path / "d")
    assert code == 2
    assert f"is not done: start with --rescue {big} again" in text
    code, text = refusal(tmp_path / "d", "--rescue", str(tmp_path / "another"))
    assert code == 2
    assert f"what is rescued here is {big}" in text
    code, text = refusal(tmp_path / "d", "--rescue", str(tmp_path))
    assert code == 2
    assert "where nothing is changed: go elsewhere" in text


def test_what_nothing_is_called_is_no_word_for_without(big: Path, tmp_path: Path) -> None:
    words = ["--without", "definitions", "--without", "damgae"]
    code, text = refusal(tmp_path / "d", "--rescue", str(big), *words)
    assert code == 1
    assert "nothing of the node is called that; is it 'damage'?" in text


def test_a_directory_that_was_served_before_is_no_place_for_a_rescue(
    big: Path, tmp_path: Path
) -> None:
    with BrokerProcess(str(tmp_path / "d")) as process:
        assert process.end(signal.SIGTERM) == 0
    code, text = refusal(tmp_path / "d", "--rescue", str(big))
    assert code == 2
    assert "was served before" in text


def test_damage_stops_the_rescue_unless_it_is_named(big: Path, tmp_path: Path) -> None:
    (file,) = list(big.rglob("0.rdq"))
    data = bytearray(file.read_bytes())
    data[0:8] = b"\xff" * 8
    file.write_bytes(data)
    code, text = refusal(tmp_path / "d", "--rescue", str(big), "--without", "definitions")
    assert code == 1
    assert "--without damage: what can be read would be served" in text
    with open_node(big) as node:
        live = {queue.name: queue.account.live for queue in node.queues}
    words = ["definitions", "damage"]
    with served(tmp_path / "d", big, *words) as process, connect(process.url) as connection:
        channel = connection.channel()
        assert all(len(drain(channel, name)) <= count for name, count in live.items())


def test_a_message_that_turns_out_to_be_damaged_keeps_its_queue_out(tmp_path: Path) -> None:
    path = unpack(DEMO.with_suffix(".tar.xz"), tmp_path / "node")
    (file,) = path.glob("**/628WB79CIFDYO9LJI6DKMI09L/msg_store_persistent/0.rdq")
    data = bytearray(file.read_bytes())
    data[24 + 2] = 5
    file.write_bytes(data)
    with served(tmp_path / "d", path) as process:
        lines = ""
        while "is not served" not in lines:
            lines += process.process.stderr.readline()  # type: ignore[union-attr]
        name = lines.rpartition("queue '")[2].partition("'")[0]
        text = "1 of its messages cannot be read"
        with connect(process.url) as connection, pytest.raises(ChannelClosedByBroker, match=text):
            connection.channel().basic_get(name)
    with served(tmp_path / "d", path, "damage") as process, connect(process.url) as connection:
        assert drain(connection.channel(), name)


@pytest.mark.parametrize("what", ["empty", "nothing", "a store"])
@pytest.mark.sample(3)
def test_what_is_no_node_is_refused_with_one_line(tmp_path: Path, what: str) -> None:
    node = tmp_path / "node"
    if what == "a store":
        qindex.open(node).close()
    elif what == "empty":
        node.mkdir()
    new = [str(tmp_path / "new"), "--amqp", "127.0.0.1:0", "--rescue", str(node)]
    command = [sys.executable, "-m", "qindex", "serve", *new]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "nothing is served" in done.stderr


def test_an_address_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "qindex", "serve", "--memory", "--amqp", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"cannot listen on --amqp {address}: Address already in use" in done.stderr


def test_what_is_suspected_to_be_missing_has_to_be_accepted(tmp_path: Path) -> None:
    """A member of a cluster may lack what another has; with the best one nothing is suspected."""
    cluster = unpack(DATA / "quorum_c3.tar.xz", tmp_path / "c3")
    code, text = refusal(tmp_path / "d", "--rescue", str(cluster / "n3"))
    assert code != 0
    assert "--without damage: what can be read would be served" in text
    assert "others may have newer messages" in text
    members = [part for name in ("n1", "n2") for part in ("--member", str(cluster / name))]
    arguments = [str(tmp_path / "d"), "--rescue", str(cluster / "n3"), *members]
    with BrokerProcess(*arguments) as process, connect(process.url) as connection:
        assert len(drain(connection.channel(), "three")) == 144
