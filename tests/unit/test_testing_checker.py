"""The checker of qindex.testing: for each kind of violation a case that must be reported."""

import pytest

from qindex.testing import Level, Model, Promise, Seen, check_got, check_ids, check_reopened
from qindex.testing.invariants import check_count

STRICT = Promise(redelivered=True, barrier=True, refuses=True)


def a_queue(count=3, promise=STRICT, level=Level.RETURNED, *, batch=False):
    """A model with so many messages, called 101, 102 ..., published up to this level."""
    model = Model(promise)
    messages = model.publishing([20] * count, batch=batch)
    if level > Level.DOUBT:
        model.published(messages, [100 + message.serial for message in messages])
    if level == Level.SYNCED:
        model.synced()
    if level == Level.CLOSED:
        model.closed()
    return model, messages


def show(*messages, redelivered=None):
    return [Seen(message.body, message.id, redelivered) for message in messages]


def kinds(model, shown, crash):
    return [violation.kind for violation in check_reopened(model, shown, crash)[0]]


def test_a_queue_that_shows_all_breaks_nothing():
    model, messages = a_queue()
    for crash in (None, "kill", "power"):
        assert kinds(model, show(*messages), crash) == []


@pytest.mark.parametrize(
    ("level", "crash", "broken"),
    [
        (Level.RETURNED, None, True),
        (Level.RETURNED, "kill", True),
        (Level.RETURNED, "power", False),
        (Level.SYNCED, "power", True),
        (Level.CLOSED, "power", True),
        (Level.DOUBT, "kill", False),
    ],
)
def test_a_missing_publish_is_lost_from_the_promised_level_on(level, crash, broken):
    model, messages = a_queue(level=level)
    expected = ["lost"] if broken else []
    assert kinds(model, show(*messages[:2]), crash) == expected


@pytest.mark.parametrize("keeps", ["returned", "synced", "closed"])
def test_each_promise_begins_at_its_level(keeps):
    reached = {"returned": Level.RETURNED, "synced": Level.SYNCED, "closed": Level.CLOSED}
    for level in (Level.RETURNED, Level.SYNCED, Level.CLOSED):
        model, _ = a_queue(promise=Promise(kill=keeps), level=level)
        assert bool(kinds(model, [], "kill")) == (level >= reached[keeps])


def test_a_message_whose_ack_must_have_survived_is_back_from_the_dead():
    model, messages = a_queue()
    model.removing(messages[:1])
    assert kinds(model, show(*messages), "kill") == []  # in doubt
    model.removed(messages[:1])
    assert kinds(model, show(*messages), "power") == []
    assert kinds(model, show(*messages), "kill") == ["back from the dead"]
    model.synced()
    assert kinds(model, show(*messages), "power") == ["back from the dead"]


def test_a_transient_message_does_not_outlive_a_crash():
    model = Model()
    [message] = model.publishing([20], persistent=False)
    model.published([message], [1])
    assert kinds(model, show(message), None) == []
    assert kinds(model, show(message), "kill") == ["back from the dead"]
    assert kinds(model, [], "kill") == []
    assert kinds(model, [], None) == ["lost"]


def test_what_nobody_published_is_a_phantom():
    model, messages = a_queue()
    assert kinds(model, [*show(*messages), Seen(b"hello")], "kill") == ["phantom"]
    assert kinds(model, [*show(*messages), Seen(b"77|hello", 77)], "kill") == ["phantom"]


@pytest.mark.parametrize("has_id", [True, False])
def test_other_bytes_are_told_with_and_without_ids(has_id):
    model, messages = a_queue()
    altered = Seen(messages[2].body[:-1] + b"?", messages[2].id if has_id else None)
    shown = [*show(*messages[:2]), altered]
    assert kinds(model, shown, "kill") == ["wrong bytes"]


def test_a_message_twice_is_doubled():
    model, messages = a_queue()
    assert kinds(model, show(*messages, messages[0]), "kill") == ["doubled"]


@pytest.mark.parametrize("order", ["fifo", "lifo", "any"])
def test_the_order_is_the_promised_one(order):
    model, messages = a_queue(promise=Promise(order=order))
    forward, back = show(*messages), show(*reversed(messages))
    assert bool(kinds(model, forward, "kill")) == (order == "lifo")
    assert bool(kinds(model, back, "kill")) == (order == "fifo")
    if order != "any":
        shown = back if order == "fifo" else forward
        assert kinds(model, shown, "kill") == ["out of order"]


