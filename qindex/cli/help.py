"""How the help of commands is laid out, and what a shell may complete."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from typing import Final

from qindex.look.screen import CommandError

WIDTH_MAX: Final = 80
# "NAME   what it is", perhaps indented, and lines below that begin under "what".
_ENTRY: Final = re.compile(r"( *\S+(?: \S+)* {2,})(\S.*)")


class Help(argparse.HelpFormatter):
    """Paragraphs and lists are filled to the width; what is indented otherwise stays as it is."""

    def __init__(self, prog: str, **options: object) -> None:
        super().__init__(prog)
        self._width = min(self._width, WIDTH_MAX)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            "\n".join(filled(paragraph.splitlines(), width))
            for paragraph in text.split("\n\n")
            if paragraph.strip()
        )


def filled(lines: list[str], width: int) -> Iterator[str]:
    """The lines of a paragraph, or of a list, filled to the width."""
    if not any(line.startswith(" ") for line in lines):
        yield from textwrap.wrap(" ".join(lines), width, break_on_hyphens=False)
        return
    entry: tuple[str, list[str]] | None = None
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if entry and line[: len(entry[0])].isspace() and line.strip():
            entry[1].append(line.strip())
            continue
        if entry:
            yield from _entry(entry, width)
        entry = _begun(line, len(below) - len(below.lstrip()))
        if entry is None:
            yield line
    if entry:
        yield from _entry(entry, width)


def _begun(line: str, column: int) -> tuple[str, list[str]] | None:
    """An entry of a list, if a line begins one; the line below it begins in `column`."""
    if found := _ENTRY.fullmatch(line):
        return found[1], [found[2]]
    if len(line) - len(line.lstrip()) < column < len(line) and line[column - 1] == " ":
        return line[:column], [line[column:]]
    return None


def _entry(entry: tuple[str, list[str]], width: int) -> list[str]:
    head, texts = entry
    indent = " " * len(head)
    return textwrap.wrap(
        " ".join(texts),
        max(width, len(head) + 20),
        initial_indent=head,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what may come next, and exit; needs the extra `completion`."""
    try:
        import argcomplete
    except ImportError:
        raise CommandError(
            "completion needs the package argcomplete: pip install 'qindex[completion]'"
        ) from None
    argcomplete.autocomplete(parser)
