"""A queue that is stupid and right: what the engine is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from sortedcontainers import SortedDict, SortedSet


@dataclass
class Published:
    body: bytes
    headers: dict
    persistent: bool = True
    deliveries: int = 0
    old: bool = False  # lived through an unclean end


@dataclass
class ModelQueue:
    """Messages by ReqId; who is out; nothing else."""

    live: SortedDict = field(default_factory=SortedDict)
    out: SortedSet = field(default_factory=SortedSet)
    next_id: int = 0  # ids below may have been given

    def publish(self, req_ids, published) -> None:
        for req_id, message in zip(req_ids, published, strict=True):
            assert req_id >= self.next_id, "an id was given twice, or out of order"
            self.next_id = req_id + 1
            self.live[req_id] = message

    def ready(self) -> list[int]:
        return [req_id for req_id in self.live if req_id not in self.out]

    def get(self, count: int) -> list[int]:
        taken = self.ready()[:count]
        self.out.update(taken)
        for req_id in taken:
            self.live[req_id].deliveries += 1
        return taken

    def ack(self, req_ids) -> None:
        for req_id in req_ids:
            self.out.remove(req_id)
            del self.live[req_id]

    def nack(self, req_ids) -> None:
        self.out.difference_update(req_ids)

    def purge(self) -> int:
        ready = self.ready()
        for req_id in ready:
            del self.live[req_id]
        return len(ready)

    def reopen(self, clean: bool) -> None:
        self.out.clear()
        if clean:
            return
        for req_id, message in list(self.live.items()):
            message.old = True
            if not message.persistent:
                del self.live[req_id]
