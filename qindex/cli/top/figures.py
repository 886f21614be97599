"""What `qindex top` and `qindex stats` both print as JSON."""

from __future__ import annotations

from typing import Any

from qindex.look.text import written_id
from qindex.look.watch import QueueLook, StoreLook
from qindex.moments import utc


def queue_as_json(queue: QueueLook) -> dict[str, Any]:
    """What `qindex top` and `qindex stats` both say of a queue."""
    return {
        "queue": queue.name,
        "messages": queue.messages,
        "ready": queue.ready,
        "unacked": queue.unacked,
        "delayed": queue.delayed,
        "dead": queue.dead,
        "next_due_at": None if queue.next_due is None else utc(queue.next_due),
        "oldest_req_id": written_id(queue.oldest_req_id),
        "oldest_seconds": queue.oldest_seconds,
        "oldest_is_older": queue.oldest_is_older,
        "segments": queue.segments,
        "disk_bytes": queue.disk_bytes,
        "error": queue.damage,
    }


def store_as_json(look: StoreLook) -> dict[str, Any]:
    """What `qindex top` and `qindex stats` both say of a store, without its queues."""
    return {
        "path": look.path,
        "seconds": look.seconds,
        "queue_count": look.stats.queues,
        "nameless_queues": look.nameless,
        "messages": sum(queue.messages for queue in look.queues),
        "message_files": look.message_files,
        "message_bytes": look.message_bytes,
        "disk_bytes": look.disk_bytes,
        "free_bytes": look.free_bytes,
        "writer_pid": look.writer,
        "damage": look.damage,
        "session": look.stats.session,
        "unclean_session": look.stats.unclean_session,
    }
