"""republish: what a broker gets, what it may refuse, and going on after an end of any kind.

A stub with pika's interface stands for the broker; tests/compat has a real one.
"""

import json
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

import qindex
from qindex.brokers.amqp import Properties, decode_properties, encode_properties
from qindex.cli.republish import command as republish
from qindex.cli.republish.amqp import Login, Pace

pika = pytest.importorskip("pika", reason="qindex[amqp] is not installed")
URL = "amqp://me:secret@broker/vh"


class StubBroker:
    """Connection and channels in one: queues by name, each a list of (body, raw properties)."""

    def __init__(self, *queues):
        self.queues = {name: [] for name in queues}
        self.exchanges = {}  # (exchange, key) -> queue
        self.fails = {}  # number of the publish -> what it raises
        self.published = 0
        self.closed = False
        self.confirms = False
        self.urls = []

    def __call__(self, parameters):
        self.urls.append(parameters)
        return self

    def channel(self):
        return SimpleNamespace(
            confirm_delivery=self.confirm_delivery,
            queue_declare=self.queue_declare,
            basic_publish=self.basic_publish,
            close=lambda: None,
        )

    def confirm_delivery(self):
        self.confirms = True

    def queue_declare(self, name, passive=False, durable=False):
        if name not in self.queues:
            if passive:
                raise pika.exceptions.ChannelClosedByBroker(404, f"NOT_FOUND - no queue '{name}'")
            assert durable
            self.queues[name] = []

    def basic_publish(self, exchange, routing_key, body, properties, mandatory):
        assert mandatory
        assert self.confirms
        self.published += 1
        if self.published in self.fails:
            raise self.fails[self.published]
        queue = self.exchanges.get((exchange, routing_key), None if exchange else routing_key)
        if queue not in self.queues:
            raise pika.exceptions.UnroutableError([])
        self.queues[queue].append((body, b"".join(properties.encode())))

    def sleep(self, seconds):
        raise AssertionError("only a rate limit sleeps")

    def close(self):
        self.closed = True


@pytest.fixture
def broker(monkeypatch):
    stub = StubBroker("mails", "orders")
    monkeypatch.setattr(pika, "BlockingConnection", stub)
    return stub


@pytest.fixture
def go(run, tmp_path):
    """Republishes a path to the stub; the checkpoint is always the same."""

    def go(path, *options):
        checkpoint = tmp_path / "checkpoint"
        return run("republish", path, "--amqp", URL, "--checkpoint", checkpoint, *options)

    return go


def bodies(broker, queue):
    return [body for body, _ in broker.queues[queue]]


def content(path, queue):
    with qindex.open(path, read_only=True) as store:
        return [message.body for message in store.queue(queue).browse()]


def test_every_message_gets_to_its_queue_in_order(go, broker, store_path):
    code, out, err = go(store_path)
    assert (code, err) == (0, "")
    assert "470 messages confirmed by amqp://broker:5672 vhost vh;" in out
    assert "secret" not in out
    for queue in ("mails", "orders"):
        assert bodies(broker, queue) == content(store_path, queue)
    assert broker.closed


def test_a_message_of_rabbitmq_keeps_its_properties_to_the_byte(go, broker, run, dead_node):
    broker.queues = {"q.small": [], "q.mixed": []}
    assert go(dead_node, "q.small", "q.mixed").code == 0
    out = run("cat", dead_node, "q.small", "q.mixed", "--jsonl").out
    lines = [json.loads(line) for line in out.splitlines()]
    raw = [raw for queue in broker.queues.values() for _, raw in queue]
    assert len(raw) == len(lines) == 85
    for sent, line in zip(raw, lines, strict=True):
        told = line["headers"]["properties"]
        assert sent == (told.encode() if isinstance(told, str) else bytes.fromhex(told["hex"]))


