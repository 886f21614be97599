"""The words of JSON: every key that a command prints with --json, and what it means everywhere.

A key means the same in all commands. A moment is text in UTC (2026-11-23T05:00:00Z), and its key
ends in `_at` or is `as_of`; a span of time is a number of seconds, and its key ends in `seconds`; a
number of bytes ends in `bytes`. A key that has no value is null. docs/commands/json.rst shows this
table, and the tests hold every command to it.
"""

from __future__ import annotations

from typing import Any, Final

INT, FLOAT, BOOL, TEXT, TIME, LIST, OBJECT = (
    "whole number",
    "number",
    "yes or no",
    "text",
    "moment",
    "list",
    "object",
)
OPEN: Final = "names and values"  # an object whose names come from what was read
OPEN_LIST: Final = f"list of {OPEN}"

KEYS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Where": {
        "path": (TEXT, "the directory that was read, as it was given"),
        "paths": (LIST, "several of them"),
        "out": (TEXT, "what was written: --out, or the broker that was published to"),
        "report": (TEXT, "the page or text file with the report"),
        "kept_in": (TEXT, "the folder that was left behind, to look at"),
        "directory": (TEXT, "a directory in what was read"),
        "file": (TEXT, "a file in what was read"),
        "offset": (INT, "the byte in it"),
        "format": (f"{TEXT}, {INT}", "rabbitmq, nsq, gmq, beanstalkd; of a store 1 or 2"),
        "broker": (TEXT, "the name of a broker in a fleet"),
        "node": (TEXT, "the name of a dead broker's node"),
        "version": (TEXT, "the broker's version"),
        "a": (TEXT, "diff: the first directory"),
        "b": (TEXT, "diff: the second"),
    },
    "A queue": {
        "queue": (TEXT, "its name"),
        "queues": (LIST, "one object for each queue"),
        "queue_count": (INT, "how many there are"),
        "target_queue": (TEXT, "its name in what was written"),
        "nameless_queues": (INT, "queues whose name is damaged"),
        "not_read": (f"{LIST}, {OBJECT}", "queues that qindex cannot read"),
        "unknown": (BOOL, "not read: its type is not known"),
        "elsewhere": (BOOL, "not read: it is on other nodes"),
        "group": (TEXT, "the virtual host, or whatever the broker groups its queues by"),
        "vhost": (TEXT, "the virtual host"),
        "vhosts": (LIST, "one object for each virtual host"),
        "vhost_count": (INT, "how many there are"),
        "vhost_names": (LIST, "their names"),
        "vhost_directory": (TEXT, "write-rabbitmq: the directory to copy"),
        "durable": (BOOL, "the broker keeps it when it starts again"),
        "arguments": (OPEN, "what it was declared with"),
        "next_req_id": (TEXT, "the ReqId that the next message gets"),
        "oldest_req_id": (TEXT, "the first message that is no dead letter"),
        "oldest_seconds": (FLOAT, "the age of that message"),
        "oldest_is_older": (BOOL, "it is older than that: nothing says since when"),
        "next_due_at": (TIME, "when the next delayed message is due"),
        "rates": (OBJECT, "top: published, delivered, acked, each a second"),
    },
    "How many messages": {
        "messages": (INT, "live ones, or as many as the command dealt with"),
        "live": (INT, "neither acked nor lost"),
        "found": (INT, "in the files: live + gone + lost"),
        "gone": (INT, "acked, or not meant to last"),
        "gone_by": (OPEN, "why, and how many"),
        "lost": (INT, "they cannot be had any more"),
        "lost_by": (OPEN, "why, and how many"),
        "lost_is_known": (BOOL, "false: `lost` is an estimate, see the findings"),
        "marks": (OPEN, "what else is known of live ones, and of how many"),
        "ready": (INT, "in the state ready"),
        "unacked": (INT, "delivered and not acked"),
        "delayed": (INT, "not due yet"),
        "dead": (f"{INT}, {TEXT}", "dead letters; of one message: why it is one"),
        "expired": (INT, "past their time"),
        "published": (f"{INT}, {FLOAT}, {LIST}", "publish records; of rates: a second"),
        "delivered": (f"{INT}, {FLOAT}, {LIST}", "deliver records; of rates: a second"),
        "acked": (f"{INT}, {FLOAT}, {LIST}", "ack records; of rates: a second"),
        "transient": (INT, "not meant to outlive the broker"),
        "redelivered": (f"{INT}, {BOOL}", "they may have been delivered before"),
        "missing": (INT, "their bodies are in no file"),
        "unreadable": (INT, "damaged"),
        "unstorable": (INT, "no store takes them"),
        "unroutable": (INT, "the broker has no queue for them"),
        "stored": (INT, "their bodies are in a message store"),
        "embedded": (INT, "their bodies are in the index"),
        "waiting": (INT, "demo: live when the store was opened again"),
        "left": (INT, "demo: live when all should be acked"),
        "depth": (LIST, "plot: messages in the queue, point by point"),
    },
    "One message": {
        "req_id": (TEXT, "its number in the queue"),
        "req_ids": (LIST, "the first of several"),
        "other_req_id": (TEXT, "diff: that of its partner in B"),
        "msg_id": (TEXT, "where its body is stored"),
        "priority": (INT, "its priority; of a queue the highest that was met"),
        "state": (TEXT, "ready, delayed, unacked, expired or dead"),
        "delivery_count": (INT, "how often it was delivered"),
        "persistent": (BOOL, "it is to outlive the broker"),
        "due_at": (TIME, "until when it is, or was, delayed"),
        "expires_at": (TIME, "when it stops being delivered"),
        "published_at": (TIME, "when it was published, if that is known"),
        "headers": (OPEN, "as published"),
        "properties": (OPEN, "the AMQP properties, decoded"),
        "body": (TEXT, "if it is UTF-8"),
        "body_base64": (TEXT, "else"),
        "message_list": (LIST, "replay --messages: one object for each live message"),
        "place": (INT, "replay: its place in the queue"),
        "published_by": (TEXT, "replay: the record that published it"),
    },
    "Bytes": {
        "bytes": (INT, "of a file, or of all files; of a queue's headers and bodies"),
        "body_bytes": (INT, "of bodies"),
        "file_bytes": (f"{INT}, {OPEN}", "of files; audit: by what they are"),
        "live_bytes": (INT, "that live messages need"),
        "garbage_bytes": (INT, "of acked messages; null: not all queues could be read"),
        "room_bytes": (INT, "allocated in advance"),
        "index_bytes": (INT, "of journals and segments"),
        "live_index_bytes": (INT, "of them, what live messages need"),
        "journal_bytes": (INT, "of the journal"),
        "segment_bytes": (INT, "of segments"),
        "message_bytes": (INT, "of message files"),
        "disk_bytes": (INT, "that files take on the disk"),
        "free_bytes": (INT, "free on the disk"),
        "unsynced_bytes": (INT, "written and not synced"),
        "orphan_bytes": (INT, "of bodies that no index names"),
    },
    "Damage, and how it went": {
        "clean": (BOOL, "no damage"),
        "complete": (BOOL, "nothing is damaged, lost or left out"),
        "damage": (INT, "damaged places"),
        "damage_a": (INT, "diff: in the first directory"),
        "damage_b": (INT, "diff: in the second"),
        "damaged": (INT, "messages or places that were left out for damage"),
        "is_damaged": (BOOL, "trace: its body or its records"),
        "error": (TEXT, "why this queue or broker could not be read; empty: it could"),
        "findings": (LIST, "what was met: damage, what is suspected, notes"),
        "notes": (INT, "findings that are no damage"),
        "warnings": (LIST, "what the command said on stderr"),
        "severity": (TEXT, "damage, suspected, warning or note"),
        "kind": (TEXT, "of a finding or file: its sort"),
        "kinds": (OPEN, "findings by kind, and how many"),
        "about": (TEXT, "what the file belongs to"),
        "text": (TEXT, "in words"),
        "count": (INT, "how often"),
        "stopped": (TEXT, "why it ended before its end; empty: it did not"),
        "failures": (LIST, "proofs that failed"),
        "passed": (BOOL, "no trial failed"),
        "interrupted": (BOOL, "ended by Ctrl-C"),
        "went_on": (BOOL, "an earlier run had begun it"),
        "before": (BOOL, "an earlier run had done it"),
        "published_before": (INT, "confirmed in an earlier run"),
        "seconds": (FLOAT, "what it took"),
        "how": (TEXT, "where the work was done; bisect: how the consumer ended"),
        "as_of": (TIME, "the moment that decided what has expired"),
        "day": (TEXT, "the date of an audit"),
        "account": (OBJECT, "counts of all queues together"),
        "total": (OBJECT, "counts of all queues together, as the format has them"),
        "left_out": (LIST, "salvage: what is left out beside messages, in words"),
        "damaged_places": (INT, "salvage: damage in message files, and files that are none"),
        "changes": (OPEN, "what had to be changed in messages, and in how many"),
        "changed": (INT, "messages that were changed"),
        "reasons": (OPEN, "why messages were kept, and how many"),
        "file_count": (INT, "files that were written"),
        "raw": (BOOL, "salvage: read without the engine"),
        "lost_unknown": (BOOL, "salvage: nobody knows how many messages are lost"),
    },
    "A store": {
        "session": (INT, "number of the last session"),
        "unclean_session": (INT, "the last one without a close; 0: none"),
        "writer_pid": (INT, "the process that has it open"),
        "message_files": (INT, "how many"),
        "compactions": (INT, "how often they were compacted since the open"),
        "compacted_bytes": (INT, "by how many bytes they got shorter by that"),
        "live_references": (INT, "references to bodies in message files"),
        "counted": (BOOL, "those references are counted"),
        "mapped": (BOOL, "its files are mapped"),
        "memory": (INT, "bytes of memory that all stores of the process use"),
        "embed_below": (INT, "bodies below this many bytes are in the index"),
        "segment_entries": (INT, "ReqIds of a segment"),
        "segments": (INT, "how many"),
        "hot_segments": (INT, "of them, held in memory"),
        "dirty_count": (INT, "records that are not flushed"),
        "epoch": (INT, "number of the journal"),
        "loaded": (BOOL, "its index is in memory"),
    },
    "Records": {
        "step": (INT, "number of the record"),
        "verb": (TEXT, "publish, deliver, ack and so on"),
        "record": (OBJECT, "the one behind which this is the state"),
        "records": (LIST, "trace: all about one message"),
        "record_count": (INT, "how many were read"),
        "summary": (TEXT, "trace: what follows from the records"),
        "orphans": (INT, "acks and delivers without a publish"),
        "flushes": (INT, "replay --verify: how many were compared"),
        "same": (BOOL, "there is no difference"),
        "difference": (TEXT, "the first one; empty: there is none"),
        "skipped": (TEXT, "why it was not compared; empty: it was"),
        "entry": (INT, "index of a Raft entry; of a stream the offset"),
        "term": (INT, "its term"),
        "sound": (BOOL, "its checksum is right"),
        "events": (OPEN_LIST, "what it did to messages"),
        "never_delivered": (INT, "of a quorum queue"),
        "given_back": (INT, "of a quorum queue"),
        "delivered_to": (OPEN, "of a quorum queue: consumers, and how many each has"),
    },
    "diff, du, bisect, plot": {
        "by": (TEXT, "compared by id or by content"),
        "why": (TEXT, "why by that"),
        "what": (TEXT, "the sort of difference"),
        "detail": (TEXT, "the difference in words"),
        "only_in": (TEXT, "the queue is only in A or in B; empty: in both"),
        "alike": (INT, "messages without a difference"),
        "only_a": (INT, "messages that only A has"),
        "only_b": (INT, "messages that only B has"),
        "state_differs": (INT, "messages"),
        "body_differs": (INT, "messages"),
        "order_differs": (INT, "places"),
        "differs": (BOOL, "any of these"),
        "files": (LIST, "one object for each file"),
        "is_newest": (BOOL, "it is the one that is being written"),
        "advice": (TEXT, "when the format frees space"),
        "killers": (LIST, "the messages that kill the consumer"),
        "together": (INT, "how many of them it takes"),
        "others_kill_too": (BOOL, "there are more"),
        "survives": (BOOL, "no message kills it"),
        "runs": (INT, "of the consumer"),
        "output": (TEXT, "the end of what the consumer wrote"),
        "openings": (LIST, "recovery: until all depths are known"),
        "readings": (LIST, "recovery: all messages of one queue"),
        "numbers": (LIST, "depth: behind which record a point is"),
        "age_seconds": (LIST, "depth: of the oldest message, point by point"),
        "older": (LIST, "depth: it is older than that, point by point"),
        "held": (LIST, "depth: delayed ones among them, point by point"),
        "buried": (LIST, "depth: dead letters among them, point by point"),
        "began_at": (TIME, "depth: the first clock in the journals"),
        "ended_at": (TIME, "depth: the last"),
        "cells": (OPEN, "slots: rows of cells for each kind of record"),
        "cell_slots": (INT, "slots: ReqIds in a cell"),
        "segment_slots": (INT, "slots: ReqIds in a segment"),
        "first_req_id": (TEXT, "slots: of the first cell"),
        "totals": (OPEN, "slots: how many records of each kind"),
    },
    "recover, write-rabbitmq, fleets": {
        "recovered": (OBJECT, "what was published into the store"),
        "dead_lettered": (INT, "the broker would pass them on: they are in other queues"),
        "arrived": (INT, "dead letters of other queues"),
        "kept": (INT, "expired ones that the broker would drop, or nobody knows"),
        "kept_by": (OPEN, "why, and how many"),
        "dying": (INT, "they expire later and would be passed on then"),
        "dead_letters": (OBJECT, "write-rabbitmq: what became of expired ones"),
        "passed_on": (INT, "the node will pass them on when it starts"),
        "too_long": (OPEN, "queues beyond their limit, and by how many"),
        "has_definitions": (BOOL, "the node's definitions could be read"),
        "body_missing": (INT, "RabbitMQ: live by the index, without a body"),
        "expiring": (INT, "they have an expiry"),
        "journal_records": (INT, "RabbitMQ: in journals"),
        "segment_records": (INT, "RabbitMQ: in segments"),
        "orphan_marks": (INT, "RabbitMQ: acks and delivers without a publish"),
        "orphan_bodies": (INT, "RabbitMQ: bodies that no index names"),
        "khepri": (OPEN, "RabbitMQ 4: the metadata store"),
        "quorum_queues": (OPEN_LIST, "what only quorum queues have"),
        "streams": (OPEN_LIST, "what only streams have"),
        "brokers": (LIST, "spark-recover: one account for each"),
        "directories": (LIST, "audit: one summary for each"),
        "depths": (LIST, "audit: numbers of queues by depth"),
        "sums": (OBJECT, "audit: counts of all queues"),
        "top": (OPEN, "audit: the queues with the most of each"),
        "recovery_seconds": (f"{FLOAT}, {LIST}", "audit: what it takes to open"),
    },
    "demo and torture": {
        "dead_node": (OBJECT, "what is in the dead node"),
        "killed_writer": (OBJECT, "what the killed publisher had done"),
        "reopened": (OBJECT, "how the store opened again"),
        "drained": (OBJECT, "how all messages were acked"),
        "proof": (OBJECT, "expected against found"),
        "expected": (INT, "messages that have to be there"),
        "doubled": (INT, "there more than once"),
        "altered": (INT, "with another body"),
        "unexpected": (INT, "not expected"),
        "misplaced": (INT, "not in their order"),
        "redelivered_lost": (INT, "delivered before, and do not say so"),
        "first_message_seconds": (FLOAT, "until the first message"),
        "all_queues_seconds": (FLOAT, "until all queues"),
        "publishes_per_second": (INT, "one call each"),
        "get_acks_per_second": (INT, "one call each"),
        "facts": (OPEN, "torture: the machine"),
        "trials": (LIST, "torture: one object for each"),
        "trial": (TEXT, "its name"),
        "outcome": (TEXT, "passed, failed or not possible"),
    },
}  # fmt: skip

MEANING: Final = {key: told for group in KEYS.values() for key, told in group.items()}


def strange_keys(value: Any, where: str = "") -> list[str]:
    """Keys of a command's JSON that are not in the table, or have another type there."""
    if isinstance(value, (list, tuple)):
        return [text for inner in value for text in strange_keys(inner, f"{where}[]")]
    if not isinstance(value, dict):
        return []
    found = []
    for key, inner in value.items():
        types = MEANING.get(key, ("", ""))[0]
        if not types:
            found.append(f"{where}.{key} is in no table")
        elif inner is not None and not any(_is(name, inner) for name in types.split(", ")):
            found.append(f"{where}.{key} is no {types}: {inner!r:.60}")
        elif OPEN not in types:
            found += strange_keys(inner, f"{where}.{key}")
    return found


def _is(name: str, value: Any) -> bool:
    match name:
        case "whole number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "yes or no":
            return isinstance(value, bool)
        case "moment":
            return isinstance(value, str) and (value.endswith("Z") or value.startswith("@"))
        case "list" | "list of names and values":
            return isinstance(value, (list, tuple))
        case "object" | "names and values":
            return isinstance(value, dict)
    return isinstance(value, str)
