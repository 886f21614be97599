"""qindex backup: copy a store as it is at one moment.

TO becomes a copy of the store in DIR, which any qindex opens. A TO that has a
backup of the same store is replaced, in one step, and only what has changed is
copied. On the file system of the store the copy shares full message files
with it. A backup that is cut off leaves TO as it was, and TO.partial, which
the next one removes. The store must not be open in another process: a program
that has it open calls store.backup(TO) itself, and its publishers go on.

exit codes: 0 done; 1 done, and the store has damage, of which the copy has
what is readable; 2 refused: the text says why.
"""

from __future__ import annotations

import argparse

import qindex
from qindex.cli.arguments import add_directory
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import damage_count, open_to_write
from qindex.look.text import count, size


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser, "the store")
    parser.add_argument("target", metavar="TO", help="the copy: a new directory, or a backup")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_write(options.dir) as store:
        try:
            made = store.backup(options.target)
        except OSError as error:
            raise CommandError(f"{options.target}: {error}") from error
        except qindex.StoreCorrupt as error:
            raise CommandError(f"{error}: {options.target} is as it was") from None
        store.check()  # what the copy lacks, too
        damage = damage_count(store.findings)
    files = count(made.files, "file")
    screen.line(f"{options.target}: {files}, of which {size(made.copied_bytes)} were copied")
    if damage:
        screen.error(f"{count(damage, 'damaged place')}: 'qindex check' lists them")
    return 1 if damage else 0
