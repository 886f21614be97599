"""diff: two stores, copies or directories, message by message, within a format and across."""

import json
import random
import shutil
from collections import Counter

import pytest

import qindex
from qindex.cli.diff.match import Matcher
from qindex.cli.diff.table import Table
from qindex.look.messages import Found


@pytest.fixture
def diff(run):
    """(exit code, counts by queue, the differences as (what, queue, req_id))"""

    def diff(a, b, *options):
        ran = run("diff", a, b, "--json", *options)
        queues = {queue["queue"]: queue for queue in json.loads(ran.out)["queues"]}
        lines = run("diff", a, b, "--jsonl", *options).out.splitlines()
        found = [json.loads(line) for line in lines]
        return ran.code, queues, [(d["what"], d["queue"], int(d["req_id"])) for d in found]

    return diff


def make(path, queues, **options):
    with qindex.open(path, **options) as store:
        for name, bodies in queues.items():
            store.queue(name).publish_many(bodies)
    return path


def test_a_copy_has_no_difference(diff, run, store_path, tmp_path):
    shutil.copytree(store_path, tmp_path / "copy")
    code, queues, found = diff(store_path, tmp_path / "copy")
    assert (code, found) == (0, [])
    assert {name: queue["alike"] for name, queue in queues.items()} == {"mails": 235, "orders": 235}
    out = run("diff", store_path, tmp_path / "copy").out
    assert out.splitlines()[-1] == "470 messages alike; 2 queues without a difference"
    assert diff(store_path, tmp_path / "copy", "--by", "content")[0] == 0


def test_what_happened_to_a_copy_is_told(diff, run, store_path, tmp_path):
    copy = shutil.copytree(store_path, tmp_path / "copy")
    with qindex.open(copy) as store:
        orders = store.queue("orders")
        first = orders.get()
        orders.get()
        orders.ack(first)
        orders.publish(b"new")
        store.queue("extra").publish(b"x")
    code, queues, found = diff(store_path, copy)
    assert code == 1
    assert found == [
        ("only in B", "extra", 0),
        ("only in A", "orders", 70),
        ("differs", "orders", 71),
        ("only in B", "orders", 305),
    ]
    orders = queues["orders"]
    assert (orders["alike"], orders["state_differs"], orders["body_differs"]) == (233, 1, 0)
    assert queues["extra"]["only_in"] == "B"
    assert not queues["mails"]["differs"]
    out = run("diff", store_path, copy).out
    assert "- orders 70: 7 B, ready" in out
    assert "~ orders 71: 7 B, ready in A, unacked in B" in out
    assert "extra (only in B)" in out
    assert diff(store_path, copy, "orders", "--req-id", "71", "--ignore-state")[0] == 0


def test_bodies_that_differ_at_the_same_place(diff, tmp_path):
    a = make(tmp_path / "a", {"q": [b"same", b"one", b"same"]})
    b = make(tmp_path / "b", {"q": [b"same", b"two", b"same"]})
    code, queues, found = diff(a, b, "--by", "id")
    assert (code, found) == (1, [("differs", "q", 1)])
    assert queues["q"]["body_differs"] == 1
    _, queues, found = diff(a, b, "--by", "content")
    assert found == [("only in A", "q", 1), ("only in B", "q", 1)]
    assert queues["q"]["alike"] == 2


def test_two_stores_are_compared_by_content_and_copies_by_req_id(diff, run, tmp_path):
    """Each store gives ReqIds of its own: what a salvage wrote has others than what it read."""
    a = make(tmp_path / "a", {"q": [b"1", b"2", b"3"]})
    copy = shutil.copytree(a, tmp_path / "copy")
    with qindex.open(a) as store:
        queue = store.queue("q")
        queue.ack(queue.get())
    b = make(tmp_path / "b", {"q": [b"2", b"3"]})
    assert diff(a, b)[0] == 0
    told = json.loads(run("diff", a, b, "--json").out)
    assert (told["by"], told["why"]) == (
        "content",
        "A and B are two stores: each gave ReqIds of its own",
    )
    assert "compared by content: A and B are two stores" in run("diff", a, b).out
    assert diff(a, copy)[2] == [("only in B", "q", 0)]
    assert "compared by ReqId: A and B are copies" in run("diff", a, copy).out
    out = run("diff", a, b, "--by", "id").out
    assert "compared by ReqId: as --by says" in out
    shifted = make(tmp_path / "c", {"q": [b"x", b"2", b"3", b"4"]})
    out = run("diff", a, shifted, "--by", "id").out
    assert "--by content" not in out  # nothing differs at one ReqId
    other = make(tmp_path / "d", {"q": [b"2", b"3", b"4"]})
    assert "do not belong together: --by content" in run("diff", a, other, "--by", "id").out


