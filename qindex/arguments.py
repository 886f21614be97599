"""Arguments of the public methods: checked, and converted to what the core takes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any, Final, TypeAlias, TypeVar

from qindex._core import lib
from qindex.calls import join_headers

Buffer: TypeAlias = bytes | bytearray | memoryview
Seconds: TypeAlias = float | timedelta
Moment: TypeAlias = float | datetime  # seconds since 1970; a datetime without a zone is local time
T = TypeVar("T")

DELAY_MAX: Final = 1e9  # seconds, 31 years
DUE_MAX: Final = 1 << 35  # seconds since 1970, the year 3058
EXPIRES_MAX: Final = 1 << 43  # the same, the year 280,000
REQ_ID_MAX: Final = (1 << 64) - 1  # the core takes any 64 bits as a ReqId; it gives out fewer


def shown(value: object) -> str:
    """A value in the text of an error; a long one is cut."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python writes
        text = f"a {type(value).__name__} of thousands of digits"
    return text if len(text) <= 100 else f"{text[:97]}..."


def queue_name(name: object) -> str:
    """The name as it is; TypeError if it is none."""
    if not isinstance(name, str):
        raise TypeError(f"a queue's name is a str, not {type(name).__name__}")
    return name


def several(name: str, values: Iterable[T], of: str, one: str) -> list[T]:
    """The caller's values as a list of its own; TypeError if they are none. `one`: what takes one.

    Text and bytes are refused: each character or byte of them would be taken for a value.
    """
    if not isinstance(values, (str, bytes, bytearray, memoryview)):
        try:
            each = iter(values)
        except TypeError:
            pass
        else:
            return list(each)
    raise TypeError(f"{name} must be a list of {of}, not {shown(values)}; a single one: {one}")


def parts_of(public: str) -> Callable[[type[T]], type[T]]:
    """Errors about a call name the class that users know, not the part that has the method."""

    def rename(part: type[T]) -> type[T]:
        for name, value in vars(part).items():
            if isinstance(value, FunctionType):
                value.__qualname__ = f"{public}.{name}"
        return part

    return rename


def whole(name: str, value: int, low: int, high: int) -> int:
    """The value, if it is an int of that range; else raise TypeError or ValueError.

    True and False are ints to Python: in place of a count they are a mistake.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {shown(value)}")
    return value


def boolean(name: str, value: bool) -> bool:
    """The value, if it is True or False; else TypeError: "no" and 5 would count as True."""
    if value is not True and value is not False:
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return value


def array_of(name: str, code: str, values: Iterable[int]) -> array[int]:
    """The values as an array of uint32_t ("I") or uint64_t ("Q"); else TypeError or ValueError."""
    if isinstance(values, (list, tuple)) and bool in set(map(type, values)):
        raise TypeError(f"{name} must be whole numbers, not True or False")
    try:
        return array(code, values)
    except OverflowError:
        most = (1 << 8 * array(code).itemsize) - 1
        raise ValueError(f"{name} must be whole numbers from 0 to {most}") from None
    except TypeError as error:
        raise TypeError(f"{name} must be whole numbers: {error}") from None


def number(name: str, value: Any, what: str = "a number") -> float:
    """The value, if it can be compared with numbers; else, and if it is a bool, TypeError."""
    if not isinstance(value, bool):
        if isinstance(value, (int, float)):
            return value
        if hasattr(type(value), "__float__") or hasattr(type(value), "__index__"):
            return float(value)  # comparing a Decimal may raise errors of its own
    raise TypeError(f"{name} must be {what}, not {shown(value)}")


def seconds(name: str, value: Seconds) -> float:
    """A time span as a number; else TypeError."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return number(name, value, "a number of seconds or a timedelta")


def moment(name: str, value: Moment) -> float:
    """A point of time as seconds since 1970; else TypeError."""
    if isinstance(value, datetime):
        return value.timestamp()
    return number(name, value, "a number of seconds since 1970 or a datetime")


def to_expiry_us(now_us: Callable[[], int], ttl: Seconds | None, expires_at: Moment | None) -> int:
    """When a message expires, in microseconds since 1970; 0: never."""
    if ttl is not None:
        if expires_at is not None:
            raise ValueError(
                "give ttl (seconds from now) or expires_at (seconds since 1970), not both"
            )
        ttl = seconds("ttl", ttl)
        if not 0 <= ttl < EXPIRES_MAX / 2:
            raise ValueError(
                f"ttl must be seconds, from 0 to below {EXPIRES_MAX // 2}, not {shown(ttl)}"
            )
        expires_at = now_us() / 1_000_000 + ttl
    if expires_at is None:
        return 0
    expires_at = moment("expires_at", expires_at)
    if not 0 <= expires_at < EXPIRES_MAX:
        raise ValueError(
            f"expires_at must be seconds since 1970, from 0 to below {EXPIRES_MAX},"
            f" not {shown(expires_at)}"
        )
    return max(1, int(expires_at * 1_000_000))


