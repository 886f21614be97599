"""qindex plot of RabbitMQ's queues: depth and age over the records of the index's journal."""

import struct

import pytest

from qindex.brokers.amqp import Properties, encode_properties
from qindex.brokers.rabbitmq.message import Content
from qindex.brokers.rabbitmq.write import VhostWriter, encode_message
from qindex.moments import utc

START = 1_700_000_000


def mark(kind, seq):
    return (kind << 62 | seq).to_bytes(8, "big")


@pytest.fixture
def node_with_journal(tmp_path):
    """A queue of RabbitMQ with 10 messages in a segment, and a journal; one of two tells a time.

    In the journal the first 4 are acked, and 8 published, one of which goes to the message store.
    """
    writer = VhostWriter(tmp_path / "node", b"/")
    queue = writer.queue(b"q")
    journal = b"".join(mark(3, seq) for seq in range(4))
    for number in range(18):
        told = Properties(timestamp=START + 60 * number) if number % 2 == 0 else Properties()
        body = b"x" * (5000 if number == 16 else 10)
        content = Content(
            "", ["q"], encode_properties(told), body, number.to_bytes(16, "big"), True
        )
        if number < 10:
            queue.publish(content)
            continue
        term = encode_message(content, b"/")
        if number == 16:
            writer.messages.append(content.msg_id, term)
            term = b""
        sizes = struct.pack(">QII", 0, len(body), len(term))
        journal += mark(0, number) + content.msg_id + sizes + term
    writer.close()
    (folder,) = (tmp_path / "node").glob("msg_stores/vhosts/*/queues/*")
    (folder / "journal.jif").write_bytes(journal + mark(2, 4) + mark(3, 4))
    return tmp_path / "node"


def test_depth_and_age_of_a_rabbitmq_queue_follow_its_journal(numbers, node_with_journal):
    found = numbers("depth", node_with_journal)
    assert found["record_count"] == 14
    assert found["depth"] == [10, 9, 8, 7, *range(6, 15), 14, 13]
    # Times are told by the records 5, 7, 9 and 11, each two minutes after the one before. The first
    # message, seq 4, is from minute 4; behind the last record it is seq 5, which tells nothing.
    minutes = [None if age is None else age / 60 for age in found["age_seconds"]]
    assert minutes == [*[None] * 5, *range(6, 13), None, None, None]
    assert (found["began_at"], found["ended_at"]) == (utc(START + 600), utc(START + 960))


def test_a_rabbitmq_queue_whose_messages_tell_no_time_has_a_depth(numbers, draws, dead_node):
    found = numbers("depth", dead_node, "q.dlq")
    assert (found["depth"], found["age_seconds"]) == ([3], [])
    told = draws("depth", dead_node, "q.dlq")
    assert "q.dlq: 3 messages; nothing happened since the last flush" in told
    assert "age" not in told


@pytest.mark.slow
def test_depth_and_age_of_a_rabbitmq_queue_are_drawn(draws, node_with_journal):
    assert "age of the oldest message" in draws("depth", node_with_journal)


def test_the_depth_of_a_priority_queue_is_that_of_one_priority(run, numbers, dead_node):
    code, _, err = run("plot", "depth", dead_node, "q.prio", "--json")
    assert (code, "5, 4, 3, 2, 1, 0: choose --priority" in err) == (2, True)
    assert numbers("depth", dead_node, "q.prio", "--priority", "3")["depth"] == [6]


def test_a_time_that_cannot_be_is_no_clock(numbers, node_with_journal):
    (journal,) = node_with_journal.rglob("journal.jif")
    data = journal.read_bytes()
    told = (START + 600).to_bytes(8, "big")
    assert data.count(told) == 1
    journal.write_bytes(data.replace(told, b"\xff" * 8))
    assert numbers("depth", node_with_journal)["began_at"] == utc(START + 720)
