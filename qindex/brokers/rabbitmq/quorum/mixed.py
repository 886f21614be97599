"""Messages that came back in an order that the log does not tell, and what follows from that.

Where one command gives back more than 32 messages, or one process had more than 32 consumers, the
order in which the messages wait again is that of a map of the node's Erlang. One order is assumed.
If the node had another, each place behind that command is still the same, but other messages of the
group stand in the places: a later ack may have taken another message than is assumed here, and the
delivery counts may be swapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qindex.brokers.rabbitmq.quorum.held import NEVER, Held


@dataclass(slots=True)
class Group:
    """Messages of which each may stand in the place of each other one."""

    members: set[int]  # indexes, also of those that have left
    spread: int = 0  # the count of the message in a place is off by at most so many
    expiry_ms: int = NEVER  # from when on it matters which message stands where
    sizes_differ: bool = False


@dataclass(slots=True)
class Unsure:
    """What is not known of a queue's live messages.

    Unless it is loose, as many messages are live as is assumed.
    """

    loose: bool = False  # a limit may have dropped other messages, and everything behind differs
    others: int = 0  # live messages that may be gone, with as many others live in their place
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)  # least, most; by index


@dataclass(slots=True)
class Mixed:
    """All groups of one queue. `loose`: what was assumed decided what became of a message."""

    groups: dict[int, Group] = field(default_factory=dict)  # by the index of each member
    count: int = 0  # messages that came back in such an order, each time that they did
    loose: bool = False

    def mix(self, messages: Iterable[Held]) -> None:
        """These came back at once. Groups that they were in become one."""
        found = list(messages)
        self.count += len(found)
        if len(found) < 2:
            return
        counts = [message.deliveries or 0 for message in found]
        expiries = {message.expiry_ms for message in found}
        old = list({id(g): g for m in found if (g := self.groups.get(m.index))}.values())
        group = Group(
            {message.index for message in found}.union(*(each.members for each in old)),
            max(counts) - min(counts) + max((each.spread for each in old), default=0),
            sizes_differ=len({message.size for message in found}) > 1
            or any(each.sizes_differ for each in old),
        )
        moments = [each.expiry_ms for each in old]
        if len(expiries) > 1:
            moments += expiries
        group.expiry_ms = min(filter(None, moments), default=NEVER)
        for index in group.members:
            self.groups[index] = group

    def move(self, old: int, new: int) -> None:
        """A message has another index from here on."""
        group = self.groups.get(old)
        if group is not None:
            group.members.add(new)
            group.members.discard(old)
            self.groups[new] = self.groups.pop(old)

    def check_limit(self, message: Held, tries: int, limit: int) -> None:
        """The message was tried so often; another one in its place may have more tries or less."""
        group = self.groups.get(message.index)
        if group is not None and tries - group.spread <= limit < tries + group.spread:
            self.loose = True

    def end(self, live: Mapping[int, int], now_ms: int, *, by_bytes: bool) -> Unsure:
        """What is not known in the end. `live` has the delivery counts of live messages by index.

        `by_bytes`: the queue drops messages for their size.
        """
        unsure = Unsure(self.loose)
        for group in {id(each): each for each in self.groups.values()}.values():
            if NEVER < group.expiry_ms <= now_ms or (by_bytes and group.sizes_differ):
                unsure.loose = True
            here = [index for index in group.members if index in live]
            if not here:
                continue
            unsure.others += min(len(here), len(group.members) - len(here))
            least = max(1, min(live[index] for index in here) - group.spread)
            most = max(live[index] for index in here) + group.spread
            if least != most:
                unsure.counts.update((index, (least, most)) for index in here)
        return unsure
