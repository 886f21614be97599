"""Users of the broker, and what they may do where."""

from __future__ import annotations

import base64
import hashlib

import pika
import pytest
from broker_process import connect
from broker_rooms import NoSyncs, Turns
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError

from qindex.broker.errors import Invalid, NotAllowed
from qindex.broker.node import Node
from qindex.broker.users import EVERYTHING, Permission, Users
from qindex.serve import Broker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(params=["memory", "store"])
def node(request, tmp_path):
    directory = None if request.param == "memory" else tmp_path / "node"
    found = Node(directory, Turns(), NoSyncs, {})
    yield found
    found.close()


def test_a_user_is_added_changed_and_deleted(node):
    users = node.users
    users.add("ann", "one")
    assert users.may_enter("ann", "one", is_local=False)
    users.change_password("ann", "two")
    assert not users.may_enter("ann", "one", is_local=False)
    users.set_tags("ann", ["administrator"])
    assert users.may_enter("ann", "two", is_local=False)
    assert users.tags("ann") == ["administrator"]
    users.set_permissions("/", "ann", EVERYTHING)
    users.delete("ann")
    assert users.names() == ["guest"]
    assert users.permissions(vhost="/") == {"guest": EVERYTHING}


def test_a_password_that_was_right_is_wrong_when_it_was_changed(node):
    node.users.add("ann", "one")
    for _ in range(2):  # the second time it is remembered
        assert node.users.may_enter("ann", "one", is_local=False)
        assert not node.users.may_enter("ann", "two", is_local=False)
    node.users.change_password("ann", "two")
    assert not node.users.may_enter("ann", "one", is_local=False)
    node.users.delete("ann")
    assert not node.users.may_enter("ann", "two", is_local=False)


def test_guest_comes_from_this_machine_only(node):
    assert node.users.may_enter("guest", "guest", is_local=True)
    assert not node.users.may_enter("guest", "guest", is_local=False)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda node: node.users.add("guest", "x"), "already exists"),
        (lambda node: node.users.add("ann", ""), "needs a password"),
        (lambda node: node.users.delete("ann"), 'User "ann" does not exist'),
        (lambda node: node.users.change_password("ann", "x"), "does not exist"),
        (
            lambda node: node.users.set_permissions("/", "guest", Permission("(", "", "")),
            "not a regular expression",
        ),
        (lambda node: node.add_vhost("/"), 'Virtual host "/" already exists'),
        (lambda node: node.delete_vhost("x"), 'Virtual host "x" does not exist'),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(node, call, text):
    before = dict(node.entries)
    with pytest.raises(Invalid, match=text):
        call(node)
    assert node.entries == before


def test_users_and_permissions_survive_a_restart(tmp_path):
    first = Node(tmp_path / "n", Turns(), NoSyncs, {})
    first.users.add("ann", "secret")
    first.add_vhost("work")
    first.users.set_permissions("work", "ann", Permission("^a", "", "b$"))
    first.close()
    again = Node(tmp_path / "n", Turns(), NoSyncs, {})
    assert again.vhosts == ["/", "work"]
    assert again.users.permissions(user="ann") == {"work": Permission("^a", "", "b$")}
    assert again.users.may_enter("ann", "secret", is_local=False)
    with pytest.raises(NotAllowed, match="access to vhost '/' refused for user 'ann'"):
        again.users.rights("ann", "/")
    again.close()


def test_a_deleted_virtual_host_leaves_nothing_and_its_number_is_not_given_again(tmp_path):
    node = Node(tmp_path / "n", Turns(), NoSyncs, {})
    node.add_vhost("work")
    node.vhost("work")
    assert (tmp_path / "n" / "vhosts" / "1").is_dir()
    node.delete_vhost("work")
    assert not (tmp_path / "n" / "vhosts" / "1").exists()
    node.add_vhost("other")
    assert not node.vhost("other").queues
    assert (tmp_path / "n" / "vhosts" / "2").is_dir()
    node.close()


def test_a_deletion_that_a_crash_interrupts_is_ended_by_the_next_start(tmp_path, monkeypatch):
    node = Node(tmp_path / "n", Turns(), NoSyncs, {})
    node.add_vhost("work")
    node.vhost("work")
    monkeypatch.setattr(node, "_remove_deleted", lambda: None)
    node.delete_vhost("work")
    node.close()
    assert (tmp_path / "n" / "vhosts" / "1").is_dir()
    again = Node(tmp_path / "n", Turns(), NoSyncs, {})
    assert not (tmp_path / "n" / "vhosts" / "1").exists()
    assert again.vhosts == ["/"]
    again.close()


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_digests_of_rabbitmq_let_their_users_in(node, algorithm):
    salt = b"\x90\x8d\xc6\x0a"
    digest = salt + hashlib.new(algorithm, salt + b"test12").digest()
    node.change(Users.entry_of_rabbitmq("ann", digest, algorithm, ["monitoring"]))
    assert node.users.may_enter("ann", "test12", is_local=False)
    assert not node.users.may_enter("ann", "test13", is_local=False)
    assert node.users.tags("ann") == ["monitoring"]


