"""The ground of the machine: opening and what it shows, calls that fail, publishing."""

import contextlib
import itertools

import pytest
from helpers import damage
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
)
from lanes import FIRST, REDRIVEN, LaneModel, Rules

import qindex
from qindex._core import lib
from qindex.arguments import encode_headers
from qindex.testing import (
    Level,
    Promise,
    Seen,
    SimulatedDisk,
    abandon,
    check_ids,
    check_reopened,
)

NAMES = ["a", "b"]
PROMISE = Promise(redelivered=True, barrier=True, refuses=True)
names = st.sampled_from(NAMES)
sizes = st.sampled_from([0, 1, 10, 63, 64, 65, 300, 1500, 5000])
headers = st.none() | st.fixed_dictionaries({"k": st.integers(0, 2**62)})
modes = st.sampled_from(["mixed", "nothing", "all", "prefix", "sectors512", "sectors4k", "zeros"])
seeds = st.integers(0, 2**16)
priorities = st.sampled_from([0, 0, 0, 1, 9, 255])
delays = st.sampled_from([0.001, 0.01, 2.0, 61.0, 3000.0])
some_delays = st.sampled_from([None, None, None]) | delays
PAST = "due=0"  # instead of a delay
some_times = some_delays | st.just(PAST)
expiries = st.sampled_from([None] * 5) | st.sampled_from([0.001, 2.0, 70.0])
leases = st.none() | st.sampled_from([0.001, 0.01, 5.0])
rules_of_a = st.builds(
    Rules, max_deliveries=st.sampled_from([None, 1, 2, 3]), dead_letters=st.booleans()
)
bounds = {
    "max_messages": st.sampled_from([None, 5, 30]),
    "max_bytes": st.sampled_from([None, 700, 9000]),
}
rules_of_b = st.builds(
    Rules,
    overflow=st.sampled_from(["reject", "drop-head"]),
    dead_letters=st.booleans(),
    **bounds,
) | st.builds(Rules, overflow=st.just("dead-letter"), dead_letters=st.just(True), **bounds)
rules_of_b = rules_of_b.filter(
    lambda rules: rules.overflow == "reject" or rules.max_messages or rules.max_bytes
)
options = st.fixed_dictionaries(
    {
        "max_journal_entries": st.sampled_from([1, 5, 24, 100]),
        "embed_below": st.sampled_from([0, 64, 400]),
        "message_file_size": st.sampled_from([4096, 8192]),
        "io": st.sampled_from(["mmap", "pwrite"]),
        "idle": st.sampled_from([0.003, 1.0, 3600.0]),
        "sync": st.sampled_from(["group", "never"]),
        "looks": st.booleans(),
        "rules": st.tuples(rules_of_a, rules_of_b),
    }
)


def when(delay):
    """As arguments of a call."""
    return {"due": 0} if delay == PAST else {"delay": delay}


def lane(req_id):
    return req_id >> 52