def test_headers_are_part_of_the_content(diff, run, tmp_path):
    for name, headers in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1}), ("c", {"x": 2})):
        with qindex.open(tmp_path / name) as store:
            store.queue("q").publish(b"body", headers=headers)
    assert diff(tmp_path / "a", tmp_path / "b")[0] == 0  # in another order
    assert diff(tmp_path / "a", tmp_path / "c")[0] == 1
    assert (
        "headers or properties differ"
        in run("diff", tmp_path / "a", tmp_path / "c", "--by", "id").out
    )


def test_by_content_counts_doubles_and_sees_the_order(diff, tmp_path):
    a = make(tmp_path / "a", {"q": [b"1", b"2", b"2", b"3", b"4"]})
    b = make(tmp_path / "b", {"q": [b"0", b"1", b"2", b"4", b"3"]})
    _, queues, found = diff(a, b, "--by", "content")
    assert found == [("only in B", "q", 0), ("only in A", "q", 2)]
    assert (queues["q"]["alike"], queues["q"]["order_differs"]) == (4, 1)


def compared(sides, *, by_id=False):
    """The counts of one queue, and of its differences; a message is (ReqId, body)."""
    with Table() as table:
        for side in (0, 1):
            table.add_queues(side, ["q"])
        found = [
            [Found("q", req_id, "ready", False, 0, True, 0, b"", body) for req_id, body in side]
            for side in sides
        ]
        Matcher(table, by_id=by_id, ignore_state=False).queue("q", *map(iter, found))
        table.match(by_id=by_id)
        (queue,) = table.queues()
        return queue, Counter(difference.what for difference in table.differences())


@pytest.mark.parametrize("waiting_max", [3, 30, 100_000])
def test_matching_is_that_of_a_multiset(monkeypatch, waiting_max):
    monkeypatch.setattr("qindex.cli.diff.match.WAITING_MAX", waiting_max)
    dice = random.Random(5)
    for _ in range(5):
        sides = [[b"%d" % dice.randrange(60) for _ in range(400)] for _ in range(2)]
        queue, found = compared([list(enumerate(side)) for side in sides])
        a, b = map(Counter, sides)
        assert queue.alike == (a & b).total()
        assert (queue.only_a, queue.only_b) == ((a - b).total(), (b - a).total())
        assert found == {"only in A": (a - b).total(), "only in B": (b - a).total()}


@pytest.mark.parametrize("waiting_max", [3, 100_000])
@pytest.mark.parametrize("sort", [True, False])
def test_matching_by_id_needs_no_order(monkeypatch, waiting_max, sort):
    monkeypatch.setattr("qindex.cli.diff.match.WAITING_MAX", waiting_max)
    dice = random.Random(6)
    sides = [{n: b"%d" % dice.randrange(9) for n in dice.sample(range(300), 200)} for _ in range(2)]
    order = sorted if sort else lambda items: dice.sample(list(items), len(items))
    queue, found = compared([order(side.items()) for side in sides], by_id=True)
    a, b = sides
    both = a.keys() & b.keys()
    alike = sum(a[n] == b[n] for n in both)
    assert (queue.alike, queue.body) == (alike, len(both) - alike)
    assert (queue.only_a, queue.only_b) == (len(a.keys() - both), len(b.keys() - both))
    assert found["differs"] == len(both) - alike
    assert (queue.order == 0) == sort


@pytest.mark.parametrize("waiting_max", [3, 100_000])
def test_places_where_the_order_breaks_are_counted(monkeypatch, waiting_max):
    monkeypatch.setattr("qindex.cli.diff.match.WAITING_MAX", waiting_max)
    bodies = [b"%d" % number for number in range(100)]
    mixed = bodies[50:70] + bodies[:50] + bodies[80:] + bodies[70:80]
    queue, _ = compared([list(enumerate(bodies)), list(enumerate(mixed))])
    assert (queue.alike, queue.order) == (100, 2)


