"""The settings of a queue: their limits, how the core takes them, and how they are stored.

In a store of format 2 they are an entry of the queue's own in the commit log, below a key that
users cannot name: a field table with what is not as usual (FORMAT.rst, "Commit logs").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from qindex._core import ffi
from qindex.arguments import DELAY_MAX, Seconds, seconds, shown, to_lease_us, to_span_us, whole
from qindex.errors import NewerFormat, StoreCorrupt
from qindex.names import is_unicode

Overflow: TypeAlias = Literal["reject", "drop-head", "dead-letter"]  # in the order of QI_REJECT ...
_OVERFLOWS: Final[tuple[Overflow, ...]] = get_args(Overflow)
_COUNT_MAX: Final = 1 << 62
_NAME_MAX: Final = 65535
_DELIVERIES_MAX: Final = 65535
_TIMES: Final = frozenset(("ttl", "lease", "expires"))  # seconds here, microseconds stored


def to_core(
    ttl: Seconds | None,
    max_messages: int | None,
    max_bytes: int | None,
    overflow: Overflow | None,
    max_deliveries: int | None,
    dead_letters: bool | str | None,
    lease: Seconds | None,
    expires: Seconds | None = None,
) -> Any:
    """The core's struct (qi_rules *). ValueError and TypeError: a rule is wrong."""
    rules = ffi.new("qi_rules *")
    if ttl is not None:
        ttl = seconds("ttl", ttl)
        if not 0 < ttl < DELAY_MAX:
            raise ValueError(
                f"ttl must be seconds, above 0 and below {DELAY_MAX:.0f}, not {shown(ttl)}"
            )
        rules.ttl_us = max(1, int(ttl * 1_000_000))
    if max_messages is not None:
        rules.max_messages = whole("max_messages", max_messages, 1, _COUNT_MAX)
    if max_bytes is not None:
        rules.max_bytes = whole("max_bytes", max_bytes, 1, _COUNT_MAX)
    if max_deliveries is not None:
        rules.max_deliveries = whole("max_deliveries", max_deliveries, 1, _DELIVERIES_MAX)
    if dead_letters is not None:
        rules.dead_letters = _keeps(dead_letters)
    rules.lease_us = to_lease_us(lease)
    to_span_us("expires", expires)  # the core does not know it
    if overflow is not None:
        if overflow not in _OVERFLOWS:
            raise ValueError(
                f"overflow must be one of {', '.join(_OVERFLOWS)}, not {shown(overflow)}"
            )
        if overflow != "reject" and max_messages is None and max_bytes is None:
            raise ValueError(
                f"overflow={overflow!r} needs a limit beside it: max_messages or max_bytes"
            )
        if overflow == "dead-letter" and not dead_letters:
            raise ValueError(
                "overflow='dead-letter' needs dead_letters beside it: True, or the name of a queue"
            )
        rules.overflow = _OVERFLOWS.index(overflow)
    return rules


def _keeps(dead_letters: bool | str) -> bool:
    if isinstance(dead_letters, str):
        size = len(dead_letters.encode("utf-8", "surrogatepass"))
        if not 0 < size <= _NAME_MAX:
            raise ValueError(f"dead_letters is a name of 1 to {_NAME_MAX} bytes, not of {size}")
        return True
    if not isinstance(dead_letters, bool):
        raise TypeError(
            f"dead_letters must be a bool, or the name of a queue, not {shown(dead_letters)}"
        )
    return dead_letters


class Changes(TypedDict, total=False):
    """What configure() takes: None takes a setting back."""

    ttl: Seconds | None
    max_messages: int | None
    max_bytes: int | None
    overflow: Overflow | None
    max_deliveries: int | None
    dead_letters: bool | str | None
    lease: Seconds | None
    expires: Seconds | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a queue does by itself; Store.queue() says what each means.

    `ttl`, `lease` and `expires` are in seconds. None: there is no such limit. `dead_letters` is a
    bool, or the name of the queue that they move to.
    """

    ttl: float | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = "reject"
    max_deliveries: int | None = None
    dead_letters: bool | str = False
    lease: float | None = None
    expires: float | None = None

    def _changed(self, changes: Changes) -> Settings:
        """With these changes, checked; times in whole microseconds, as they are stored."""
        unknown = changes.keys() - vars(self)
        if unknown:
            raise TypeError(
                f"a queue has no setting {min(unknown)!r}; there are {', '.join(vars(self))}"
            )
        values: dict[str, Any] = vars(self) | changes
        rules = to_core(**values)
        times = {"ttl": rules.ttl_us, "lease": rules.lease_us}
        times["expires"] = to_span_us("expires", values["expires"])
        for key, us in times.items():
            values[key] = us / 1_000_000 if us else None
        values["overflow"] = values["overflow"] or "reject"
        values["dead_letters"] = values["dead_letters"] or False
        return Settings(**values)

    @property
    def _dead_to(self) -> str | None:
        """The queue that dead letters move to."""
        return self.dead_letters if isinstance(self.dead_letters, str) else None

    def _to_core(self) -> Any:
        return to_core(**vars(self))

    def _to_stored(self) -> bytes:
        from qindex.field_table import encode_table

        values = {key: value for key, value in vars(self).items() if value != _USUAL[key]}
        for key in _TIMES & values.keys():
            values[key] = round(values[key] * 1_000_000)
        if (to := self._dead_to) is not None and not is_unicode(to):
            values["dead_letters"] = to.encode("utf-8", "surrogatepass")
        return encode_table(values)


_USUAL: Final = vars(Settings())


def from_stored(table: bytes, name: str) -> Settings:
    """The settings of the queue of this name. StoreCorrupt and NewerFormat: they are not ours."""
    from qindex.field_table import decode_table

    try:
        values: dict[str, Any] = dict(decode_table(table))
    except ValueError as error:
        raise StoreCorrupt(f"the settings of queue {name!r} are damaged: {error}") from None
    newer = f"queue {name!r} has settings that only a newer version of qindex understands"
    for key in _TIMES & values.keys():
        if isinstance(values[key], int):
            values[key] /= 1_000_000
    try:
        if isinstance(to := values.get("dead_letters"), bytes):  # a name that is no Unicode
            values["dead_letters"] = to.decode("utf-8", "surrogatepass")
        return Settings()._changed(values)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise NewerFormat(f"{newer} ({error}): use a newer release") from None
