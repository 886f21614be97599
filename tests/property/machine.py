"""Random operations, crashes, faults and hours, on the engine and on the model: the same answers.

The store stands on the simulated disk. Each queue has a Model of its own; a call that fails or is
cut off leaves it in doubt, and the next open must show one of the outcomes that are allowed.
"""

import pytest
from helpers import state
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from lanes import REDRIVEN
from machine_ground import (
    NAMES,
    Ground,
    leases,
    modes,
    names,
    options,
    priorities,
    seeds,
    sizes,
    some_delays,
    some_times,
    when,
)

import qindex
from qindex.testing import tick


class StoreMachine(Ground):
    # --- getting and settling ------------------------------------------------------------------

    @rule(name=names, count=st.integers(1, 30), lease=leases)
    def get(self, name, count, lease):
        queue, model = self.queues[name], self.models[name]
        expected = model.foresee(count)
        with self.may_fail():
            if count == 1:
                one = [queue.get() if lease is None else queue.get(lease=lease)]
            else:
                one = queue.get_many(count, lease=lease)
            self.got(name, [message for message in one if message is not None], expected, lease)

    @rule(name=names, lease=leases)
    def get_newest(self, name, lease):
        model = self.models[name]
        newest = model.drop_doomed(model.newest)
        with self.may_fail():
            message = self.queues[name].get_newest(lease=lease)
            expected = [] if newest is None else [newest]
            self.got(name, [] if message is None else [message], expected, lease)

    def got(self, name, messages, expected, lease):
        model = self.models[name]
        model.dropped()
        if self.fault is None or not messages:
            assert [m.req_id for m in messages] == [sent.id for sent in expected]
        else:  # behind the first message a fault ends a batch: it comes up at the next call
            assert len(messages) <= len(expected)
        until = None if lease is None else self.steady() + int(lease * 1e6)
        for message, sent in zip(messages, expected, strict=False):
            assert message.req_id == sent.id
            self.same(name, message, sent)
            had = sent.deliveries > 0 or sent.maybe_delivered
            assert message.redelivered >= (sent.deliveries > 0)
            assert message.redelivered <= (had or sent.serial in self.old[name])
            model.delivered(sent, until)
            assert message.delivery_count == model.of(sent).count
            self.handles[name][sent.serial] = message

    @precondition(lambda self: any(model.out() for model in self.models.values()))
    @rule(
        data=st.data(),
        verb=st.sampled_from(["ack", "ack", "nack", "nack", "drop", "touch"]),
        delay=some_times,
        lease=st.sampled_from([0.001, 0.01, 5.0]),
    )
    def settle(self, data, verb, delay, lease):
        name = data.draw(st.sampled_from([n for n in NAMES if self.models[n].out()]))
        queue, model = self.queues[name], self.models[name]
        chosen = data.draw(st.lists(st.sampled_from(model.out()), min_size=1, unique=True))
        if verb == "touch":
            return self.touch(name, chosen[0], lease)
        with self.may_fail():
            self.begin_settling(name, chosen, verb, delay)(queue)
            self.settled(name, chosen, verb, delay)
        return None

    def touch(self, name, sent, lease):
        with self.may_fail():
            self.queues[name].touch(self.handles[name][sent.serial], lease)
            self.models[name].of(sent).lease = self.steady() + int(lease * 1e6)

    def begin_settling(self, name, chosen, verb, delay):
        """In the model; returns the call. By the messages that get() gave, or by their ReqIds."""
        model, handles = self.models[name], self.handles[name]
        ids = [sent.id if sent.serial % 5 == 0 else handles[sent.serial] for sent in chosen]
        if verb == "nack":
            if delay:
                model.timing(chosen, self.due_us(delay))
            return lambda queue: queue.nack_many(ids, **when(delay))
        if verb == "drop" and model.rules.dead_letters:
            model.timing(chosen, "rejected")
        else:
            model.removing(chosen)
        if verb == "drop":
            return lambda queue: queue.nack_many(ids, requeue=False)
        return lambda queue: queue.ack(ids[0]) if len(ids) == 1 else queue.ack_many(ids)

    def settled(self, name, chosen, verb, delay):
        model, handles = self.models[name], self.handles[name]
        buried = verb == "drop" and model.rules.dead_letters
        if verb != "nack" and not buried:
            model.removed(chosen)
            return
        model.given_back(chosen)
        model.late += [handles.pop(sent.serial) for sent in chosen]
        if buried or delay:
            model.timed(chosen, "rejected" if buried else self.due_us(delay))
        model.leave_spent(sure=self.fault is None)

    @precondition(lambda self: any(model.late for model in self.models.values()))
    @rule(data=st.data())
    def settle_too_late(self, data):
        """A delivery that has ended, also with its session, settles nothing, whoever has it now."""
        name = data.draw(st.sampled_from([n for n in NAMES if self.models[n].late]))
        model, queue = self.models[name], self.queues[name]
        message = data.draw(st.sampled_from(model.late))
        verb = data.draw(st.sampled_from([queue.ack, queue.nack, lambda m: queue.touch(m, 1)]))
        before = None if self.fault else state(queue)
        with self.may_fail():
            is_out = any(sent.id == message.req_id for sent in model.out())
            error = qindex.DeliveryEnded if is_out else qindex.MessageError
            with pytest.raises(error):
                verb(message)
            assert self.fault or state(queue) == before

    # --- what nobody has -----------------------------------------------------------------------

    @precondition(lambda self: any(model.live() for model in self.models.values()))
    @rule(data=st.data(), verb=st.sampled_from(["reschedule", "delete"]), delay=some_times)
    def change(self, data, verb, delay):
        name = data.draw(st.sampled_from([n for n in NAMES if self.models[n].live()]))
        queue, model = self.queues[name], self.models[name]
        sent = data.draw(st.sampled_from(model.live()))
        call = queue.delete if verb == "delete" else lambda i: queue.reschedule(i, **when(delay))
        if sent.out:
            with self.may_fail(), pytest.raises(qindex.MessageDelivered):
                call(sent.id)
            return
        of_the_dead = sent in model.dead() or model.of(sent).time == REDRIVEN
        if verb == "reschedule" and of_the_dead and delay:
            with self.may_fail(), pytest.raises(qindex.DeadLetter):
                call(sent.id)
            return
        place = REDRIVEN if of_the_dead else self.now() if model.of(sent).delayed else 0
        time = self.due_us(delay) or place
        if verb == "delete":
            model.removing([sent])
        else:
            model.timing([sent], time)
        with self.may_fail():
            call(sent.id)
            if verb == "delete":
                model.removed([sent])
            else:
                model.timed([sent], time)

    @precondition(lambda self: any(model.dead() for model in self.models.values()))
    @rule(name=names, count=st.none() | st.integers(0, 3))
    def redrive(self, name, count):
        model = self.models[name]
        chosen = sorted(model.dead(), key=lambda m: m.id)[:count]
        model.timing(chosen, REDRIVEN)
        with self.may_fail():
            assert self.queues[name].redrive(count) == len(chosen)
            model.timed(chosen, REDRIVEN)

    @rule(name=names)
    def expire(self, name):
        model = self.models[name]
        chosen, buries = model.expired(), model.rules.dead_letters
        if buries:
            model.timing(chosen, "expired")
        else:
            model.removing(chosen)
        with self.may_fail():
            assert self.queues[name].expire() == len(chosen)
            if buries:
                model.timed(chosen, "expired")
            else:
                model.removed(chosen)

    @rule(seconds=st.sampled_from([0.005, 1.5, 65, 4000]), back=st.booleans())
    def the_wall_clock_is_set(self, seconds, back):
        self.disk.set_wall(self.now() / 1e6 + (-seconds if back else seconds))

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

    @rule(name=names, what=st.sampled_from(["ready", "delayed", "dead", "all"]))
    def purge(self, name, what):
        model = self.models[name]
        gone = model.in_state(what)
        model.removing(gone)
        with self.may_fail():
            assert self.queues[name].purge(state=what) == len(gone)
            model.removed(gone)

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

    @rule(seconds=st.sampled_from([0.001, 0.006, 0.01, 2, 61, 86400]))
    def time_goes_on(self, seconds):
        self.disk.advance(seconds)
        for name in NAMES:
            self.models[name].end_leases(self.handles[name])
            self.models[name].leave_spent(sure=self.fault is None)
        with self.may_fail():
            tick(self.store)

    @precondition(lambda self: self.fault is None)
    @rule()
    def check(self):
        self.store.check()
        self.no_damage()

    @rule(
        name=names,
        start=st.integers(0, 100),
        length=st.integers(0, 100) | st.just(1 << 62),
        state=st.sampled_from([None, "ready", "unacked", "delayed", "dead"]),
    )
    def browse(self, name, start, length, state):
        model = self.models[name]
        live = {
            None: model.live,
            "ready": model.ready,
            "unacked": model.out,
            "delayed": model.delayed,
            "dead": model.dead,
        }[state]()
        with self.may_fail():
            seen = list(self.queues[name].browse(start, start + length, state=state))
            live = sorted((m for m in live if start <= m.id < start + length), key=lambda m: m.id)
            assert [m.req_id for m in seen] == [m.id for m in live]
            for message, sent in zip(seen, live, strict=True):
                self.same(name, message, sent)

    @rule(name=names)
    def peek(self, name):
        model = self.models[name]
        first = next((m for m in model.ready() if not model.doomed(m)), None)
        with self.may_fail():
            message = self.queues[name].peek()
            assert (message and message.req_id) == (first and first.id)

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
        calls = ["publish", "ack", "nack", "drop", "redrive", "purge", "flush", "close", "sync"]
        match verb := data.draw(st.sampled_from(calls)):
            case "publish":
                sizes_of = data.draw(st.lists(sizes, max_size=9))
                how = {"priority": data.draw(priorities), "delay": data.draw(some_times)}
                if model.excess(sizes_of) is not None:
                    messages, _ = self.begin(name, sizes_of, batch=True, **how)
                    queue.publish_many([m.body for m in messages], confirm=True, **self.call(**how))
            case "ack" | "nack" | "drop":
                if out := model.out():
                    self.begin_settling(name, out, verb, data.draw(some_delays))(queue)
                queue.sync()
            case "redrive":
                model.timing(model.dead(), REDRIVEN)
                queue.redrive()
                queue.sync()
            case "purge":
                model.removing(model.waiting())
                queue.purge(state="all")
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
    def delete_queue(self, name):
        self.store.delete_queue(name)
        last = self.models[name].last
        self.models[name], self.old[name], self.handles[name] = self.new_model(), set(), {}
        self.models[name].last = last
        self.declared.discard(name)
        self.open_queue(name)

    @invariant()
    def figures_agree(self):
        for name, model in getattr(self, "models", {}).items():
            if self.fault is None:
                stats, delayed = self.queues[name].stats(), model.delayed()
                ready, out, dead = model.ready(), model.out(), model.dead()
                assert (stats.ready, stats.unacked) == (len(ready), len(out))
                assert (stats.delayed, stats.dead) == (len(delayed), len(dead))
                assert len(self.queues[name]) == len(model.live())
                if model.rules.max_bytes:
                    assert stats.bytes == model.counted()[1]
                earliest = min((model.of(m).time / 1e6 for m in delayed), default=None)
                assert stats.next_due == earliest
