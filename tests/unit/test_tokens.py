"""Tokens: a delivery that goes over a wire, comes back as text, and settles itself only."""

import base64
import shutil

import pytest
from helpers import on_a_loop, state

import qindex
import qindex.aio
from qindex.testing import SimulatedDisk, abandon


def settled_ways(store, queue):
    return {
        "store.ack": store.ack,
        "store.ack_many": lambda token: store.ack_many([token]),
        "store.nack": store.nack,
        "store.nack_many": lambda token: store.nack_many([token]),
        "store.touch": lambda token: store.touch(token, 30),
        "ack": queue.ack,
        "_ack": queue._ack,
        "ack_many": lambda token: queue.ack_many([token]),
        "nack": queue.nack,
        "nack later": lambda token: queue.nack(token, delay=5),
        "drop": lambda token: queue.nack(token, requeue=False),
        "nack_many": lambda token: queue.nack_many([token]),
        "touch": lambda token: queue.touch(token, 30),
    }


WAYS = tuple(settled_ways(qindex.Store, qindex.Queue))
every_way = pytest.mark.parametrize("way", WAYS)
formats = pytest.mark.parametrize("version", [1, 2])


@formats
@every_way
def test_a_token_stands_for_its_message(tmp_path, way, version):
    with qindex.open(tmp_path / "s", format=version) as store:
        queue = store.queue("a")
        queue.publish_many([b"one", b"two"])
        early = queue.get()
        assert queue.get().body == b"two"
        settled_ways(store, queue)[way](early.token)
        expected = {"ack": (1, 0), "drop": (1, 0), "nack later": (1, 1), "touch": (2, 0)}
        plain = way.removeprefix("store.").removeprefix("_").removesuffix("_many")
        out, waits = expected.get(plain, (1, 1))
        assert (queue.unacked, len(queue) - queue.unacked) == (out, waits)


@pytest.mark.parametrize("lease", [None, 1000])
@every_way
def test_a_token_of_a_delivery_that_has_ended_settles_nothing(store, way, lease):
    queue = store.queue("a")
    queue.publish(b"body")
    early = queue.get(lease=lease)
    token = early.token
    queue.nack(early)
    assert early.token == token
    late = queue.get(lease=lease)
    assert late.token != token
    before = state(queue)
    with pytest.raises(qindex.DeliveryEnded):
        settled_ways(store, queue)[way](token)
    assert state(queue) == before
    store.ack(late.token)


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@every_way
def test_a_token_from_before_an_end_is_refused(end, way):
    """Same queue, same ReqId, and the same count again: a power cut took the delivery away."""
    disk = SimulatedDisk(seed=1)
    store = qindex.open("/", disk=disk, sync="never")
    store.queue("a").publish(b"body", confirm=True)
    token = store.queue("a").get().token
    if end == "close":
        store.close()
    left = {"close": lambda: disk, "kill": disk.kill}.get(end, lambda: disk.power_cut(1, "nothing"))
    with qindex.open("/", disk=left()) as again:
        queue = again.queue("a")
        late = queue.get()
        before = state(queue)
        with pytest.raises(qindex.DeliveryEnded, match="earlier session or of another store"):
            settled_ways(again, queue)[way](token)
        assert state(queue) == before
        again.ack(late.token)
    abandon(store)


def test_a_token_of_a_copy_of_the_store_is_refused(tmp_path):
    """Identities and session numbers are the same in both; the keys are not."""
    with qindex.open(tmp_path / "a") as store:
        store.queue("q").publish(b"body")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with qindex.open(tmp_path / "a") as one, qindex.open(tmp_path / "b") as other:
        token = one.queue("q").get().token
        other.queue("q").get()
        with pytest.raises(qindex.DeliveryEnded):
            other.ack(token)
        assert other.queue("q").unacked == 1


def test_a_token_is_of_its_queue_only(store):
    a, b = store.queue("a"), store.queue("b")
    for queue in (a, b):
        queue.publish(b"body")
    token = a.get().token
    with pytest.raises(qindex.UnknownMessage):
        b.ack(token)
    b.get()
    with pytest.raises(qindex.DeliveryEnded):
        b.ack(token)
    b.ack(0)
    with pytest.raises(qindex.DeliveryEnded):
        b.ack(token)
    for verb in (b.delete, b.reschedule):
        with pytest.raises(qindex.UnknownMessage):
            verb(token)
    store.ack(token)
    with pytest.raises(qindex.AlreadyAcked):
        a.ack(token)
    store.delete_queue("a")
    with pytest.raises(qindex.DeliveryEnded, match="deleted"):
        store.ack(token)