class Ground(RuleBasedStateMachine):
    @initialize(knobs=options, seed=seeds, form=st.sampled_from([1, 2]))
    def create(self, knobs, seed, form):
        self.disk = SimulatedDisk(seed)
        self.form = form
        self.declared = set()  # queues whose rules are stored: they stay
        self.models = {name: self.new_model() for name in NAMES}
        self.old = {name: set() for name in NAMES}  # lived through an unclean end
        self.fault = None
        self.crash_kind = None
        self.knobs = knobs
        self.open()

    def now(self):
        return self.store._now_us()

    def steady(self):
        return lib.qi_store_clock_us(self.store._handle)

    def due_us(self, delay):
        """0: there is none."""
        if delay == PAST:
            return FIRST
        return self.now() + int(delay * 1e6) if delay else 0

    def new_model(self):
        return LaneModel(PROMISE, Rules(), self.now, self.steady)

    def teardown(self):
        if hasattr(self, "store"):
            self.disk.heal()
            with contextlib.suppress(qindex.QindexError):
                self.store.close()

    # --- opening, and what it shows ------------------------------------------------------------

    def open(self):
        options = {k: v for k, v in self.knobs.items() if k not in ("rules", "looks")}
        self.store = qindex.open(
            "/", disk=self.disk, segment_entries=16, format=self.form, **options
        )
        self.queues = {}
        for name, handles in getattr(self, "handles", {}).items():
            self.models[name].late += handles.values()
        self.handles = {name: {} for name in NAMES}  # what get() gave, by serial
        for name in NAMES:
            self.open_queue(name)
        self.look()
        self.no_damage()
        self.crash_kind = None

    def open_queue(self, name):
        if name in self.declared:
            self.queues[name] = self.store.queue(name)
            return
        rules = self.knobs["rules"][NAMES.index(name)]
        self.queues[name] = self.store.queue(name, **vars(rules))
        self.models[name].rules = rules
        if self.form == 2:
            self.declared.add(name)

    def no_damage(self):
        found = damage(self.store)
        assert not found, found

    def look(self):
        """All that the queues hold, seen in the store itself, or in a copy: to look reads segments,
        and what get() finds in a store in which nobody looked has to be the same."""
        if self.knobs["looks"]:
            for name in NAMES:
                model = self.models[name]
                leaving = self.doubt_spent(model)
                self.compare(name, self.queues[name])
                model.left_by_a_look(leaving)
                assert not model.spent()  # before anybody sees them
            return
        with qindex.open("/", disk=self.disk.kill(), read_only=True) as copy:
            for name in NAMES:
                self.compare(name, copy.queue(name))
        for model in self.models.values():
            model.leave_spent(sure=True)

    def doubt_spent(self, model):
        """At the first look those leave whose last delivery ended with the session, also those that
        had left before, if a power cut takes that back.

        Returns them with the times that they may have until then.
        """
        leaving = []
        for message in model.sent.values():
            if message.gone == Level.SYNCED:
                continue
            facts = model.of(message)
            counts = range(facts.count_synced, facts.count + message.maybe_delivered + 1)
            if facts.time == REDRIVEN or not any(map(model.is_spent, counts)):
                continue
            leaving.append((message, [*facts.times, *facts.doubt]))
            if model.rules.dead_letters:
                model.timing([message], "deliveries")
            elif message.gone is None:
                model.removing([message])
        return leaving

    def compare(self, name, queue):
        """All that the queue holds against its model, which takes over what was in doubt."""
        model, crash = self.models[name], self.crash_kind
        shown = self.as_published(name, list(queue.browse()))
        seen = [Seen(m.body, m.req_id, m.redelivered) for m in shown]
        violations, known = check_reopened(model, seen, crash)
        assert not violations, [str(violation) for violation in violations]
        model.accept(known)
        if crash is not None:
            self.old[name] |= {message.serial for message in model.live()}
        for message, (sent, _) in zip(shown, known, strict=True):
            self.same(name, message, sent)
            time = message.dead or message._due_us
            model.explain(sent, time, message.delivery_count, crash)
        for one, other in itertools.pairwise(sorted(known, key=lambda pair: pair[1])):
            assert lane(one[1]) != lane(other[1]) or one[0].serial < other[0].serial

    def as_published(self, name, messages):
        """What browse() shows lane by lane, in the order of publishing."""
        serials = {}
        for message in messages:
            seen = Seen(message.body, message.req_id)
            sent = self.models[name].identify(seen, serials.values())
            serials[message.req_id] = sent.serial if sent else 0
        return sorted(messages, key=lambda message: serials[message.req_id])

    def same(self, name, message, sent):
        assert message.body == sent.body
        assert message.priority == self.models[name].of(sent).priority
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
                model.failed()
            self.crash_kind = "power"
            self.disk.heal()
            self.crashed("kill", self.disk.kill())

    # --- publishing ----------------------------------------------------------------------------

    def begin(self, name, sizes, *, table=None, priority=0, delay=None, expires=None, **options):
        """In the model: the messages, and what leaves for them."""
        model = self.models[name]
        extra = len(encode_headers(table))
        leaving = model.excess([size + extra for size in sizes])
        due = self.due_us(delay)
        expiry = 0 if expires is None else int(self.expires_at(expires) * 1e6)
        persistent, batch = options.get("persistent", True), options.get("batch", False)
        model.leaving(leaving)
        messages = model.begin(
            sizes,
            priority,
            due,
            batch=batch,
            persistent=persistent,
            headers=extra,
            expiry=expiry,
        )
        for message in messages:
            message.extra = table
        return messages, leaving

    def expires_at(self, seconds):
        return None if seconds is None else round(self.now() / 1e6) + seconds

    def call(self, priority, delay, expires=None, **how):
        """The options of a publish."""
        return {"priority": priority, "expires_at": self.expires_at(expires), **when(delay), **how}

    def published(self, name, messages, leaving, req_ids):
        model = self.models[name]
        assert check_ids(model, req_ids) == []
        assert all(a < b for a, b in itertools.pairwise(req_ids))
        model.published(messages, req_ids)
        model.left(leaving)

    def is_full(self, name, payloads, publish):
        """True, and nothing has changed, if there is no place for so many bytes each."""
        if self.models[name].excess(payloads) is not None:
            return False
        with self.may_fail(), pytest.raises(qindex.QueueFull):
            publish()  # it may have made room in the journal before; the messages are as they were
        return True

    @rule(
        name=names,
        size=sizes,
        table=headers,
        persistent=st.booleans(),
        priority=priorities,
        delay=some_times,
        expires=expiries,
        confirm=st.booleans(),
    )
    def publish(self, name, size, table, persistent, priority, delay, expires, confirm):
        how = {"persistent": persistent, "priority": priority, "delay": delay, "expires": expires}
        call = self.call(**how)
        payload = size + len(encode_headers(table))
        if self.is_full(
            name,
            [payload],
            lambda: self.queues[name].publish(bytes(size), headers=table, **call),
        ):
            return
        [message], leaving = self.begin(name, [size], table=table, **how)
        with self.may_fail([(self.models[name], [message])]):
            req_id = self.queues[name].publish(message.body, headers=table, **call)
            self.published(name, [message], leaving, [req_id])
        if confirm:
            self.sync_queue(name)

    @rule(
        name=names,
        batch=st.lists(sizes, max_size=40),
        priority=priorities,
        delay=some_times,
        expires=expiries,
    )
    def publish_many(self, name, batch, priority, delay, expires):
        how = {"priority": priority, "delay": delay, "expires": expires}
        call = self.call(**how)
        if self.is_full(
            name, batch, lambda: self.queues[name].publish_many([*map(bytes, batch)], **call)
        ):
            return
        messages, leaving = self.begin(name, batch, batch=True, **how)
        with self.may_fail([(self.models[name], messages)]):
            req_ids = self.queues[name].publish_many([m.body for m in messages], **call)
            self.published(name, messages, leaving, list(req_ids))

    @rule(
        chosen=st.lists(names, min_size=1, unique=True),
        size=sizes,
        priority=priorities,
        delay=some_times,
    )
    def fan_out(self, chosen, size, priority, delay):
        """One body for several: each model knows it under a serial of its own."""
        how = {"priority": priority, "delay": delay}
        call = self.call(**how)
        for name in chosen:
            if self.is_full(name, [size], lambda: self.store.publish(chosen, bytes(size), **call)):
                return
        serial = max((model.last for model in self.models.values()), default=0)
        for name in chosen:
            self.models[name].last = serial  # so that the bodies are the same
        sent = {name: self.begin(name, [size], **how) for name in chosen}
        body = sent[chosen[0]][0][0].body if chosen else b""
        # A disk that fails between the records of two queues leaves it in one of them.
        with self.may_fail([(self.models[name], sent[name][0]) for name in chosen], sure=()):
            req_ids = self.store.publish(chosen, body, **call)
            for name, req_id in zip(chosen, req_ids, strict=True):
                self.published(name, *sent[name], [req_id])
