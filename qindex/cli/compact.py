"""qindex compact: free the space of acked bodies now.

A program that has the store open does the same in the background when it
pays. What is alive in message files with garbage is copied, which needs free
space for it; segment files that are mostly acked are written anew. The newest
message file is still written to, and stays as it is. The store must not be
open in another process: a program that has it open calls store.compact()
itself. 'qindex du' shows what takes the space.

exit codes: 0 done, or --dry-run; 1 done, and the store has damage; 2 refused:
the text says why.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import qindex
from qindex.cli.arguments import add_directory
from qindex.cli.change import add_change, carry_out
from qindex.look.screen import Screen
from qindex.look.text import count, size


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    add_change(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    def plan(store: qindex.Store) -> list[str]:
        figures = store.stats()
        files = count(figures.message_files, "message file")
        queues = count(figures.queues, "queue")
        where = f"those of {files} ({size(figures.message_bytes)}) that have garbage"
        return [f"copy what is alive out of {where}, and write mostly acked segments of {queues}"]

    def act(store: qindex.Store) -> Iterator[str]:
        yield f"{size(store.compact())} freed"

    return carry_out(options, screen, plan, act)