def test_other_messages_carry_headers_mode_and_expiry(go, broker, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("mails").publish(b"a", headers={"x": [1, "y"]})
        store.queue("mails").publish(b"b", persistent=False, ttl=1000, priority=7)
    assert go(tmp_path / "s").code == 0
    first, second = (decode_properties(raw) for _, raw in broker.queues["mails"])
    assert (first.headers, first.delivery_mode, first.expiration) == ({"x": [1, "y"]}, 2, None)
    assert (first.priority, second.priority) == (None, 7)
    assert (second.headers, second.delivery_mode) == (None, 1)
    assert 900_000 < int(second.expiration) <= 1_000_000


def test_missing_queues_are_told_before_anything_is_published(go, broker, store_path, tmp_path):
    del broker.queues["orders"]
    code, _, err = go(store_path)
    assert code == 2
    assert "1 queue too few: orders" in err
    assert broker.published == 0
    assert go(store_path, "--declare").code == 0
    assert bodies(broker, "orders") == content(store_path, "orders")


def test_an_unroutable_message_is_told_and_the_rest_goes_on(go, broker, store_path):
    broker.fails[3] = pika.exceptions.UnroutableError([])
    code, out, err = go(store_path, "orders")
    assert code == 1
    assert "unroutable: message orders 72: routing key 'orders'" in err
    assert "234 messages confirmed" in out
    assert "1 message unroutable" in out
    left = content(store_path, "orders")
    del left[2]
    assert bodies(broker, "orders") == left
    assert go(store_path, "orders").code == 1  # complete, and it still says so


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (pika.exceptions.NackError([]), "refused message 129 of orders"),
        (pika.exceptions.StreamLostError("gone"), "the connection is lost"),
        (pika.exceptions.ChannelClosedByBroker(406, "PRECONDITION_FAILED"), "PRECONDITION_FAILED"),
        (ConnectionResetError("reset"), "the connection is lost"),
    ],
)
def test_after_a_failure_it_goes_on_with_the_message_that_failed(
    go, broker, store_path, failure, text
):
    broker.fails[60] = failure
    code, _, err = go(store_path, "orders")
    assert code == 2
    assert text in err
    assert "59 messages so far: run it again to go on" in err
    code, out, _ = go(store_path, "orders")
    assert code == 0
    assert "235 messages confirmed" in out
    assert "59 of them in an earlier run" in out
    assert bodies(broker, "orders") == content(store_path, "orders")


def test_an_interrupt_goes_on_likewise(go, broker, store_path):
    broker.fails[60] = KeyboardInterrupt()
    assert go(store_path).code == 130
    assert go(store_path).code == 0
    assert bodies(broker, "mails") == content(store_path, "mails")


