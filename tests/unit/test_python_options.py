"""Options of publish and get: read in C, they mean what the Python methods make of them."""

import threading
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as some

import qindex
from qindex.calls import decode_headers
from qindex.field_table import AmqpError, decode_table, encode_table

FAR = 4_000_000_000.5  # seconds since 1970


@pytest.fixture
def queue(tmp_path):
    with qindex.open(tmp_path / "a", embed_below=2000, format=1) as store:
        yield store.queue("q")


@pytest.fixture
def usual(queue, monkeypatch):
    """The names of the Python methods that were called."""
    called = []
    for name in ("_publish", "_get", "_ack"):
        method = getattr(qindex.Queue, name)

        def noted(self, *arguments, method=method, name=name, **options):
            called.append(name)
            return method(self, *arguments, **options)

        monkeypatch.setattr(qindex.Queue, name, noted)
    return called


def told(message):
    return (
        message.body,
        message.headers,
        message.persistent,
        message.expires_at,
        message.redelivered,
        message.delivery_count,
        message.priority,
        message.due,
    )


OPTIONS = [
    {},
    {"headers": {"a": "b", "c": 1, "d": 2.5, "e": None, "f": True, "g": b"x", "h": -(1 << 40)}},
    {"headers": {}, "persistent": True, "redelivered": False, "confirm": False},
    {"headers": None, "ttl": None, "expires_at": None, "delay": None, "due": None, "lease": None},
    {"persistent": False},
    {"redelivered": True},
    {"expires_at": FAR, "priority": 3},
    {"due": 5.25, "headers": {"ä": "ö"}},
    {"headers": {"k": "v"}, "persistent": False, "redelivered": True, "expires_at": FAR},
    {"headers": {"k": "v" * 900}},
    {"confirm": True},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("size", [0, 100, 1999, 2000, 5000, 70_000])
def test_both_ways_publish_and_get_the_same(queue, usual, options, size):
    body = b"x" * size
    first = queue._publish(body, **options)
    assert queue.publish(body, **options) == first + 1
    assert usual == ["_publish"]
    one, other = queue.get(), queue._get()
    assert (one.req_id, other.req_id) == (first, first + 1)
    assert told(one) == told(other)
    assert usual == ["_publish", "_get"]


@pytest.mark.parametrize(
    "headers",
    [
        {"k": ["a", [1]]},
        {"k": {"inner": 1}},
        {"k": datetime(2026, 1, 1, tzinfo=UTC)},
        {"k": Decimal("1.5")},
        {"k": bytearray(b"x")},
        {"k" * 255: "x" * 5000},
        {"\udcff": 1},
    ],
)
def test_unusual_headers_go_the_usual_way_and_come_back(queue, usual, headers):
    queue.publish(b"body", headers=headers)
    assert usual == ["_publish"]
    assert queue.get().headers == headers


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"headers": {5: 1}}, TypeError),
        ({"headers": {"k": object()}}, TypeError),
        ({"headers": {"k": 1 << 64}}, ValueError),
        ({"headers": {"k": "\ud800"}}, ValueError),
        ({"headers": {"k" * 256: 1}}, ValueError),
        ({"headers": "text"}, TypeError),
        ({"ttl": 1, "expires_at": FAR}, ValueError),
        ({"expires_at": FAR, "ttl": 1}, ValueError),
        ({"ttl": -1}, ValueError),
        ({"ttl": "5"}, TypeError),
        ({"expires_at": float("inf")}, ValueError),
        ({"lease": 0}, ValueError),
        ({"lease": 5}, qindex.FormatError),
        ({"prioritty": 3}, TypeError),
        ({"prioritty": None}, TypeError),
        ({"timeout": -1}, ValueError),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_published(queue, options, error):
    with pytest.raises(error):
        queue.publish(b"body", **options)
    assert len(queue) == 0


@pytest.mark.parametrize("options", [{"timeot": 1}, {"headers": {}}, {"timeout": -1}, {"lease": 0}])
def test_a_get_refuses_what_it_does_not_know(queue, options):
    queue.publish(b"body")
    with pytest.raises((TypeError, ValueError)):
        queue.get(**options)
    assert queue.ready == 1


