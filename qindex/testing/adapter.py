"""An Adapter is what the harness needs to know of a queue. You write it for yours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from qindex.testing.disk import DiskRules
from qindex.testing.model import Id
from qindex.testing.promise import Promise


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that get() returns with more than its body.

    `token` is what ack() and nack() take. `id` is what publish() returned for this message.
    """

    body: bytes
    token: Any = None
    id: Id | None = None
    redelivered: bool | None = None


class Adapter(ABC):
    """One queue, opened by one process. Subclass it with what your queue can do.

    open(), publish(), get() and close() are needed; leave out what the queue does not have. Without
    ack(), get() takes a message for good. Let exceptions through: the harness reports them.
    """

    promise: ClassVar[Promise] = Promise()
    disk: ClassVar[DiskRules] = DiskRules()
    seconds: ClassVar[float] = 20.0  # a call that takes longer has hung

    @abstractmethod
    def open(self, directory: str) -> None:
        """Open the queue in this directory, which exists; create it at the first time.

        What a user must do after a crash (give locked messages back, say) belongs here too.
        """

    @abstractmethod
    def publish(self, body: bytes) -> Id | None:
        """Publish; return the message's id if the queue has such a thing."""

    @abstractmethod
    def get(self) -> Delivery | bytes | None:
        """Take the next message; None if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Close the queue as its users are told to."""

    def publish_many(self, bodies: Sequence[bytes]) -> Sequence[Id | None]:
        """Publish a batch; return an id, or None, for each message."""
        raise NotImplementedError

    def ack(self, token: Any) -> None:
        """Settle a delivered message."""
        raise NotImplementedError

    def nack(self, token: Any) -> None:
        """Give a delivered message back."""
        raise NotImplementedError

    def sync(self) -> None:
        """Return when everything so far survives what the promise says of `synced`."""
        raise NotImplementedError

    def count(self) -> int:
        """How many messages there are, ready and delivered together."""
        raise NotImplementedError

    @classmethod
    def can(cls, verb: str) -> bool:
        """True if the subclass has this method."""
        return getattr(cls, verb) is not getattr(Adapter, verb)


Answer = Any  # what JSON can say: None, bool, int, str, lists, dicts


class Stand:
    """An adapter's instance and the tokens it gave out: one life of a queue.

    Verbs come and answers go as what JSON can say, bodies as latin-1 text, so that the queue may
    live in another process.
    """

    def __init__(self, adapter: type[Adapter], prepare: Callable[[Adapter], None] | None = None):
        self.queue = adapter()
        if prepare is not None:
            prepare(self.queue)
        self.tokens: dict[int, Any] = {}
        self.given = 0

    def call(self, verb: str, *arguments: Any) -> Answer:
        """One call of the adapter; exceptions go through."""
        queue = self.queue
        match verb, *arguments:
            case "open", str(directory):
                queue.open(directory)
            case "publish", str(body):
                return queue.publish(body.encode("latin-1"))
            case "publish_many", list(bodies):
                return list(queue.publish_many([body.encode("latin-1") for body in bodies]))
            case "get", *_:
                return self._get()
            case "ack" | "nack", int(number):
                getattr(queue, verb)(self.tokens[number])
            case "count", *_:
                return queue.count()
            case "sync" | "close", *_:
                getattr(queue, verb)()
            case "drain", int(limit):
                return self._drain(limit)
            case _:
                raise ValueError(f"no verb {verb!r} with {arguments!r}")
        return None

    def _get(self) -> Answer:
        got = self.queue.get()
        if got is None:
            return None
        delivery = got if isinstance(got, Delivery) else Delivery(got)
        self.given += 1
        self.tokens[self.given] = delivery.token
        return {
            "body": delivery.body.decode("latin-1"),
            "number": self.given,
            "id": delivery.id,
            "redelivered": delivery.redelivered,
        }

    def _drain(self, limit: int) -> Answer:
        """Everything that get() gives, in order, and never more than `limit`."""
        answers: list[Answer] = []
        while len(answers) < limit and (answer := self._get()) is not None:
            answers.append(answer)
        return answers