def test_the_example_of_rabbitmqs_documentation(node):
    digest = base64.b64decode("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    node.change(Users.entry_of_rabbitmq("ann", digest, "sha256", []))
    assert node.users.may_enter("ann", "test12", is_local=False)


@pytest.mark.parametrize(("digest", "algorithm"), [(b"", "sha256"), (b"1234" * 9, "unknown")])
def test_a_user_without_a_known_digest_cannot_log_in(node, digest, algorithm):
    node.change(Users.entry_of_rabbitmq("ann", digest, algorithm, []))
    assert not node.users.may_enter("ann", "", is_local=True)


# ---- through a connection ----


@pytest.fixture
def broker():
    with Broker() as found, connect(found.url) as connection:
        channel = connection.channel()
        channel.queue_declare("free-q")
        channel.queue_declare("other-q")
        channel.exchange_declare("free-x")
        channel.exchange_declare("other-x")
        yield found


@pytest.fixture
def limited(broker):
    """A connection of a user who may do everything to what begins with free, and nothing else."""
    users = broker.server.node.users
    users.add("ann", "secret")
    users.set_permissions("/", "ann", Permission("^free", "^free", "^free"))
    with connect(broker.url.replace("guest:guest", "ann:secret")) as connection:
        yield connection


def test_what_is_permitted_works(limited):
    channel = limited.channel()
    channel.queue_bind("free-q", "free-x", "k")
    channel.confirm_delivery()
    channel.basic_publish("free-x", "k", b"1", mandatory=True)
    assert channel.basic_get("free-q", auto_ack=True)[2] == b"1"
    channel.queue_declare("other-q", passive=True)


DEFAULT = "exchange 'amq.default'"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda c: c.queue_declare("other-q"), "queue 'other-q'"),
        (lambda c: c.queue_delete("other-q"), "queue 'other-q'"),
        (lambda c: c.queue_purge("other-q"), "queue 'other-q'"),
        (lambda c: c.basic_get("other-q"), "queue 'other-q'"),
        (lambda c: c.basic_consume("other-q", print), "queue 'other-q'"),
        (lambda c: c.exchange_declare("other-x"), "exchange 'other-x'"),
        (lambda c: c.exchange_delete("other-x"), "exchange 'other-x'"),
        (lambda c: c.queue_bind("other-q", "free-x"), "queue 'other-q'"),
        (lambda c: c.queue_bind("free-q", "other-x"), "exchange 'other-x'"),
        (lambda c: c.exchange_bind("other-x", "free-x"), "exchange 'other-x'"),
        (lambda c: c.exchange_bind("free-x", "other-x"), "exchange 'other-x'"),
        (lambda c: c.basic_publish("other-x", "k", b"1"), "exchange 'other-x'"),
        (lambda c: c.basic_publish("", "free-q", b"1"), DEFAULT),
        (
            lambda c: c.queue_declare("free-d", arguments={"x-dead-letter-exchange": "other-x"}),
            "exchange 'other-x'",
        ),
        (
            lambda c: c.exchange_declare("free-a", arguments={"alternate-exchange": "other-x"}),
            "exchange 'other-x'",
        ),
    ],
)
def test_what_is_not_permitted_closes_the_channel_with_rabbitmqs_words(limited, call, what):
    channel = limited.channel()

    def ask():
        call(channel)
        channel.queue_declare("free-q")  # a publish is not answered

    with pytest.raises(ChannelClosedByBroker) as caught:
        ask()
    text = f"ACCESS_REFUSED - access to {what} in vhost '/' refused for user 'ann'"
    assert (caught.value.reply_code, caught.value.reply_text) == (403, text)


def test_a_name_is_checked_as_it_is_meant_without_line_ends(broker, limited):
    broker.server.node.vhost("/").declare_queue(
        "kept", durable=False, auto_delete=False, owner=None, user=None, arguments={}
    )
    everything_else = Permission(*["^(?!kept)"] * 3)
    broker.server.node.users.set_permissions("/", "ann", everything_else)
    for call in ("queue_purge", "queue_delete", "basic_get"):
        with pytest.raises(ChannelClosedByBroker, match="access to queue 'kept'"):
            getattr(limited.channel(), call)("\nkept")
    assert "kept" in broker.server.node.vhost("/").queues


def test_a_change_of_permissions_counts_at_once(broker, limited):
    channel = limited.channel()
    channel.confirm_delivery()
    channel.basic_publish("free-x", "k", b"1")
    broker.server.node.users.set_permissions("/", "ann", Permission("", "", ""))
    with pytest.raises(ChannelClosedByBroker, match="refused for user 'ann'"):
        channel.basic_publish("free-x", "k", b"2")


def test_a_user_without_permissions_may_not_enter(broker):
    broker.server.node.users.add("ann", "secret")
    with pytest.raises(ProbableAccessDeniedError, match="access to vhost '/' refused for user"):
        pika.BlockingConnection(pika.URLParameters(broker.url.replace("guest:guest", "ann:secret")))