def test_a_node_and_the_store_that_it_was_recovered_into(diff, run, dead_node, tmp_path):
    run("recover", dead_node, "--out", tmp_path / "s")
    code, queues, found = diff(dead_node, tmp_path / "s", "--state", "ready,delivered")
    assert (code, found) == (0, [])
    assert sum(queue["alike"] for queue in queues.values()) == 329
    code, queues, found = diff(dead_node, tmp_path / "s")
    assert (code, {what for what, _, _ in found}) == (1, {"only in A"})  # what has expired
    assert len(found) == 10
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q.small")
        message = queue.get()
        headers = message.headers
        queue.ack(message)
        queue.publish(b"changed", headers=headers)
    _, _, found = diff(dead_node, tmp_path / "s", "q.small", "--ignore-state")
    assert found == [("differs", "q.small", 0)]  # they have the same message_id


def test_a_node_has_no_difference_to_itself(diff, dead_node):
    assert diff(dead_node, dead_node)[0] == 0
    assert diff(dead_node, dead_node, "--by", "content")[0] == 0


def test_two_nodes_are_compared_by_content_and_copies_of_one_by_number(run, dead_node, tmp_path):
    """Each node gives sequence numbers of its own: what a new node got has others than before."""
    store, other = tmp_path / "store", tmp_path / "other"
    assert run("recover", dead_node, "--out", store, "--keep-expired").code in (0, 1)
    with qindex.open(store) as opened:
        queue = opened.queue("q.small")
        first = queue.get()
        rest = queue.get_many(1000)
        queue.ack(first)
        queue.publish(first.body, headers=first.headers)  # the first is the last one now
        queue.nack_many(rest)
    assert run("write-rabbitmq", store, "--out", other, "q.small").code == 0
    ran = run("diff", dead_node, other, "q.small", "--ignore-state", "--json")
    told = json.loads(ran.out)
    assert (told["by"], told["why"]) == ("content", "A and B number their messages differently")
    (queue,) = told["queues"]
    assert (queue["alike"], queue["only_a"], queue["only_b"]) == (len(rest) + 1, 0, 0)
    told = json.loads(run("diff", dead_node, dead_node, "--json").out)
    assert (told["by"], told["why"]) == ("id", "messages of one number are the same in A and B")


def test_of_a_format_without_numbers_what_was_read_on_is_found(diff, tmp_path):
    """The places of NSQ's messages are counted from the first unread one."""
    (tmp_path / "a").mkdir()
    with qindex.DiskQueue("t", tmp_path / "a", format="nsq") as queue:
        for number in range(9):
            queue.put(b"message %d" % number)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert diff(tmp_path / "a", tmp_path / "b")[0] == 0
    with qindex.DiskQueue("t", tmp_path / "b", format="nsq") as queue:
        queue.get()
        queue.get()
    code, queues, found = diff(tmp_path / "a", tmp_path / "b")
    assert (code, found) == (1, [("only in A", "t", 0), ("only in A", "t", 1)])
    assert queues["t"]["alike"] == 7


def test_damage_is_not_taken_for_sameness(run, store_path, tmp_path):
    file = store_path / "messages" / "0.qms"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    shutil.copytree(store_path, tmp_path / "copy")
    code, out, err = run("diff", store_path, tmp_path / "copy")
    assert code == 3
    assert "469 messages alike" in out
    assert err.count("1 damaged place") == 2


def test_what_cannot_be_compared_is_refused(run, store_path, tmp_path):
    assert run("diff", store_path, tmp_path / "nothing").code == 2
    code, _, err = run("diff", store_path, store_path, "nobody")
    assert code == 2
    assert "no queue 'nobody'" in err


def test_few_lines_are_shown_and_all_are_in_jsonl(run, store_path, tmp_path):
    make(tmp_path / "other", {"mails": [], "orders": []})
    out = run("diff", store_path, tmp_path / "other", "--lines", 3).out
    assert out.count("\n  - ") == 3
    assert "… and more" in out
    assert len(run("diff", store_path, tmp_path / "other", "--jsonl").out.splitlines()) == 470
