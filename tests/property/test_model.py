"""Random operations, crashes and reopens, on the engine and on the model: the same answers.

A crash here lets go of the store without a close, as kill -9 does (tests/crash really kills).
"""

import shutil
import tempfile
import time
from pathlib import Path

import pytest
from helpers import crash, damage
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model import ModelQueue, Published

import qindex

NAMES = ["a", "b"]
names = st.sampled_from(NAMES)
sizes = st.sampled_from([0, 1, 10, 63, 64, 65, 300, 1500, 5000])
headers = st.none() | st.fixed_dictionaries({"k": st.integers(0, 2**62)})
options = st.fixed_dictionaries(
    {
        "max_journal_entries": st.sampled_from([1, 5, 24, 100]),
        "embed_below": st.sampled_from([0, 64, 400]),
        "message_file_size": st.sampled_from([4096, 8192]),
        "io": st.sampled_from(["mmap", "pwrite"]),
        "idle": st.sampled_from([0.003, 1.0, 3600.0]),
        "sync": st.sampled_from(["group", "never"]),
    }
)


class QueueMachine(RuleBasedStateMachine):
    @initialize(knobs=options)
    def create(self, knobs):
        self.base = Path(tempfile.mkdtemp(prefix="qindex-model-"))
        self.models = {name: ModelQueue() for name in NAMES}
        self.serial = 0
        self.open(knobs)

    def open(self, knobs):
        self.knobs = knobs
        self.store = qindex.open(self.base / "data", segment_entries=16, **knobs)
        self.queues = {name: self.store.queue(name) for name in NAMES}

    def body(self, size):
        self.serial += 1
        return (b"%d|" % self.serial * (size // 2 + 1))[:size]

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.base)

    def same(self, name, messages, expected):
        model = self.models[name]
        assert [m.req_id for m in messages] == expected
        for message in messages:
            known = model.live[message.req_id]
            assert message.body == known.body
            assert message.headers == known.headers
            assert message.persistent == known.persistent

    @rule(name=names, size=sizes, table=headers, persistent=st.booleans())
    def publish(self, name, size, table, persistent):
        body = self.body(size)
        req_id = self.queues[name].publish(body, headers=table, persistent=persistent)
        self.models[name].publish([req_id], [Published(body, table or {}, persistent)])

    @rule(name=names, batch=st.lists(sizes, max_size=40))
    def publish_many(self, name, batch):
        bodies = [self.body(size) for size in batch]
        req_ids = self.queues[name].publish_many(bodies)
        self.models[name].publish(req_ids, [Published(body, {}) for body in bodies])

    @rule(chosen=st.lists(names, unique=True), size=sizes)
    def fan_out(self, chosen, size):
        body = self.body(size)
        req_ids = self.store.publish(chosen, body)
        for name, req_id in zip(chosen, req_ids, strict=True):
            self.models[name].publish([req_id], [Published(body, {})])

    @rule(name=names, count=st.integers(1, 30))
    def get(self, name, count):
        queue, model = self.queues[name], self.models[name]
        if count == 1:
            message = queue.get()
            messages = [] if message is None else [message]
        else:
            messages = queue.get_many(count)
        self.same(name, messages, model.get(count))
        for message in messages:
            known = model.live[message.req_id]
            assert message.delivery_count == known.deliveries
            assert message.redelivered == (known.deliveries > 1 or known.old)

    @precondition(lambda self: any(model.out for model in self.models.values()))
    @rule(data=st.data(), verb=st.sampled_from(["ack", "ack", "ack", "nack", "drop"]))
    def settle(self, data, verb):
        name = data.draw(st.sampled_from([n for n in NAMES if self.models[n].out]))
        queue, model = self.queues[name], self.models[name]
        chosen = data.draw(st.lists(st.sampled_from(list(model.out)), min_size=1, unique=True))
        if verb == "ack" and len(chosen) == 1:
            queue.ack(chosen[0])
        elif verb == "ack":
            queue.ack_many(chosen)
        else:
            queue.nack_many(chosen, requeue=verb == "nack")
        (model.nack if verb == "nack" else model.ack)(chosen)

    @rule(name=names, req_id=st.integers(0, 400))
    def refuse(self, name, req_id):
        if req_id not in self.models[name].out:
            with pytest.raises(qindex.MessageError):
                self.queues[name].ack(req_id)

    @rule(name=names)
    def purge(self, name):
        assert self.queues[name].purge() == self.models[name].purge()

    @rule(name=names)
    def flush(self, name):
        self.queues[name].flush()
        assert self.queues[name].dirty_count == 0

    @rule()
    def compact(self):
        self.store.compact()

    @rule()
    def rest(self):
        time.sleep(0.008)

    @rule()
    def check(self):
        self.store.check()
        assert damage(self.store) == []

    @rule(name=names, start=st.integers(0, 100), length=st.integers(0, 100))
    def browse(self, name, start, length):
        seen = list(self.queues[name].browse(start, start + length))
        self.same(name, seen, list(self.models[name].live.irange(start, start + length - 1)))

    @rule(name=names)
    def peek(self, name):
        message, ready = self.queues[name].peek(), self.models[name].ready()
        self.same(name, [message] if message else [], ready[:1])

    @rule(knobs=options, clean=st.booleans())
    def reopen(self, knobs, clean):
        self.store.close() if clean else crash(self.store)
        for model in self.models.values():
            model.reopen(clean)
        self.open(knobs)
        for name in NAMES:
            self.same(name, list(self.queues[name].browse()), list(self.models[name].live))
        assert damage(self.store) == []

    @rule(name=names)
    def delete(self, name):
        self.store.delete_queue(name)
        self.queues[name] = self.store.queue(name)
        self.models[name] = ModelQueue()

    @invariant()
    def figures_agree(self):
        for name, model in getattr(self, "models", {}).items():
            queue = self.queues[name]
            assert (len(queue), queue.unacked) == (len(model.live), len(model.out))
            assert queue.ready == len(model.live) - len(model.out)


def test_the_engine_answers_as_the_model_does():
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
