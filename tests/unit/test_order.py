"""In which order messages leave a full queue, and come back after nack, redrive and reschedule."""

import pytest

from qindex.testing import SimulatedDisk

NOW = 1_780_000_000.0


@pytest.fixture
def disk():
    return SimulatedDisk(seed=1, wall=NOW)


def bodies(messages):
    return [message.body for message in messages]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("bound", [{"max_messages": 6}, {"max_bytes": 12}])
def test_the_lowest_priority_leaves_first_whether_it_was_delayed_or_not(
    disk, simulated, bound, at_once
):
    queue = simulated.queue("a", overflow="drop-head", **bound)
    for body, priority, delay in [
        (b"t9", 9, 1),
        (b"p5", 5, None),
        (b"t0", 0, 3),
        (b"p0", 0, None),
        (b"t5", 5, 2),
        (b"s0", 0, 2),
    ]:
        queue.publish(body, priority=priority, delay=delay)
    disk.advance(4)
    goes = [b"p0", b"s0", b"t0", b"p5", b"t5", b"t9"]
    new = [b"n%d" % n for n in range(6)]
    if at_once:
        queue.publish_many(new[:3], priority=200)
        assert set(bodies(queue.browse())) == {*goes[3:], *new[:3]}
        return
    for n in range(6):
        queue.publish(new[n], priority=200)
        assert set(bodies(queue.browse())) == {*goes[n + 1 :], *new[: n + 1]}, n
    assert bodies(queue.get_many(9)) == new


def test_what_is_due_leaves_once_however_often_it_was_put_off(disk, simulated):
    """A message that is due again at its old time has two entries in the order of leaving."""
    queue = simulated.queue("a", max_messages=3, overflow="drop-head")
    _, second, _ = (queue.publish(b"%d" % n, delay=1, priority=n) for n in range(3))
    disk.advance(2)
    queue.publish(b"3", priority=7)  # the first leaves; from now on there is an order
    at = queue.peek(second).due
    for _ in range(3):
        queue.reschedule(second, delay=60)
        assert queue.ready == 2
        queue.reschedule(second, due=at)
        assert queue.ready == 3
    queue.publish_many([b"4", b"5"], priority=7)
    assert bodies(queue.get_many(9)) == [b"3", b"4", b"5"]


# --- what comes back ----------------------------------------------------------------------------

LATER = NOW + 100
# What is done with a message that was published without a time, or with one; its `due` after that.
BACK = {
    "nack": (lambda queue, message: queue.nack(message), None, NOW + 1),
    "nack with a time": (lambda queue, message: queue.nack(message, due=NOW + 5), NOW + 5, NOW + 5),
    "reschedule": (
        lambda queue, message: (queue.nack(message), queue.reschedule(message)),
        None,
        NOW + 10,
    ),
    "reschedule with a time": (
        lambda queue, message: (queue.nack(message), queue.reschedule(message, due=NOW + 5)),
        NOW + 5,
        NOW + 5,
    ),
    "redrive": (
        lambda queue, message: (queue.nack(message, requeue=False), queue.redrive()),
        None,
        None,
    ),
}


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("way", BACK)
def test_the_time_that_a_message_has_after_it_came_back(disk, simulated, way, timed, flush):
    back, of_untimed, of_timed = BACK[way]
    queue = simulated.queue("a", dead_letters=True)
    queue.publish(b"x", due=NOW + 1 if timed else None)
    disk.advance(10)
    back(queue, queue.get())
    if flush:
        queue.flush()
    expected = of_timed if timed else of_untimed
    assert queue.peek().due == (expected if expected is None else pytest.approx(expected, abs=1e-3))
    message = queue.get()
    queue.nack(message)
    later = NOW + 1 if way == "nack" else expected
    again = queue.peek().due
    if not timed:
        assert again is None, "a time that nack or reschedule gave counts until the next delivery"
    elif expected is not None:
        assert again == pytest.approx(later, abs=1e-3), "published with a time: the last one stays"


def place(queue, what, disk):
    """The order in which a queue of four gives its messages after one of them came back."""
    queue.publish_many([b"0", b"1", b"2"])
    queue.publish(b"due", due=NOW + 2)
    disk.advance(10)
    taken = {message.body: message for message in queue.get_many(4)}
    queue.nack_many([taken[b"due"], taken[b"0"], taken[b"2"]])
    what(queue, taken[b"1"])
    return bodies(queue.get_many(9))


@pytest.mark.parametrize(
    ("what", "order"),
    [
        (lambda queue, message: queue.nack(message), [b"due", b"0", b"1", b"2"]),
        (lambda queue, message: queue.nack(message, due=NOW + 1), [b"1", b"due", b"0", b"2"]),
        (lambda queue, message: queue.nack(message, due=NOW + 3), [b"due", b"1", b"0", b"2"]),
        (
            lambda queue, message: (queue.nack(message), queue.reschedule(message, due=NOW + 3)),
            [b"due", b"1", b"0", b"2"],
        ),
        (
            lambda queue, message: (
                queue.nack(message, due=NOW + 3),
                queue.reschedule(message),
            ),
            [b"due", b"0", b"1", b"2"],
        ),
        (
            lambda queue, message: (queue.nack(message, requeue=False), queue.redrive()),
            [b"1", b"due", b"0", b"2"],
        ),
        (
            lambda queue, message: (
                queue.nack(message, requeue=False),
                queue.reschedule(message),
            ),
            [b"1", b"due", b"0", b"2"],
        ),
    ],
)
def test_the_place_that_a_message_has_after_it_came_back(disk, simulated, what, order):
    assert place(simulated.queue("a", dead_letters=True), what, disk) == order


def test_several_that_were_taken_back_come_by_priority_and_then_by_req_id(disk, simulated):
    queue = simulated.queue("a", dead_letters=True)
    for body, priority in [(b"a0", 0), (b"b5", 5), (b"c0", 0), (b"d5", 5)]:
        queue.publish(body, priority=priority)
    queue.nack_many(list(reversed(queue.get_many(4))), requeue=False)
    queue.publish(b"e9", priority=9)
    queue.publish(b"f5", due=NOW - 50, priority=5)
    assert queue.redrive() == 4
    assert bodies(queue.get_many(9)) == [b"e9", b"b5", b"d5", b"f5", b"a0", b"c0"]
