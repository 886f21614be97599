"""What the messages of NSQ, gmq and beanstalkd take: records in files, and what frees those."""

from __future__ import annotations

import re
from typing import Final

from qindex.brokers.reader import DeadMessage
from qindex.brokers.tree import Tree
from qindex.look.messages import Choice
from qindex.look.screen import Screen
from qindex.look.sources import DeadSource, total_of
from qindex.look.usage import FileUse, Holder, QueueUse, Usage
from qindex.native.messages import used_bytes

# What a record has beside its body; NSQ's is more if nsqd wrote it, which its headers tell.
RECORD_BYTES: Final = {"nsq": 4, "gmq": 25, "beanstalkd": 4 + 92 + 2}
NSQD_BYTES: Final = 26
_FILES: Final = {
    "nsq": re.compile(r".+\.diskqueue\.[0-9]{6,18}\.dat(\.bad)?", re.DOTALL),
    "gmq": re.compile(r".+_.*\.queue|gmq\.db", re.DOTALL),
    "beanstalkd": re.compile(r"binlog\.[1-9][0-9]{0,8}"),
}
_ADVICE: Final = {
    "nsq": (
        "NSQ deletes a file when its last message is read, all before the place where it reads"
        " with it; a .bad file stays until somebody removes it."
    ),
    "gmq": "gmq writes a queue's file anew, without what is acked, while it runs.",
    "beanstalkd": (
        "beanstalkd deletes its oldest file when no job in it is left, and copies jobs out of it"
        " while more than half of all is garbage."
    ),
}


def collect(source: DeadSource, screen: Screen) -> Usage:
    """Reads all messages. Memory: a few numbers per file and queue."""
    usage = Usage(advice=_ADVICE[source.format])
    tree = source.tree
    for where in tree.files():
        is_data = _FILES[source.format].fullmatch(where) is not None
        kind = "messages" if is_data else "journal"
        usage.files[where] = FileUse(where, kind, tree.size(where))
    for file in usage.files.values():
        # gmq and beanstalkd reserve space; a bbolt file has free pages anywhere.
        if source.format != "nsq" and file.kind == "messages" and file.where != "gmq.db":
            file.room = file.size - _used(tree, file)
    done, total = 0, total_of(source, Choice())
    with screen.progress("reading messages", "messages") as progress:
        for name in source.names():
            use = QueueUse(name)
            usage.queues.append(use)
            for number, message in enumerate(source.dead_messages(name)):
                _add(usage, use, source.format, number, message)
                done += 1
                progress.at(done, total)
    return usage


def _used(tree: Tree, file: FileUse) -> int:
    source = tree.try_open(file.where)
    if source is None:
        return 0
    with source:
        return used_bytes(source)


def _add(usage: Usage, use: QueueUse, kind: str, number: int, message: DeadMessage) -> None:
    byte_count = len(message.body) + RECORD_BYTES[kind]
    if kind == "nsq" and "timestamp_ns" in message.headers:
        byte_count += NSQD_BYTES
    elif kind == "beanstalkd":
        byte_count += len(re.sub(r"\.(delayed|buried)\Z", "", use.name))  # the tube's name
    use.messages += 1
    use.bodies += byte_count
    file = usage.files.get(message.file)
    if file is not None:
        file.live += byte_count
        file.queues.setdefault(use.name, Holder()).add(number, byte_count)
