"""Power cuts under the broker: a virtual host on the simulated disk, with batches, known ways, acks
and dead letters. What a sync has covered is there, and what was acked before it stays away.
"""

from __future__ import annotations

import random

import pytest
from broker_rooms import Turns, declare, publish
from raw_client import publish as frames_of

import qindex
from qindex._wire import Way
from qindex.amqp.wire import scanner_in_c
from qindex.broker.backlog import Share
from qindex.broker.durable import PUBLISH_BODIES, GroupCommit
from qindex.broker.vhost import VHost
from qindex.testing import SimulatedDisk, abandon

PERSISTENT = b"\x10\0\x02"
NAMES = ("a", "b", "c")
STEPS, CUTS = 120, 12


def scanned(name, bodies):
    scanner = scanner_in_c(131_072)
    scanner.open(1, True)
    scanner.body_max = 1 << 20
    (found,) = scanner.frames(b"".join(frames_of("", name, PERSISTENT, body) for body in bodies))
    return found


class Syncer:
    """Syncs in a turn of the event loop, and says so in the next one; or both before it returns, as
    the loop does for a client that is alone.
    """

    def __init__(self, life):
        self._life = life

    def sync(self, ended):
        self._life.syncs_at_once = not self._life.syncs_at_once
        if self._life.syncs_at_once:
            self._life.sync()
            ended(None)
            return
        self._life.turns.call_soon(self._life.sync)
        self._life.turns.call_soon(ended, None)

    def close(self):
        pass


class Life:
    """A virtual host, and what its clients know of each message by its body."""

    def __init__(self, seed, disk):
        self.dice = random.Random(seed)
        self.store = qindex.open("/", disk=disk, format=2, expire=False)
        self.turns = Turns()
        self.vhost = VHost("/", self.turns, self.store, GroupCommit(Syncer(self)))
        self.declared = set()
        self.homes = {}  # where a message was published to
        self.published, self.acked = [], set()
        self.confirmed, self.acks_synced = set(), set()
        self.syncs_at_once = False
        self.next = 0

    def sync(self):
        self.store.sync()
        self.confirmed, self.acks_synced = set(self.published), set(self.acked)

    def bodies(self, count):
        made = [
            b"%06d" % (self.next + at) + b"." * self.dice.choice((0, 40, 900))
            for at in range(count)
        ]
        self.next += count
        return made

    def declare(self, name):
        dead = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
        declare(self.vhost, name, **({} if name == "dead" else dead))
        self.declared.add(name)

    def step(self):
        name = self.dice.choice(NAMES)
        if name not in self.declared:
            self.declare(name)
        queue, way = self.vhost.queues[name], self.dice.random()
        if way < 0.15:
            bodies = self.bodies(1)
            publish(self.vhost, *bodies, key=name)
        elif way < 0.3:
            bodies = self.bodies(self.dice.randrange(1, 30))
            queue.publish_many(scanned(name, bodies), {0: Share("", name, True, 0, 0)})
        elif way < 0.5:
            bodies = self.bodies(self.dice.randrange(1, 30))
            found = scanned(name, bodies)
            store = queue.store_way("", name, persistent=True, priority=0)
            assert found.find({found.keys()[0]: Way(queue, *store, True)})
            assert found.publish_each(PUBLISH_BODIES, 0, 1, 0)[:2] == (1, 0)
        else:
            bodies = []
            self.settle(queue, way)
        self.homes.update(dict.fromkeys(bodies, name))
        self.published += bodies

    def settle(self, queue, way):
        if way > 0.85:
            self.vhost.commit.join(lambda: None)
            return
        for _ in range(self.dice.randrange(1, 8)):
            entry = queue.get()
            if entry is None:
                return
            if way < 0.7:
                queue.ack([entry])
                self.acked.add(entry.message.body)
            elif way < 0.78:
                queue.reject([entry])
            else:
                queue.requeue([entry])

    def check(self, left):
        """What a power cut has left, in a broker that starts there."""
        with qindex.open("/", disk=left, format=2, expire=False) as store:
            vhost = VHost("/", Turns(), store)
            assert set(vhost.queues) == self.declared
            found = {}
            for name, queue in vhost.queues.items():
                bodies = [message.body for _, message in queue.backlog.browse()]
                assert len(bodies) == len(set(bodies)) == len(queue)
                if name != "dead":
                    assert bodies == sorted(bodies)
                    assert all(self.homes[body] == name for body in bodies)
                found.update(dict.fromkeys(bodies))
            assert set(found) <= set(self.published)
            assert self.confirmed - self.acked <= set(found)
            assert not self.acks_synced & set(found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(3)
def test_what_was_confirmed_is_there_after_a_power_cut_and_no_ack_comes_back(seed):
    disk = SimulatedDisk(seed=seed)
    life = Life(seed, disk)
    life.declare("dead")
    cuts = set(life.dice.sample(range(STEPS), CUTS))
    for at in range(STEPS):
        life.step()
        while True:  # before each call of the event loop's turn, and behind the last one
            if at in cuts:
                for mode in ("nothing", "all", "mixed"):
                    life.check(disk.power_cut(seed=at, mode=mode))
            if not life.turns.soon:
                break
            life.turns.step()
    assert life.confirmed
    assert life.acks_synced
    assert len(life.vhost.queues["dead"])
    abandon(life.store)
