"""publish, get and ack when Python has no memory: nothing is taken, nothing crashes.

In a child process: what goes wrong there would take the test run down with it.
"""

import subprocess
import sys

import pytest

from qindex import _core
from qindex.calls import QueueCalls, to_deliveries
from qindex.message import Details, Message

pytest.importorskip("_testcapi", reason="CPython's own test module, which makes allocations fail")

HEAD = """
import operator, sys, _testcapi, qindex
from array import array
from qindex.message import Details, Message
from qindex.calls import QueueCalls, place_bodies, to_deliveries

store = qindex.open(sys.argv[1], sync="never")
queue = store.queue("q")
queue.publish_many([b"x"] * 300)  # ReqIds above 256 are objects of their own
queue.ack_many(queue.get_many(300))

def attempt(call, n):
    drained = [({}, tuple([i])) for i in range(3000)]  # what Python keeps in reserve is used up
    _testcapi.set_nomemory(n, n + 1)
    try:
        call()
    except MemoryError:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False

def each_allocation_fails(call):
    '''Call until it comes through, 20 times in a row: Python can do without some.

    Yields whether it failed.'''
    through = 0
    for n in range(100):
        failed = attempt(call, n)
        yield failed
        through = 0 if failed else through + 1
        if through == 20:
            return
"""


def run(script, argument):
    words = [sys.executable, "-c", script, str(argument)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def child(tmp_path, script):
    run(HEAD + script, tmp_path / "a")


def test_a_get_without_memory_takes_nothing(tmp_path):
    """The message was out, and nobody had it until the next open."""
    script = """
refused, n = 0, 0
while refused == n:
    queue.publish(b"body" * 100)
    n += 1
    refused += attempt(queue.get, n - 1)
    assert (queue.stats().ready, queue.stats().unacked) == ((1, 0) if refused == n else (0, 1))
    queue.purge()
assert refused >= 3, refused
"""
    child(tmp_path, script)


def test_a_get_many_of_long_bodies_without_memory_takes_nothing(tmp_path):
    script = """
refused = 0
for n in range(30):
    queue = store.queue(f"m{n}")
    queue.publish_many([b"body", b"long" * 100_000, b"", b"long" * 100_000])
    refused += attempt(lambda: queue.get_many(4), n)
    stats = queue.stats()
    assert stats.ready + stats.unacked == 4
assert refused >= 9, refused  # without the block that only tells the allocator a size
"""
    child(tmp_path, script)


def test_a_get_many_without_memory_takes_nothing(tmp_path):
    script = """
refused = 0
for n in range(60):
    queue = store.queue(f"m{n}")
    queue.publish_many([b"body"] * 300)
    queue.ack_many(queue.get_many(300))  # its buffers are made
    queue.publish_many([b"body" * 100] * 5)
    refused += attempt(lambda: queue.get_many(5), n)
    stats = queue.stats()
    assert stats.ready + stats.unacked == 5
assert refused >= 10, refused
"""
    child(tmp_path, script)


def test_a_get_of_a_message_with_details_without_memory_takes_nothing(tmp_path):
    script = """
refused = 0
for n in range(30):
    queue = store.queue(f"q{n}")
    queue.publish(b"body" * 100, priority=9, headers={"a": "b"}, ttl=1000)
    refused += attempt(queue.get, n)
    stats = queue.stats()
    assert stats.ready + stats.unacked == 1
assert refused >= 5, refused
queue.purge()
queue.publish(b"x", priority=9, headers={"a": "b"})
message = queue.get()
assert (message.priority, message.body, message.headers) == (9, b"x", {"a": "b"})
"""
    child(tmp_path, script)


def test_messages_outlive_another_interpreter_of_the_process(tmp_path):
    script = """
queue.publish(b"body")
message = queue.get()
there = f"import sys; sys.path[:] = {sys.path}; import qindex.message as here; "
there += "assert repr(here.Message(1, b'', here.Details('q')))"
assert _testcapi.run_in_subinterp(there) == 0
assert repr(message).startswith("<Message") and message.queue == "q" and message.headers == {}
"""
    child(tmp_path, script)


def test_calls_without_memory_get_no_queue(tmp_path):
    script = """
attach = lambda: QueueCalls()._attach(1, Message, Details("q"), True, True)
assert sum(each_allocation_fails(attach)) >= 2
"""
    child(tmp_path, script)


def test_an_import_without_memory_fails_and_may_be_tried_again():
    script = """
import sys, _testcapi
from importlib.machinery import ExtensionFileLoader, ModuleSpec

name, refused, module = "qindex._calls", 0, None
loader = ExtensionFileLoader(name, sys.argv[1])
spec = ModuleSpec(name, loader, origin=sys.argv[1])
while not module and refused < 1000:
    drained = [({}, tuple([i])) for i in range(3000)]
    _testcapi.set_nomemory(refused, refused + 1)
    try:
        module = loader.create_module(spec)
    except (MemoryError, SystemError):  # in one place CPython forgets to say which
        refused += 1
    finally:
        _testcapi.remove_mem_hooks()
assert refused >= 10, refused
assert module.QueueCalls().get and module.to_deliveries([1])
"""
    run(script, _core.__file__)


def test_what_goes_on_to_python_goes_whole_or_not_at_all(tmp_path):
    script = """
class Echo(QueueCalls):
    def _publish(self, *bodies, **named):
        return bodies, named

bodies, seen = list(range(1000, 1030)), []
call = lambda: seen.append(Echo().publish(*bodies, headers=1, ttl=2))
assert sum(each_allocation_fails(call)) >= 2
assert seen and all(one == (tuple(bodies), {"headers": 1, "ttl": 2}) for one in seen)
"""
    child(tmp_path, script)


def test_acks_and_messages_without_memory_are_refused(tmp_path):
    script = """
queue.publish_many([b"body"] * 4)
messages = queue.get_many(4)
details = messages[0]._details
assert sum(each_allocation_fails(lambda: to_deliveries(messages))) >= 1
assert sum(each_allocation_fails(lambda: Message(5, b"", details))) >= 1
queue.ack_many(messages)
assert len(queue) == 0
"""
    child(tmp_path, script)


def test_bodies_without_memory_are_refused(tmp_path):
    script = """
bodies = [b"%d" % i * 500 for i in range(30)]
def placed():
    kept, places, sizes, total, _ = place_bodies(bodies)
    assert list(kept) == bodies and all(map(operator.is_, kept, bodies))
    assert sizes == array("I", map(len, bodies)).tobytes() and total == sum(map(len, bodies))
    return len(array("Q", places)) == len(set(array("Q", places))) == 30
assert placed()
assert sum(each_allocation_fails(placed)) >= 4
publish = lambda: queue.publish_many(bodies)
refused = sum(each_allocation_fails(publish))
assert refused >= 4 and len(queue) % len(bodies) == 0, (refused, len(queue))
"""
    child(tmp_path, script)


def test_calls_that_belong_to_no_queue_say_so():
    calls, rest = QueueCalls(), (Details("q"), True, True)
    for arguments in (("x",), (1, 5, *rest), (1, int, *rest), (1, Message, 5, True, True)):
        with pytest.raises(TypeError):
            calls._attach(*arguments)
    for call in (lambda: calls._message(0, 0, True), lambda: calls._messages(1, 0, 0)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(AttributeError):
        calls.publish(b"x", ttl=1)


@pytest.mark.parametrize("messages", [5, [object()], [1, -1], [1 << 64]])
def test_what_has_no_req_id_is_refused(messages):
    with pytest.raises((TypeError, ValueError)):
        to_deliveries(messages)
