"""qindex upgrade: upgrade a store to the newest format.

Every version of qindex will read and write stores of format 1, and upgrades none
of them by itself. The same holds for format 2, the newest, which new stores have.
The upgrade converts nothing: it replaces store.meta in one rename, so an upgrade
that is cut off leaves the store as it was. Older versions of qindex refuse the
upgraded store; to go back, keep a copy from before.

exit codes: 0 the store has the newest format, or could get it (--dry-run); 1 the
same, but something is missing in it (a queue's folder or name, settings, data);
2 there is no such store, another process has it open, or it is refused.
"""

from __future__ import annotations

import argparse

import qindex
from qindex.cli.arguments import add_directory
from qindex.look.screen import Screen
from qindex.look.stores import open_to_look, unlisted
from qindex.look.telling import tell_unlisted
from qindex.look.text import count
from qindex.options import FORMAT_NEWEST


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "its directory")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, no more")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_look(options.dir) as store:
        before = store.stats().format
        queues = count(len(store.queues()), "queue")
        code = tell_unlisted(screen, unlisted(store))
    if before == FORMAT_NEWEST:
        screen.line(f"the store has format {before}, the newest: there is nothing to do")
    elif options.dry_run:
        would = f"it would become one of format {FORMAT_NEWEST}"
        screen.line(f"the store has format {before} and {queues}; {would}")
    else:
        qindex.open(options.dir, upgrade=True, create=False, expire=False).close()
        screen.line(f"the store had format {before}, and now has format {FORMAT_NEWEST}")
    return code
