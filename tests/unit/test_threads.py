"""Threads that share a queue: nothing is lost, nothing is doubled, order is kept."""

import threading

from helpers import SMALL, ids

PER_PRODUCER = 1500


def produce(queue, number):
    for i in range(PER_PRODUCER):
        if i % 10 == 0:
            queue.publish_many([b"%d:%d:%d" % (number, i, k) for k in range(3)])
        else:
            queue.publish(b"%d:%d:0" % (number, i) + b"+" * (i % 90))


def consume(queue, taken, finished):
    while True:
        done = finished.is_set()
        messages = queue.get_many(7) if len(taken) % 2 else [m for m in [queue.get()] if m]
        taken += messages
        queue.ack_many(messages)
        if done and not messages:
            return


def guarded(failures, work, *arguments):
    try:
        work(*arguments)
    except BaseException as error:
        failures.append(error)


def test_eight_threads_lose_nothing_and_double_nothing(open_store):
    store = open_store(**{**SMALL, "max_journal_entries": 500, "segment_entries": 64})
    queue = store.queue("a")
    got, failures, finished = [[] for _ in range(4)], [], threading.Event()
    producers = [
        threading.Thread(target=guarded, args=(failures, produce, queue, n)) for n in range(4)
    ]
    consumers = [
        threading.Thread(target=guarded, args=(failures, consume, queue, taken, finished))
        for taken in got
    ]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join()
    finished.set()
    for thread in consumers:
        thread.join()
    assert failures == []
    messages = [message for taken in got for message in taken]
    expected = 4 * (PER_PRODUCER + 2 * PER_PRODUCER // 10)
    assert sorted(ids(messages)) == list(range(expected))
    assert len({m.body.rstrip(b"+") for m in messages}) == expected
    for taken in got:
        assert ids(taken) == sorted(ids(taken)), "each consumer sees the queue's order"
    assert len(queue) == 0