def test_where_requeued_messages_go_is_not_judged_if_that_is_promised():
    model, (first, second, third) = a_queue(promise=Promise(requeue="any"))
    model.delivered(first)
    model.given_back([first])
    assert kinds(model, show(second, third, first), "kill") == []
    assert kinds(model, show(third, second, first), "kill") == ["out of order"]


def test_a_publish_that_survives_without_an_earlier_one_is_a_gap():
    model, messages = a_queue()
    assert kinds(model, show(messages[0], messages[2]), "power") == ["gap"]
    model.removed([messages[1]])
    assert kinds(model, show(messages[0], messages[2]), "power") == []
    model, messages = a_queue(promise=Promise(prefix=False))
    assert kinds(model, show(messages[0], messages[2]), "power") == []


def test_a_part_of_a_batch_is_a_torn_batch():
    model, messages = a_queue(level=Level.DOUBT, batch=True)
    assert kinds(model, show(*messages[:2]), "power") == ["torn batch"]
    assert kinds(model, show(*messages), "power") == []
    assert kinds(model, [], "power") == []
    model, messages = a_queue(promise=Promise(batches=False), level=Level.DOUBT, batch=True)
    assert kinds(model, show(*messages[:2]), "power") == []


def test_a_message_that_was_delivered_must_say_so():
    model, messages = a_queue()
    model.delivered(messages[0])
    shown = show(messages[0], redelivered=False) + show(*messages[1:], redelivered=False)
    assert kinds(model, shown, "kill") == ["not marked"]
    shown = show(messages[0], redelivered=True) + show(*messages[1:], redelivered=False)
    assert kinds(model, shown, "kill") == []


def test_an_id_is_never_given_again_also_after_its_message_is_gone():
    model, messages = a_queue()
    model.removed(messages)
    assert [v.kind for v in check_ids(model, [messages[0].id])] == ["reused id"]
    assert [v.kind for v in check_ids(model, [7, 7])] == ["reused id"]
    assert check_ids(model, [7, 8, None, None]) == []
    assert check_ids(Model(Promise(unique_ids=False)), [7, 7]) == []


def test_the_count_is_that_of_ready_and_delivered():
    model, messages = a_queue()
    model.delivered(messages[0])
    assert check_count(model, 3) == []
    assert [v.kind for v in check_count(model, 2)] == ["wrong count"]


def test_get_is_judged_by_the_model():
    model, (first, second, third) = a_queue()

    def got(seen):
        violations, message = check_got(model, seen)
        return [violation.kind for violation in violations], message

    assert got(show(first)[0]) == ([], first)
    assert got(show(second)[0])[0] == ["out of order"]
    assert got(None)[0] == ["lost"]
    assert got(Seen(b"hello"))[0] == ["phantom"]
    model.delivered(first)
    assert got(show(first)[0])[0] == ["doubled"]
    model.removed([first])
    assert got(show(first)[0])[0] == ["back from the dead"]
    model.delivered(second)
    model.given_back([second])
    assert got(show(second, redelivered=False)[0])[0] == ["not marked"]
    model.removed([second, third])
    assert got(None) == ([], None)


def test_after_accept_what_was_shown_is_the_truth():
    model, messages = a_queue(level=Level.DOUBT)
    violations, known = check_reopened(model, show(messages[0]), "kill")
    assert violations == []
    model.accept(known)
    assert model.live() == messages[:1]
    assert kinds(model, [], "power") == ["lost"]  # the promise has a barrier
    assert kinds(model, show(*messages), "power") == ["back from the dead"] * 2


def test_without_a_barrier_a_power_cut_may_take_back_what_was_shown_after_a_kill():
    model, messages = a_queue(promise=Promise())
    model.accept(check_reopened(model, show(*messages), "kill")[1])
    assert kinds(model, [], "power") == []
    assert "lost" in kinds(model, [], "kill")


def test_bodies_too_short_for_a_label_are_told_apart_by_turn():
    model = Model()
    messages = model.publishing([0, 0, 1])
    shown = [Seen(b"", 1), Seen(b"", 2), Seen(b"3", 3)]
    violations, known = check_reopened(model, shown, "kill")
    assert (violations, [message for message, _ in known]) == ([], messages)


def test_a_refused_publish_leaves_no_trace_but_its_body_is_not_used_again():
    model, messages = a_queue(level=Level.DOUBT)
    model.refused(messages)
    [new] = model.publishing([20])
    assert model.live() == []
    assert new.body not in {message.body for message in messages}