def test_a_name_that_was_made_at_run_time_is_the_same_name(queue):
    name = "".join(["prio", "rity"])
    queue.publish(b"body", **{name: 7})
    assert queue.get(**{"".join(["time", "out"]): 0}).priority == 7


def test_ttl_0_has_expired_at_once(queue):
    queue.publish(b"over", ttl=0)
    queue.publish(b"body", ttl=1000)
    message = queue.get()
    assert message.body == b"body"
    assert message.expires_at > 1_700_000_000


def test_bodies_of_message_files_are_got_by_many_threads_once_each(queue):
    sizes = [2000 + 700 * (i % 9) for i in range(300)]
    for i, size in enumerate(sizes):
        queue.publish(b"%d:" % i + b"x" * size, headers={"n": i} if i % 2 else None)
    taken = []

    def take():
        while (message := queue.get()) is not None:
            taken.append(message)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(m.req_id for m in taken) == list(range(300))
    for message in taken:
        number, _, rest = message.body.partition(b":")
        assert (int(number), len(rest)) == (message.req_id, sizes[message.req_id])
        assert message.headers == ({"n": message.req_id} if message.req_id % 2 else {})


def test_a_full_queue_says_so_and_the_message_that_is_too_much_is_not_there(tmp_path, monkeypatch):
    with qindex.open(tmp_path / "b") as store:
        queue = store.queue("q", max_messages=2)
        tried = []
        monkeypatch.setattr(qindex.Queue, "_publish", lambda *_, **__: tried.append(1))
        queue.publish(b"1")
        queue.publish(b"x" * 70_000, headers={"a": 1})
        with pytest.raises(qindex.QueueFull, match="q"):
            queue.publish(b"3")
        assert (len(queue), tried) == (2, [])


def read(file):
    return file.read_bytes() if file.is_file() else b""


def test_a_damaged_message_is_set_aside_once(tmp_path):
    with qindex.open(tmp_path / "c") as store:
        for body in (b"first", b"second"):
            store.queue("q").publish(body * 2000)
    stored = next(file for file in (tmp_path / "c").rglob("*") if b"firstfirst" in read(file))
    stored.write_bytes(read(stored).replace(b"firstfirst", b"firsTfirst", 1))
    with qindex.open(tmp_path / "c") as store:
        queue = store.queue("q")
        with pytest.raises(qindex.StoreCorrupt, match="set aside"):
            queue.get()
        assert queue.get().body == b"second" * 2000
        assert queue.get() is None


# --- headers ------------------------------------------------------------------------------------

VALUES = (
    some.none()
    | some.booleans()
    | some.integers(-(1 << 63), (1 << 63) - 1)
    | some.floats(allow_nan=False)
    | some.text(some.characters(codec="utf-8"))
    | some.binary()
)


@given(some.dictionaries(some.text(some.characters(codec="utf-8"), max_size=60), VALUES))
def test_a_table_is_read_as_field_table_reads_it(table):
    assert decode_headers(encode_table(table)) == decode_table(encode_table(table)) == table


@given(some.binary(max_size=60))
def test_any_bytes_are_read_as_field_table_reads_them_or_left_to_it(entries):
    data = len(entries).to_bytes(4) + entries
    read = decode_headers(data)
    try:
        expected = decode_table(data)
    except AmqpError:
        assert read is None
    else:
        assert read is None or repr(read) == repr(expected)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\0x", b"\0\0\0\2\1k"])
def test_a_cut_table_is_left_to_field_table(data):
    assert decode_headers(data) is None


def test_only_bytes_are_decoded():
    with pytest.raises(TypeError):
        decode_headers("text")


def test_a_dict_that_another_thread_changes_is_one_of_its_states(queue):
    headers = {"a": 1, "b": "x"}
    stop = threading.Event()

    def change():
        while not stop.is_set():
            headers["b"] = "x" * 500
            headers["c"] = 2
            del headers["c"]
            headers["b"] = "x"

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(2000):
            queue.publish(b"body", headers=headers)
    finally:
        stop.set()
        thread.join()
    for message in queue.get_many(2000):
        assert message.headers["a"] == 1
        assert message.headers["b"] in ("x", "x" * 500)
        assert message.headers.get("c", 2) == 2