KILLED = """
import os, signal, sys
import pika
from types import SimpleNamespace
from qindex.cli.main import main

log = open(sys.argv[1], "ab", buffering=0)
left = int(sys.argv[2])

def publish(exchange, routing_key, body, properties, mandatory):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    log.write(routing_key.encode() + b" " + body[:20] + b"\\n")

channel = SimpleNamespace(confirm_delivery=lambda: None, basic_publish=publish,
                          queue_declare=lambda *_, **__: None, close=lambda: None)
pika.BlockingConnection = lambda _: SimpleNamespace(channel=lambda: channel, close=lambda: None)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.slow
def test_after_kills_everything_is_there_and_little_is_twice(store_path, tmp_path):
    arguments = ["republish", store_path, "--amqp", URL, "--checkpoint", tmp_path / "c"]
    for after in (0, 250, 130, 10_000):
        command = [sys.executable, "-c", KILLED, tmp_path / "log", str(after), *arguments]
        code = subprocess.run(command, capture_output=True).returncode
        assert code == (0 if after == 10_000 else -9)
    sent = Counter((tmp_path / "log").read_bytes().splitlines())
    wanted = Counter(
        f"{queue} {body[:20].decode()}".encode()
        for queue in ("mails", "orders")
        for body in content(store_path, queue)
    )
    assert sent.keys() == wanted.keys()
    assert not wanted - sent
    assert (sent - wanted).total() <= 2 * republish.COMMIT_MESSAGES


def test_as_published_uses_exchange_and_routing_key(go, broker, dead_node, run):
    for line in run("cat", dead_node, "q.fan1", "--jsonl").out.splitlines():
        headers = json.loads(line)["headers"]
        assert headers["exchange"]
        broker.exchanges[headers["exchange"], headers["routing_keys"][0]] = "mails"
    assert go(dead_node, "q.fan1", "--as-published").code == 0
    assert len(broker.queues["mails"]) == 14


def test_a_prefix_is_stripped(go, broker, dead_node):
    broker.queues["q.small"] = []
    assert go(dead_node, "vh-два/q.small", "--strip-prefix", "vh-два/").code == 0
    assert len(broker.queues["q.small"]) == 10


def test_what_has_expired_is_left_out_unless_asked_for(go, broker, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("mails").publish(b"old", expires_at=1)
        store.queue("mails").publish(b"new")
    assert go(tmp_path / "s").code == 0
    assert bodies(broker, "mails") == [b"new"]


def test_a_foreign_user_id_is_left_out(go, broker, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        for user in ("me", "other"):
            raw = encode_properties(Properties(user_id=user, app_id="x"))
            store.queue("mails").publish(b"", headers={"properties": raw})
    assert go(tmp_path / "s").code == 0
    sent = [decode_properties(raw) for _, raw in broker.queues["mails"]]
    assert [(p.user_id, p.app_id) for p in sent] == [("me", "x"), (None, "x")]


def test_damaged_properties_are_told_and_left_out(go, broker, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("mails").publish(b"bad", headers={"properties": b"\xff\xff\xff"})
        store.queue("mails").publish(b"good")
    code, _, err = go(tmp_path / "s")
    assert code == 1
    assert "message mails 0: damaged properties" in err
    assert bodies(broker, "mails") == [b"good"]


def test_the_checkpoint_is_of_one_job_and_has_no_password(go, broker, store_path, tmp_path):
    go(store_path, "orders")
    assert "secret" not in (tmp_path / "checkpoint").read_text()
    code, _, err = go(store_path)
    assert code == 2
    assert "another job" in err
    code, out, _ = go(store_path, "orders", "--json")
    assert (code, json.loads(out)["published"]) == (0, 235)
    assert broker.published == 235


@pytest.mark.parametrize("url", ["http://x", "amqp://", "broker", "amqp://h:x/"])
def test_a_url_that_is_none_is_refused(run, store_path, tmp_path, url):
    code, _, err = run("republish", store_path, "--amqp", url, "--checkpoint", tmp_path / "c")
    assert code == 2
    assert "amqp://user:password@host" in err


def test_no_broker_is_one_line(run, store_path, tmp_path):
    url = "amqp://me:secret@127.0.0.1:1/"
    code, _, err = run("republish", store_path, "--amqp", url, "--checkpoint", tmp_path / "c")
    assert code == 2
    assert "no connection to amqp://127.0.0.1:1 vhost /" in err
    assert "secret" not in err
    assert err.count("\n") == 1


def test_without_pika_it_says_what_to_install(run, store_path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pika", None)
    code, _, err = run("republish", store_path, "--amqp", URL, "--checkpoint", tmp_path / "c")
    assert code == 2
    assert "pip install 'qindex[amqp]'" in err


def test_a_rate_is_kept_without_bursts():
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10, sleep, lambda: now[0])
    for _ in range(5):
        pace.wait()
    assert now[0] == pytest.approx(100.4)
    now[0] += 60  # the broker was slow
    pace.wait()
    pace.wait()
    assert slept[-1] == pytest.approx(0.1)
    assert not Pace(None, sleep).wait()


def test_the_login_names_the_broker_without_the_password():
    assert Login.from_url("amqps://u%40x:p@h/%2F") == Login(
        "amqps://u%40x:p@h/%2F", "u@x", "amqps://h:5671 vhost /"
    )
