"""qindex replay --out: the live messages of a past state, published into a store.

Embedded payloads stand in the records. Bodies in the message store are there as long as their file
is: of messages that were acked later they may be gone, which is counted and told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import qindex
from qindex.apart import refuse_inside
from qindex.brokers.recover import batches
from qindex.brokers.storable import Changes
from qindex.cli.put import put, size_of
from qindex.cli.replay.show import Shown
from qindex.cli.salvage.kept import format_to_make
from qindex.look.messages import Found
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import StoreSource
from qindex.look.stores import stopped
from qindex.look.text import count, printable
from qindex.native.frames import priority_of
from qindex.native.log import NativeLog
from qindex.native.messages import MessageFiles, read_msg_id
from qindex.native.replay import Live, Publish, Replay, publishes

NOT_CARRIED_OVER: Final = (
    "All of them are ready there, also what was delayed or a dead letter then; leases of their own,"
    " published_at and deaths are not carried over."
)


def put_into(screen: Screen, shown: Shown, replay: Replay, path: str, *, as_json: bool) -> int:
    """The exit code: 1 if the payload of a message could not be had."""
    source = shown.source
    if not (isinstance(shown.log, NativeLog) and isinstance(source, StoreSource)):
        raise CommandError("--out reads a store; for RabbitMQ: qindex recover DIR --out STORE")
    refuse_inside(path, source.root)
    form = format_to_make(source.root, source.store, path)  # format 1 counts each delivery
    with (
        qindex.open(path, expire=False, format=form) as target,
        screen.progress("publishing", "messages") as progress,
    ):
        if shown.queue in target:
            raise CommandError(f"{path!r} has a queue {printable(shown.queue)!r}: choose another")
        before = target.queues()
        queue = target.queue(shown.queue)
        files = MessageFiles(shown.log.tree)
        done, changes = 0, Changes()
        try:
            for batch in batches(_found(shown.queue, files, replay), size_of):
                done += len(put(queue, batch, changes))
                progress.at(done, replay.state.live)
            target.sync()
        except (qindex.DiskFull, KeyboardInterrupt) as error:
            raise stopped(error, path, before) from None
        lost = replay.state.live - done
    if as_json:
        told = {"step": replay.number, "out": path, "messages": done, "lost": lost}
        screen.json(told, indent=None)
        return 1 if lost else 0
    gone = f"; the payloads of {count(lost, 'message')} are gone" if lost else ""
    screen.line(f"{count(done, 'message')} of step {replay.number:,} put into {path}{gone}")
    screen.line(NOT_CARRIED_OVER)
    for kind, number in changes.kinds.items():
        screen.error(f"{count(number, 'message')}: {kind}")
    return 1 if lost or changes.kinds else 0


def _found(name: str, files: MessageFiles, replay: Replay) -> Iterator[Found]:
    """Without those whose payload cannot be had."""
    for message, publish in publishes(replay):
        payload = None if publish is None else _payload(files, publish)
        if publish is not None and payload is not None:
            yield _as_found(name, message, publish, payload)


def _as_found(name: str, message: Live, publish: Publish, payload: bytes) -> Found:
    table_bytes = max(0, len(payload) - publish.fields.size)
    return Found(
        name,
        message.req_id,
        "unacked" if message.delivered else "ready",
        message.redelivered,
        message.deliveries,
        not message.transient,
        publish.fields.expiry_us,
        payload[:table_bytes],
        payload[table_bytes:],
        priority=priority_of(message.req_id),
        published_us=publish.published_us,
    )


def _payload(files: MessageFiles, publish: Publish) -> bytes | None:
    msg_id = publish.fields.msg_id
    if not any(msg_id):
        return publish.embedded
    place = files.locate(msg_id)
    if place is None or files.state(msg_id, *place) != "sound":
        return None
    source = files.tree.kept_open(place[0])
    return None if source is None else source.read(place[1] + 24, read_msg_id(msg_id).length)
