"""What qindex._calls has, typed. The texts of the verbs are in c_ext/python/calls.c."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from qindex.arguments import Buffer
from qindex.message import Details, Message

def to_req_ids(messages: Iterable[Message | int]) -> bytes: ...
def join_bodies(bodies: Iterable[Buffer]) -> tuple[bytes, bytes]: ...
def new_message_type() -> Any: ...

class MessageFields:
    def __new__(cls, req_id: int, body: bytes, details: Details, due_us: int = 0) -> Self: ...
    @property
    def req_id(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def _details(self) -> Details: ...
    @property
    def _due_us(self) -> int: ...

class QueueCalls:
    _leased: bool  # somebody took a message with a lease
    def _attach(
        self, address: int, message_type: type[Message], plain: Details, confirm_all: bool
    ) -> None: ...
    def _plain_messages(
        self, count: int, req_ids: int, sizes: int, payload: int
    ) -> list[Message]: ...
    def publish(
        self,
        body: Buffer,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl: float | None = None,
        expires_at: float | None = None,
        redelivered: bool = False,
        priority: int = 0,
        delay: float | None = None,
        due: float | None = None,
        confirm: bool = False,
    ) -> int: ...
    def get(self, *, timeout: float | None = 0, lease: float | None = None) -> Message | None: ...
    def ack(self, message: Message | int, /) -> None: ...
