"""What callers pass, checked and turned into what the core takes."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from qindex._core import lib

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")

DELAY_MAX: Final = 1e9  # seconds, 31 years
DUE_MAX: Final = 1 << 35  # seconds since 1970, a thousand years


def to_expiry_us(now_us: Callable[[], int], ttl: float | None, expires_at: float | None) -> int:
    """When a message expires, by the store's clock; 0: never."""
    if ttl is not None:
        if expires_at is not None:
            raise ValueError(
                "give ttl (seconds from now) or expires_at (seconds since 1970), not both"
            )
        if not ttl >= 0:
            raise ValueError(f"ttl must be 0 or more seconds, not {ttl!r}")
        expires_at = now_us() / 1_000_000 + ttl
    if expires_at is None:
        return 0
    if not 0 <= expires_at < 1 << 43:
        raise ValueError(f"expires_at must be seconds since 1970, not {expires_at!r}")
    return max(1, int(expires_at * 1_000_000))


def to_due_us(now_us: Callable[[], int], delay: float | None, due: float | None) -> int:
    """Until when a message is delayed, by the store's clock; 0: it is not."""
    if delay is None and due is None:
        return 0
    if delay is not None and due is not None:
        raise ValueError("give delay (seconds from now) or due (seconds since 1970), not both")
    if delay is not None:
        if not 0 <= delay < DELAY_MAX:
            raise ValueError(f"delay must be 0 or more seconds, not {delay!r}")
        return now_us() + int(delay * 1_000_000) if delay else 0
    if due is None or not 0 <= due < DUE_MAX:
        raise ValueError(f"due must be seconds since 1970, not {due!r}")
    return max(1, int(due * 1_000_000))


def to_lease_us(lease: float | None) -> int:
    """Microseconds; 0: no lease."""
    if lease is None:
        return 0
    if not 0 < lease < DELAY_MAX:
        raise ValueError(f"lease must be more than 0 seconds, not {lease!r}")
    return max(1, int(lease * 1_000_000))


def priority_flags(priority: int) -> int:
    """As the core takes it."""
    if not 0 <= operator.index(priority) <= 255:
        raise ValueError(f"priority must be 0 to 255, not {priority!r}")
    return priority << lib.QI_PRIORITY_SHIFT


def encode_headers(headers: Mapping[str, Any] | None) -> bytes:
    if not headers:
        return b""
    from qindex.formats.field_table import encode_table

    return encode_table(headers)


def as_bytes(body: Buffer) -> bytes:
    """The body as bytes; text is refused with advice."""
    if isinstance(body, str):  # type: ignore[unreachable]  # callers without a type checker
        raise TypeError("a body is bytes-like; encode text first, for example body.encode()")
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise TypeError(f"a body is bytes-like, not {type(body).__name__}") from None


def batch_headers(
    headers: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, count: int
) -> tuple[bytes, array[int] | None]:
    if not headers:
        return b"", None
    if isinstance(headers, Mapping):
        table = encode_headers(headers)
        return table * count, array("I", [len(table)] * count)
    tables = [encode_headers(one) for one in one_each("headers", headers, count)]
    return b"".join(tables), array("I", map(len, tables))


def batch_flags(
    persistent: bool | Sequence[bool], redelivered: bool | Sequence[bool], count: int
) -> tuple[bytes | None, int]:
    transient = lib.QI_TRANSIENT
    again = lib.QI_REDELIVERED
    if isinstance(persistent, Sequence) or isinstance(redelivered, Sequence):
        kept = persistent if isinstance(persistent, Sequence) else [persistent] * count
        seen = redelivered if isinstance(redelivered, Sequence) else [redelivered] * count
        pairs = zip(
            one_each("persistent", kept, count), one_each("redelivered", seen, count), strict=True
        )
        return bytes((0 if k else transient) | (again if r else 0) for k, r in pairs), 0
    return None, (0 if persistent else transient) | (again if redelivered else 0)


def one_each(name: str, values: Sequence[T], count: int, of: str = "bodies") -> list[T]:
    """What a sequence gives, in a list of its own: another thread may change the caller's."""
    own = list(values)
    if len(own) != count:
        raise ValueError(f"{name} has {len(own)} entries for {count} {of}")
    return own