def test_delete_and_reschedule_take_tokens(queue):
    queue.publish(b"body")
    message = queue.get()
    token = message.token
    with pytest.raises(qindex.MessageDelivered):
        queue.delete(token)
    queue.nack(token)
    queue.reschedule(token, delay=100)
    queue.delete(token)
    assert len(queue) == 0


def test_nobody_makes_the_token_of_another_delivery(store):
    """Every bit counts; a consumer that knows one token knows no other."""
    queue = store.queue("a")
    queue.publish_many([b"body"] * 8)
    messages = queue.get_many(8)
    token = messages[3].token
    content = base64.urlsafe_b64decode(token)
    assert len(token) == 32
    assert len(content) == 24
    for bit in range(8 * len(content)):
        other = bytearray(content)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(qindex.DeliveryEnded):
            store.ack(base64.urlsafe_b64encode(other).decode())
    assert queue.unacked == 8
    store.ack_many([message.token for message in messages])
    assert len(queue) == 0


@pytest.mark.parametrize("no", ["", "a" * 31, "a" * 33, "=" * 32, "ä" * 32, "+" * 32, "\0" * 32])
def test_what_is_no_token_is_an_argument_error(store, no):
    queue = store.queue("a")
    for verb in (store.ack, queue.ack, lambda t: queue.ack_many([t]), lambda t: queue.nack(t)):
        with pytest.raises(ValueError, match="a token has 32 letters"):
            verb(no)


@pytest.mark.parametrize("verb", ["ack", "nack", "delete", "reschedule"])
def test_a_req_id_as_commands_print_it_is_refused_with_what_to_do(store, verb):
    queue = store.queue("a")
    req_id = queue.publish(b"x", priority=5)
    with pytest.raises(ValueError, match="a ReqId is an int") as refused:
        getattr(queue, verb)(str(req_id))
    assert f"int('{req_id}')" in str(refused.value)
    assert queue.peek(int(str(req_id))).body == b"x"


def test_messages_tokens_and_req_ids_stand_in_one_list(store):
    queue = store.queue("a")
    queue.publish_many([b"a", b"b", b"c"])
    a, b, c = queue.get_many(3)
    queue.nack_many([a.token, b, c.req_id])
    a, b, c = queue.get_many(3)
    with pytest.raises(ValueError, match="twice"):
        queue.ack_many([a.token, a])
    queue.ack_many(iter([a.token, b, c.req_id]))
    assert len(queue) == 0


def test_a_message_that_was_only_looked_at_has_no_token(queue):
    queue.publish(b"body")
    with pytest.raises(qindex.UnknownMessage, match="with nobody"):
        queue.peek().token  # noqa: B018


def test_deliveries_have_numbers_of_their_own_where_the_count_is_full(queue):
    """The count stays at 65535. Deliveries behind that differ all the same."""
    queue.publish(b"body")
    for _ in range(65533):
        queue.nack(queue.get())
    tokens = []
    for take in (queue.get, queue._get, queue.get_newest, lambda: queue.get_many(1)[0]) * 3:
        message = take()
        for token in tokens:
            with pytest.raises(qindex.DeliveryEnded):
                queue.ack(token)
        tokens.append(message.token)
        queue.touch(message.token, 1000)
        queue.nack(message)
    assert len(set(tokens)) == 12
    assert queue.get().delivery_count == 65535


def test_tokens_on_an_event_loop(tmp_path):
    @on_a_loop
    async def settle():
        async with qindex.aio.open(tmp_path / "s") as store:
            queue = await store.queue("a")
            for _ in range(6):
                await queue.publish(b"body")
            await store.ack((await queue.get()).token)
            await queue.ack((await queue.get()).token)
            await store.ack_many([m.token for m in await queue.get_many(2)])
            token = (await queue.get()).token
            await store.touch(token, 30)
            await store.nack(token)
            with pytest.raises(qindex.UnknownMessage):
                await queue.ack(token)
            await queue.ack_many([m.token for m in await queue.get_many(2)])
            assert (await queue.stats()).unacked == 0

    settle()


def test_a_touch_of_a_message_without_seconds_says_what_it_needs(open_store):
    queue = open_store(format=2).queue("a")
    queue.publish(b"x", lease=30)
    message = queue.get()
    with pytest.raises(TypeError, match=r"for how many seconds from now: message\.touch\(30\)"):
        message.touch()
    with pytest.raises(TypeError, match="with 30 it ends in 30 seconds"):
        message.touch(None)
    message.touch(30)
    message.touch(lease=30)
    with pytest.raises(TypeError, match="lase"):
        message.touch(lase=30)
