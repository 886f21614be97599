"""Steps and states of a replay, for people and as JSON."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Any, Final

from qindex.brokers.rabbitmq.log import RabbitMQLog
from qindex.deaths import read_deaths
from qindex.look.messages import body_as_json
from qindex.look.screen import Screen
from qindex.look.sources import Source
from qindex.look.text import count, printable, size, written_id
from qindex.moments import utc
from qindex.native.commits import places_of
from qindex.native.frames import (
    DEATHS,
    DIED,
    LEASE,
    Fields,
    fields_of,
    manifest_of,
    mark_of,
    session_of,
)
from qindex.native.log import NativeLog
from qindex.native.replay import Live, Publish, Record, Replay, publishes
from qindex.native.times import REASONS, time_text

_DIED: Final = Struct(">QQQ")
COLUMNS: Final = ["<ReqId", "<state", ">deliveries", "<kind", ">size", "<published", "<payload"]
MESSAGES_MAX: Final = 20
HEAD_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Shown:
    """What is replayed."""

    source: Source
    queue: str
    log: NativeLog | RabbitMQLog

    def text(self, record: Record) -> str:
        """What a record says, behind its verb and ReqId."""
        if record.verb == "publish":
            fields = fields_of(record.data)
            kind = "transient" if record.transient else "persistent"
            expiry = f", expires at {fields.expiry_us / 1e6:.6f}" if fields.expiry_us else ""
            place = "embedded" if fields.embedded else f"MsgId {fields.msg_id.hex()}"
            us = record.published_us
            when = f", published at {utc(us / 1e6)}" if us else ""
            return f"{kind}, body of {size(fields.size)}, {place}{expiry}{when}"
        if record.verb == "purge":
            purge = self.log.purge_of(record)
            kept = f", but for {count(len(purge.kept), 'message')}" if purge.kept else ""
            return f"acks what is below {purge.below}{kept}"
        if record.verb == "time" and len(record.data) == 8:
            word = int.from_bytes(record.data, "big")
            return time_text(word & (1 << 56) - 1, word >> 56)
        if record.verb == "side":
            side, value = int.from_bytes(record.data[:2], "big"), record.data[6:]
            return _side_text(side, value)
        if record.verb == "lanes":
            return f"where {count(len(record.data) // 10, 'more lane')} go on"
        if record.verb in ("mark", "close") and len(record.data) >= 8:
            return f"durable below byte {mark_of(record.data)}"
        if record.verb == "session" and (session := session_of(record.data)):
            return f"session {session[0]}, floor {session[1]}"
        if record.verb == "manifest" and (manifest := manifest_of(record.data)):
            named = count(len(manifest.segments), "segment")
            return f"epoch {manifest.flushed_epoch} is flushed, {named}"
        return ""

    def as_json(self, record: Record | None) -> dict[str, Any] | None:
        if record is None:
            return None
        return {
            "file": self.log.file_of(record),
            "offset": record.offset,
            "verb": record.verb,
            "req_id": written_id(record.req_id if record.req_id >= 0 else None),
            "text": self.text(record),
        }

    def tell_findings(self, screen: Screen) -> int:
        """Damage that was met on the way, on stderr; the exit code that follows."""
        places = places_of(self.log.folder)
        found = [f for f in self.log.findings.kept if f.where.startswith(places)]
        for finding in found:
            screen.error(str(finding))
        return 1 if any(finding.severity != "note" for finding in found) else 0


def show_steps(screen: Screen, shown: Shown, replay: Replay, options: argparse.Namespace) -> None:
    first, last = options.first or 0, options.last
    if first > 0 and not replay.go_to(first - 1):
        return
    if first <= 0:
        _show_step(screen, shown, replay, options.json)
    while last is None or replay.number < last:
        if replay.forward() is None:
            return
        _show_step(screen, shown, replay, options.json)


def _show_step(screen: Screen, shown: Shown, replay: Replay, as_json: bool) -> None:
    record, live = replay.record, replay.state.live
    if as_json:
        line = {"step": replay.number, **(shown.as_json(record) or {}), "live": live}
        screen.json(line, indent=None)
    else:
        screen.line(step_line(shown, replay))


def step_line(shown: Shown, replay: Replay) -> str:
    """One line: the step, its record, and how many messages are live behind it."""
    record = replay.record
    live = f"{replay.state.live:>9,} live"
    if record is None:
        segments = count(len(shown.log.segments), "segment")
        return f"{0:>10}  {live}  {'':<8} {'':>12}  {segments}"
    req_id = "" if record.req_id < 0 else str(record.req_id)
    place = f"({shown.log.file_of(record).rpartition('/')[2]} at {record.offset})"
    text = f"{shown.text(record)} {place}".lstrip()
    return f"{replay.number:>10}  {live}  {record.verb:<8} {req_id:>12}  {text}"


# --- a state ------------------------------------------------------------------------------------


def show_state(screen: Screen, shown: Shown, replay: Replay, options: argparse.Namespace) -> None:
    limit = options.n or MESSAGES_MAX
    if not options.messages:
        limit = 0
    elif options.json and not options.n:
        limit = replay.state.live
    counts = {"ready": 0, "unacked": 0, "transient": 0}
    for message in replay.state.messages():
        counts["unacked" if message.delivered else "ready"] += 1
        counts["transient"] += message.transient
    rows = [_as_json(*told) for told in islice(publishes(replay), limit)] if limit else []
    if options.json:
        value = {
            "queue": shown.queue,
            "step": replay.number,
            "record": shown.as_json(replay.record),
            "live": replay.state.live,
            **counts,
            "orphans": replay.state.orphans,
        }
        screen.json({**value, "message_list": rows} if options.messages else value)
        return
    screen.heading(f"queue {printable(shown.queue)} behind step {replay.number:,}")
    screen.line(step_line(shown, replay))
    screen.pairs(
        [
            ("live", count(replay.state.live, "message")),
            ("ready", f"{counts['ready']:,}"),
            ("unacked", f"{counts['unacked']:,}"),
            ("transient", f"{counts['transient']:,}"),
        ]
    )
    if rows:
        screen.line()
        screen.table(COLUMNS, [_row(row) for row in rows])
        if (more := replay.state.live - len(rows)) > 0:
            screen.line(f"  and {count(more, 'more message')}: see -n")


def _as_json(message: Live, publish: Publish | None) -> dict[str, Any]:
    fields = publish.fields if publish else Fields(b"", 0, 0, 0)
    where = "not found"
    if publish is not None:
        where = f"step {publish.step}" if publish.step else "in a segment"
    embedded = publish.embedded if publish else b""
    published_us = publish.published_us if publish else 0
    return {
        "req_id": written_id(message.req_id),
        "state": "unacked" if message.delivered else "ready",
        "delivery_count": message.deliveries,
        "persistent": not message.transient,
        "expires_at": utc(fields.expiry_us / 1e6) if fields.expiry_us else None,
        "published_at": utc(published_us / 1e6) if published_us else None,
        "body_bytes": fields.size,
        "published_by": where,
        "msg_id": None if embedded or not any(fields.msg_id) else fields.msg_id.hex(),
        **(body_as_json(embedded[len(embedded) - fields.size :]) if embedded else {}),
    }


def _side_text(kind: int, value: bytes) -> str:
    if kind == LEASE:
        return f"lease {int.from_bytes(value, 'big')} us"
    if (why := REASONS.get(kind - DIED)) and len(value) == _DIED.size:
        times, first, last = _DIED.unpack(value)
        return (
            f"died {count(times, 'time')}: {why}; first {utc(first / 1e6)}, last {utc(last / 1e6)}"
        )
    if kind == DEATHS:
        deaths = [f"{d.queue}: {d.why}, {count(d.times, 'time')}" for d in read_deaths(value)]
        return f"died before in {'; '.join(deaths)}"
    return f"{len(value)} bytes of kind {kind}"


def _row(row: dict[str, Any]) -> list[str]:
    body = row.get("body", row.get("body_base64", ""))[:HEAD_BYTES]
    payload = f"MsgId {row['msg_id']}" if row["msg_id"] else printable(body)
    kind = "persistent" if row["persistent"] else "transient"
    return [
        row["req_id"],
        row["state"],
        str(row["delivery_count"]),
        kind,
        size(row["body_bytes"]),
        row["published_by"],
        payload,
    ]
