"""What an operator does with messages where they are: drop, put off, move; and with a queue: hold.

Messages are named by their numbers. One that a consumer has stays with it: it is counted as left.
"""

from __future__ import annotations

from qindex.broker import definitions
from qindex.broker.backlog import Looked
from qindex.broker.durable import DurableBacklog
from qindex.broker.errors import NotFound, Precondition
from qindex.broker.message import Message
from qindex.broker.queues import Queue
from qindex.broker.timers import now_us
from qindex.broker.vhost import VHost
from qindex.errors import AlreadyAcked, MessageDelivered, UnknownMessage

BATCH_MAX = 500  # messages that are moved at once


def drop(queue: Queue, numbers: list[int]) -> int:
    """Remove messages that are ready or delayed; return how many."""
    done = queue.backlog.drop(numbers)
    queue.count_again()
    return done


def put_off(queue: Queue, numbers: list[int], due_us: int) -> int:
    """Messages that are ready or delayed are ready then, or now (0); return how many."""
    done = queue.backlog.put_off(numbers, due_us)
    queue.due_timer.published(due_us or now_us())
    queue.count_again()
    return done


def move(vhost: VHost, queue: Queue, numbers: list[int], target: Queue) -> int:
    """Move messages that are ready or delayed, as they are: they are ready in the target.

    Returns how many. NotFound: one of the queues was deleted. Precondition: the target has no room,
    or would lose at the end of the process what the queue keeps; nothing was moved. Between two
    queues of a store each message is in exactly one after any crash. In and out of memory it is
    published first and dropped then.
    """
    for each in (queue, target):
        if each.deleted:
            raise NotFound(f"{vhost.describe('queue', each.name)} was deleted")
    limits = target.limits
    if limits.max_length is not None and limits.overflow != "drop-head":
        room = limits.max_length - len(target)
        if room < len(numbers):
            what = vhost.describe("queue", target.name)
            raise Precondition(f"{what} has room for {max(0, room)} messages more")
    if queue.backlog.is_durable and not target.backlog.is_durable:
        what = vhost.describe("queue", target.name)
        raise Precondition(f"{what} lives in memory: messages would not survive a restart there")
    if isinstance(queue.backlog, DurableBacklog) and isinstance(target.backlog, DurableBacklog):
        done = _move_in_store(queue.backlog, target.backlog, numbers)
    else:
        done = _move_by_copies(queue, numbers, target)
    for each in (queue, target):
        each.count_again()
    return done


def _move_in_store(source: DurableBacklog, target: DurableBacklog, numbers: list[int]) -> int:
    try:
        source.move(numbers, target)
    except (MessageDelivered, UnknownMessage, AlreadyAcked):
        if len(numbers) == 1:
            return 0
        half = len(numbers) // 2
        return sum(
            _move_in_store(source, target, some) for some in (numbers[:half], numbers[half:])
        )
    return len(numbers)


def _move_by_copies(queue: Queue, numbers: list[int], target: Queue) -> int:
    wanted = set(numbers)
    found: dict[int, Message] = {}
    for looked in queue.backlog.look(min(wanted, default=0), None):
        if isinstance(looked, Looked) and looked.number in wanted:
            found[looked.number] = looked.message
            if len(found) == len(wanted):
                break
    published: list[int] = []
    try:
        for number in numbers:
            message = found.pop(number, None)
            if message is not None and target.publish(message, now_us()) is not None:
                published.append(number)
    finally:  # an error of the disk leaves what is not published
        done = queue.backlog.drop(published)
    return done


def hold(vhost: VHost, queue: Queue, *, on_hold: bool) -> None:
    """Deliver nothing, and let nothing expire, until the opposite is said, also after a restart of
    the server; a queue in memory is forgotten with it.
    """
    if queue.durable:
        vhost.catalog.apply(definitions.of_hold(queue.name, on_hold=on_hold))
    queue.on_hold = on_hold
    queue.wake()
