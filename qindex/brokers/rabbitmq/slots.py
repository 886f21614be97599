"""How many entries a segment of RabbitMQ's version 1 index has, and what if .config does not say.

The number is in the .config file of each virtual host. With a wrong one the seqs of all segments
but the first are wrong: acks in the journal miss their messages, which come back. So the segments
are asked, too: a slot beyond the number, marks of messages that are nowhere, and segments that end
where those of RabbitMQ's own choice end contradict it.
"""

from __future__ import annotations

from qindex.brokers.rabbitmq.doubts import SLOTS_NOW, Slots
from qindex.brokers.rabbitmq.index import SLOTS_MAX
from qindex.brokers.rabbitmq.queue import Counts
from qindex.brokers.rabbitmq.vhost import Vhost
from qindex.brokers.tree import Findings


def count_queues(vhost: Vhost) -> Slots:
    """Reads every index once, for the counts, the findings, and to know which bodies are wanted."""
    slots = Slots()
    for queue in vhost.queues:
        for part in queue.parts:
            vhost.count(part, slots)
    return slots


def count_with_best_slots(vhost: Vhost, told: int | None) -> None:
    """count_queues() with the number that .config tells, or with the one that fits.

    Only where the files contradict the number are they read again, with each that RabbitMQ chooses.
    """
    log = vhost.node.log
    before = log.copy()
    taken = vhost.segment_entry_count
    found = count_queues(vhost)
    if found.later == 0 and found.beyond == 0:
        return
    contradictions = {taken: _contradictions(found, taken)}
    if contradictions[taken]:
        for other in {SLOTS_NOW, SLOTS_MAX} - {taken}:
            contradictions[other] = _contradictions(_again(vhost, other, before), other)
        best = min(contradictions, key=lambda slots: (contradictions[slots], slots != taken))
        if best != vhost.segment_entry_count:
            _again(vhost, best, before)
    config = vhost.path(".config")
    best = vhost.segment_entry_count
    says = f".config says {told:,}" if told else f".config does not say it, a node takes {taken:,}"
    if best != taken:
        text = f"entries per segment: {says}, but the segments contradict that: {best:,} is taken"
        log.damage("config", config, 0, text)
    elif told is None and found.marks and not found.past_now:
        text = f"entries per segment: {says}; nothing here confirms it, and with a wrong number"
        log.suspected("config", config, 0, f"{text} acked messages are taken for live")


def _contradictions(found: Slots, taken: int) -> int:
    ends = found.full_now if taken != SLOTS_NOW and not found.past_now else 0
    return found.beyond + found.lost_marks + found.clashes + ends


def _again(vhost: Vhost, slots: int, before: Findings) -> Slots:
    vhost.node.log.take(before)
    vhost.store.unmark()
    vhost.segment_entry_count = slots
    for queue in vhost.queues:
        for part in queue.parts:
            part.counts = Counts()
    return count_queues(vhost)