def to_due_us(now_us: Callable[[], int], delay: Seconds | None, due: Moment | None) -> int:
    """Until when a message is delayed, in microseconds since 1970; 0: it is not delayed."""
    if delay is not None and due is not None:
        raise ValueError("give delay (seconds from now) or due (seconds since 1970), not both")
    if delay is not None:
        delay = seconds("delay", delay)
        if not 0 <= delay < DELAY_MAX:
            raise ValueError(
                f"delay must be seconds, from 0 to below {DELAY_MAX:.0f}, not {shown(delay)}"
            )
        return now_us() + int(delay * 1_000_000) if delay else 0
    if due is None:
        return 0
    due = moment("due", due)
    if not 0 <= due < DUE_MAX:
        raise ValueError(
            f"due must be seconds since 1970, from 0 to below {DUE_MAX}, not {shown(due)}"
        )
    return max(1, int(due * 1_000_000))


def to_span_us(name: str, span: Seconds | None) -> int:
    """A span of time in microseconds; 0: there is none."""
    if span is None:
        return 0
    span = seconds(name, span)
    if not 0 < span < DELAY_MAX:
        raise ValueError(
            f"{name} must be seconds, above 0 and below {DELAY_MAX:.0f}, not {shown(span)}"
        )
    return max(1, int(span * 1_000_000))


def to_lease_us(lease: Seconds | None) -> int:
    """A lease in microseconds; 0: there is none."""
    return to_span_us("lease", lease)


def priority_flags(priority: int) -> int:
    """The priority as the bits of the flags in which the core takes it."""
    return whole("priority", priority, 0, 255) << lib.QI_PRIORITY_SHIFT


def publish_flags(priority: int, *, awaited: bool) -> int:
    """Of a publish whose publisher waits for the sync, or does not."""
    return priority_flags(priority) | (lib.QI_AWAITED if awaited else 0)


def encode_headers(headers: Mapping[str, Any] | None) -> bytes:
    if not headers:
        return b""
    from qindex.field_table import encode_table

    return encode_table(headers)


def as_bytes(body: Buffer) -> bytes:
    """The body as bytes. Text is refused, with an error that says what to do."""
    if isinstance(body, str):  # type: ignore[unreachable]  # callers without a type checker
        raise TypeError("a body is bytes-like; encode text first, for example body.encode()")
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise TypeError(f"a body is bytes-like, not {type(body).__name__}") from None


def batch_headers(
    headers: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, count: int
) -> tuple[bytes, bytes | array[int] | None]:
    if not headers:
        return b"", None
    if isinstance(headers, Mapping):
        table = encode_headers(headers)
        return table * count, array("I", [len(table)] * count)
    each = several("headers", headers, "dicts", "a dict counts for all")
    return join_headers(one_each("headers", each, count), encode_headers)


def batch_flags(
    persistent: bool | Sequence[bool], redelivered: bool | Sequence[bool], count: int
) -> tuple[bytes | None, int]:
    transient = lib.QI_TRANSIENT
    again = lib.QI_REDELIVERED
    kept = _flags("persistent", persistent, count)
    seen = _flags("redelivered", redelivered, count)
    if isinstance(kept, bool) and isinstance(seen, bool):
        return None, (0 if kept else transient) | (again if seen else 0)
    pairs = zip(
        [kept] * count if isinstance(kept, bool) else kept,
        [seen] * count if isinstance(seen, bool) else seen,
        strict=True,
    )
    return bytes((0 if k else transient) | (again if r else 0) for k, r in pairs), 0


def _flags(name: str, values: bool | Sequence[bool], count: int) -> bool | list[bool]:
    """One value for all, or a list with one for each."""
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return [boolean(f"each of {name}", value) for value in one_each(name, values, count)]
    return boolean(name, values)


def one_each(name: str, values: Sequence[T], count: int, of: str = "bodies") -> list[T]:
    """A copy of the caller's sequence, which another thread might change, with `count` entries."""
    own = list(values)
    if len(own) != count:
        raise ValueError(f"{name} has {len(own)} entries for {count} {of}")
    return own
