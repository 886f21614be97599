"""The state of a message, from what the core or a dead broker's files say of it."""

from __future__ import annotations

from typing import Any

from qindex._core import ffi, lib
from qindex.buffers import REASONS
from qindex.look.at_time import now_us
from qindex.look.messages import Found


def found_of(name: str, raw: Any, payload: Any, at_time: float | None) -> Found:
    """A message of a store as qi_browse gave it.

    `redelivered` alone does not make it unacked: each message that lived through an unclean end
    says so, also one that nobody ever got, and one that was given back without a count.
    """
    table_size, flags, expiry_us = raw.payload_size - raw.body_size, raw.flags, raw.expiry_us
    delivered, delayed = bool(flags & lib.QI_DELIVERED), bool(flags & lib.QI_DELAYED)
    dead = REASONS[raw.dead] if raw.dead < len(REASONS) else None
    return Found(
        name,
        raw.req_id,
        "dead" if dead else state_of(expiry_us, at_time, delivered, delayed=delayed),
        bool(flags & lib.QI_REDELIVERED),
        raw.delivery_count,
        not flags & lib.QI_TRANSIENT,
        expiry_us,
        ffi.unpack(payload, table_size) if table_size else b"",
        ffi.unpack(payload + table_size, raw.body_size) if raw.body_size else b"",
        priority=raw.priority or None,
        due_us=raw.due_us,
        published_us=raw.published_us,
        dead=dead,
        died=bool(flags & lib.QI_DIED),
    )


def state_of(
    expiry_us: int, at_time: float | None, delivered: bool, *, delayed: bool = False
) -> str:
    """`delivered`: it was handed out; of a dead broker, it may have been: files say no more."""
    if expiry_us and expiry_us <= now_us(at_time):
        return "expired"
    return "delayed" if delayed else "unacked" if delivered else "ready"
