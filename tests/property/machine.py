"""Random operations, crashes, faults and hours, on the engine and on the model: the same answers.

The store stands on the simulated disk. Each queue has a Model of its own; a call that fails or is
cut off leaves it in doubt, and the next open must show one of the outcomes that are allowed.
"""

import contextlib
import itertools

import pytest
from helpers import damage, state
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import qindex
from qindex.testing import (
    Model,
    Promise,
    Seen,
    SimulatedDisk,
    abandon,
    check_got,
    check_ids,
    check_reopened,
    tick,
)

NAMES = ["a", "b"]
PROMISE = Promise(redelivered=True, barrier=True, refuses=True)
names = st.sampled_from(NAMES)
sizes = st.sampled_from([0, 1, 10, 63, 64, 65, 300, 1500, 5000])
headers = st.none() | st.fixed_dictionaries({"k": st.integers(0, 2**62)})
modes = st.sampled_from(["mixed", "nothing", "all", "prefix", "sectors512", "sectors4k", "zeros"])
seeds = st.integers(0, 2**16)
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


class InDoubt(Exception):
    """The call failed, and what came of it is to be seen after reopening."""


class StoreMachine(RuleBasedStateMachine):
    @initialize(knobs=options, seed=seeds)
    def create(self, knobs, seed):
        self.disk = SimulatedDisk(seed)
        self.models = {name: Model(PROMISE) for name in NAMES}
        self.old = {name: set() for name in NAMES}  # lived through an unclean end
        self.fault = None
        self.crash_kind = None
        self.knobs = knobs
        self.open()

    def teardown(self):
        if hasattr(self, "store"):
            self.disk.heal()
            with contextlib.suppress(qindex.QindexError):
                self.store.close()

    # --- opening, and what it shows ------------------------------------------------------------

    def open(self):
        self.store = qindex.open("/", disk=self.disk, segment_entries=16, **self.knobs)
        self.queues = {name: self.store.queue(name) for name in NAMES}
        for name in NAMES:
            self.compare(name)
        self.no_damage()
        self.crash_kind = None

    def no_damage(self):
        found = damage(self.store)
        assert not found, found

    def compare(self, name):
        """All that the queue holds against its model, which takes over what was in doubt."""
        model, crash = self.models[name], self.crash_kind
        shown = list(self.queues[name].browse())
        seen = [Seen(m.body, m.req_id, m.redelivered) for m in shown]
        violations, known = check_reopened(model, seen, crash)
        assert not violations, [str(violation) for violation in violations]
        model.accept(known)
        if crash is not None:
            self.old[name] |= {message.serial for message in model.live()}
        for message, (sent, _) in zip(shown, known, strict=True):
            self.same(message, sent)

    def same(self, message, sent):
        assert message.body == sent.body
        assert message.headers == (sent.extra or {})
        assert message.persistent == sent.persistent

    def crashed(self, kind, disk):
        """The process is gone, `disk` is what is left."""
        abandon(self.store)
        self.disk, self.fault = disk, None
        # After a failed sync the cache may hold what the medium does not: as after a power cut.
        self.crash_kind = "power" if "power" in (kind, self.crash_kind) else kind
        for model in self.models.values():
            model.crashed()
        self.open()

    @contextlib.contextmanager
    def may_fail(self, refused=(), sure=(qindex.DiskFull, qindex.DiskError)):
        """An injected fault may make the call fail; without one it must not.

        A call that says "nothing was changed", as `sure` errors do, is taken at its word: `refused`
        are forgotten.
        Behind any other failure the store is given up and opened again.
        """
        try:
            yield
        except (qindex.QindexError, MemoryError) as error:
            if self.fault is None:
                raise
            if isinstance(error, sure):
                for model, messages in refused:
                    model.refused(messages)
            for model in self.models.values():
                for message in model.live():
                    message.maybe_delivered = True  # by a get() that failed
            self.crash_kind = "power"
            self.disk.heal()
            self.crashed("kill", self.disk.kill())

    # --- publishing ----------------------------------------------------------------------------

    def begin(self, name, bodies, table=None, **options):
        messages = self.models[name].publishing(bodies, **options)
        for message in messages:
            message.extra = table
        return messages

    def published(self, name, messages, req_ids):
        assert check_ids(self.models[name], req_ids) == []
        assert all(a < b for a, b in itertools.pairwise(req_ids))
        self.models[name].published(messages, req_ids)

    @rule(name=names, size=sizes, table=headers, persistent=st.booleans(), confirm=st.booleans())
    def publish(self, name, size, table, persistent, confirm):
        [message] = self.begin(name, [size], table, persistent=persistent)
        with self.may_fail([(self.models[name], [message])]):
            req_id = self.queues[name].publish(message.body, headers=table, persistent=persistent)
            self.published(name, [message], [req_id])
        if confirm:
            self.sync_queue(name)

    @rule(name=names, batch=st.lists(sizes, max_size=40))
    def publish_many(self, name, batch):
        messages = self.begin(name, batch, batch=True)
        with self.may_fail([(self.models[name], messages)]):
            req_ids = self.queues[name].publish_many([m.body for m in messages])
            self.published(name, messages, list(req_ids))

    @rule(chosen=st.lists(names, unique=True), size=sizes)
    def fan_out(self, chosen, size):
        """One body for several: each model knows it under a serial of its own."""
        serial = max((model.last for model in self.models.values()), default=0)
        for name in chosen:
            self.models[name].last = serial  # so that the bodies are the same
        sent = {name: self.begin(name, [size]) for name in chosen}
        body = sent[chosen[0]][0].body if chosen else b""
        # A disk that fails between the records of two queues leaves it in one of them.
        with self.may_fail(
            [(self.models[name], sent[name]) for name in chosen], sure=qindex.DiskFull
        ):
            for name, req_id in zip(chosen, self.store.publish(chosen, body), strict=True):
                self.published(name, sent[name], [req_id])

    # --- getting and settling ------------------------------------------------------------------

    @rule(name=names, count=st.integers(1, 30))
    def get(self, name, count):
        queue = self.queues[name]
        with self.may_fail():
            one = [queue.get()] if count == 1 else queue.get_many(count)
            messages = [message for message in one if message is not None]
            self.got(name, messages, count)

    @rule(name=names)
    def get_newest(self, name):
        with self.may_fail():
            message = self.queues[name].get_newest()
            self.got(name, [] if message is None else [message], 1, end=-1)

    def got(self, name, messages, count, end=0):
        model = self.models[name]
        expected = min(count, len(model.ready()))
        if self.fault is None or not messages:
            assert len(messages) == expected
        else:  # behind the first message a fault ends a batch: it comes up at the next call
            assert len(messages) <= expected
        for message in messages:
            _, sent = check_got(model, Seen(message.body, message.req_id))
            assert sent is model.ready()[end]
            self.same(message, sent)
            had = sent.deliveries > 0 or sent.maybe_delivered
            assert message.redelivered >= (sent.deliveries > 0)
            assert message.redelivered <= (had or sent.serial in self.old[name])
            model.delivered(sent)

    @precondition(lambda self: any(model.out() for model in self.models.values()))
    @rule(data=st.data(), verb=st.sampled_from(["ack", "ack", "ack", "nack", "drop"]))
    def settle(self, data, verb):
        name = data.draw(st.sampled_from([n for n in NAMES if self.models[n].out()]))
        queue, model = self.queues[name], self.models[name]
        chosen = data.draw(st.lists(st.sampled_from(model.out()), min_size=1, unique=True))
        ids = [message.id for message in chosen]
        if verb != "nack":
            model.removing(chosen)
        with self.may_fail():
            if verb == "ack":
                queue.ack(ids[0]) if len(ids) == 1 else queue.ack_many(ids)
            else:
                queue.nack_many(ids, requeue=verb == "nack")
            (model.given_back if verb == "nack" else model.removed)(chosen)

    @precondition(lambda self: self.fault is None)
    @rule(name=names, req_id=st.integers(0, 400))
    def refuse(self, name, req_id):
        out = {message.id for message in self.models[name].out()}
        before = state(self.queues[name])
        for ids in ([req_id], [*out, req_id], [*out, *out]):
            if req_id not in out and ids:
                with pytest.raises((qindex.MessageError, ValueError)):
                    self.queues[name].ack_many(ids)
        assert state(self.queues[name]) == before

    @rule(name=names)
    def purge(self, name):
        model = self.models[name]
        ready = model.ready()
        model.removing(ready)
        with self.may_fail():
            assert self.queues[name].purge() == len(ready)
            model.removed(ready)

    # --- upkeep --------------------------------------------------------------------------------

    @rule(name=names)
    def sync_queue(self, name):
        with self.may_fail():
            self.queues[name].sync()
            self.models[name].synced()

    @rule()
    def sync(self):
        with self.may_fail():
            self.store.sync()
            for model in self.models.values():
                model.synced()

    @rule(name=names)
    def flush(self, name):
        with self.may_fail():
            self.queues[name].flush()
            assert self.queues[name].dirty_count == 0

    @rule()
    def compact(self):
        with self.may_fail():
            self.store.compact()

    @rule(seconds=st.sampled_from([0.001, 0.006, 2, 86400]))
    def time_goes_on(self, seconds):
        self.disk.advance(seconds)
        with self.may_fail():
            tick(self.store)

    @precondition(lambda self: self.fault is None)
    @rule()
    def check(self):
        self.store.check()
        self.no_damage()

    @rule(name=names, start=st.integers(0, 100), length=st.integers(0, 100))
    def browse(self, name, start, length):
        with self.may_fail():
            seen = list(self.queues[name].browse(start, start + length))
            live = [m for m in self.models[name].live() if start <= m.id < start + length]
            assert [m.req_id for m in seen] == [m.id for m in live]
            for message, sent in zip(seen, live, strict=True):
                self.same(message, sent)

    @rule(name=names)
    def peek(self, name):
        ready = self.models[name].ready()
        with self.may_fail():
            message = self.queues[name].peek()
            assert (message and message.req_id) == (ready[0].id if ready else None)

    # --- ends ----------------------------------------------------------------------------------

    @precondition(lambda self: self.fault is None)
    @rule(knobs=options)
    def close_and_open(self, knobs):
        self.store.close()
        for model in self.models.values():
            model.closed()
        self.knobs = knobs
        self.open()

    @rule(knobs=options)
    def kill(self, knobs):
        self.knobs = knobs
        self.crashed("kill", self.disk.kill())

    @rule(knobs=options, seed=seeds, mode=modes)
    def power_cut(self, knobs, seed, mode):
        self.knobs = knobs
        self.crashed("power", self.disk.power_cut(seed, mode))

    @precondition(lambda self: self.fault is None)
    @rule(data=st.data(), change=st.integers(1, 30), seed=seeds, mode=modes)
    def power_cut_during(self, data, change, seed, mode):
        """The power goes while a call is under way; what came of the call nobody knows."""
        name = data.draw(names)
        queue, model = self.queues[name], self.models[name]
        self.disk.power_cut_at(change, seed, mode)
        match data.draw(st.sampled_from(["publish", "ack", "purge", "flush", "close", "sync"])):
            case "publish":
                messages = self.begin(name, data.draw(st.lists(sizes, max_size=9)), batch=True)
                queue.publish_many([m.body for m in messages], confirm=True)
            case "ack":
                model.removing(out := model.out())
                queue.ack_many([message.id for message in out])
                queue.sync()
            case "purge":
                model.removing(model.ready())
                queue.purge()
                queue.sync()
            case "flush":
                queue.flush()
                self.store.compact()
            case "close":
                for other in self.models.values():
                    other.closing()
                self.store.close()
            case "sync":
                self.store.sync()
        self.crashed("power", self.disk.taken() or self.disk.power_cut(seed, mode))

    @precondition(lambda self: self.fault is None)
    @rule(
        call=st.integers(1, 30),
        kind=st.sampled_from(["eio", "enospc", "short", "eintr", "enomem"]),
        sticky=st.booleans(),
    )
    def arm_a_fault(self, call, kind, sticky):
        self.disk.fault(call, kind, sticky=sticky)
        self.fault = kind

    @precondition(lambda self: self.fault is not None)
    @rule()
    def heal(self):
        """The disk works again; what it did meanwhile is to be seen after a power cut."""
        self.disk.heal()
        self.crash_kind = "power"
        self.crashed("kill", self.disk.kill())

    @precondition(lambda self: self.fault is None)
    @rule(name=names)
    def delete(self, name):
        self.store.delete_queue(name)
        self.queues[name] = self.store.queue(name)
        last = self.models[name].last
        self.models[name], self.old[name] = Model(PROMISE), set()
        self.models[name].last = last

    @invariant()
    def figures_agree(self):
        for name, model in getattr(self, "models", {}).items():
            if self.fault is None:
                queue, live, out = self.queues[name], model.live(), model.out()
                assert (len(queue), queue.unacked) == (len(live), len(out))
                assert queue.ready == len(live) - len(out)
