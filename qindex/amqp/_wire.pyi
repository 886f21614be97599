from collections.abc import Callable, Iterator
from typing import Any, final

@final
class Publishes:
    @property
    def groups(self) -> list[tuple[int, bytes, bool, int, bytes | None, int]]: ...
    @property
    def order(self) -> bytes: ...
    def __len__(self) -> int: ...
    def contents(self) -> list[tuple[int, bytes, bytes]]: ...
    def gather(
        self, wanted: list[tuple[bytes, int] | None], /
    ) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...

class Scanner:
    frame_max: int
    body_max: int
    def __init__(
        self,
        frame_max: int,
        make_frame: Callable[[int, int, bytes], Any],
        on_bad: Callable[[int, bytes, int, int, int], object],
        /,
    ) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def open(self, channel: int, is_open: bool, /) -> None: ...
    def frames(self, data: bytes, /) -> Scanner: ...

def deliver(
    channel: int,
    consumer_tag: str,
    tag: int,
    redelivered: bool,
    exchange: str,
    key: str,
    properties: bytes,
    body: bytes,
    /,
) -> bytes | None: ...
