"""Writes the pages of the commands from their parsers, so that they cannot differ from `--help`.

conf.py calls write_pages() before each build. The pages are files that git ignores. Each option is
an `option` of Sphinx: other pages refer to it by name, and a name that does not exist fails the
build.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from qindex.cli.main import GROUPS, make_parser
from qindex.look import keys

FOLDER: Final = Path(__file__).with_name("commands")
LONG_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_MARKUP: Final = re.compile(r"([\\*`|_<>:])")
_ALIGNED: Final = re.compile(r"^  |\S   *\S", re.MULTILINE)  # a table, an example, or a list
_WORD: Final = re.compile("[a-z]+(?:[ ,;]|: |$)")  # and no address: amqp://
_HEADINGS: Final = {"positional arguments": "Arguments", "optional arguments": "Options"}
_WIDTH: Final = "80"  # of the usage lines


def commands() -> dict[str, str]:
    """Each command and its summary, in the order in which `qindex --help` lists them."""
    found = _subparsers(make_parser(""))
    summaries = {choice.dest: choice.help or "" for choice in found._choices_actions}
    return {name: summaries[name] for name in found.choices if name in summaries}


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command, with all of its options."""
    found: dict[str, argparse.ArgumentParser] = _subparsers(make_parser(command)).choices
    return found[command]


def options_of(command: str) -> set[str]:
    """Every spelling of an option that the command takes, hidden ones not among them."""
    shown = [action for action in parser_of(command)._actions if _is_shown(action)]
    return {spelling for action in shown for spelling in action.option_strings}


def write_pages() -> None:
    """Write the pages of all commands and the list of them; leave a page that did not change."""
    FOLDER.mkdir(exist_ok=True)
    summaries = commands()
    with _terminal():
        wanted = {f"{name}.rst": _page(name) for name in summaries}
    rows = {
        name: f"   * - :doc:`{name} </commands/{name}>`\n     - {_escaped(_sentence(summary))}"
        for name, summary in summaries.items()
    }
    wanted["list.inc"] = "\n".join(
        f".. rubric:: {_sentence(group).removesuffix('.')}\n\n"
        ".. list-table::\n   :widths: 20 80\n\n" + "\n".join(rows[name] for name in names) + "\n"
        for group, names in GROUPS.items()
    )
    about = (make_parser("").description or "").partition("\n\n")[2]  # behind what qindex is
    wanted["json.rst"] = _keys_page()
    wanted["about.inc"] = "\n".join(_prose(about))
    for name, text in wanted.items():
        file = FOLDER / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
    for file in FOLDER.glob("*.rst"):
        if file.name not in wanted and file.name != "index.rst":
            file.unlink()  # of a command that has another name now


def _keys_page() -> str:
    """The words of JSON, from the table that the tests hold all commands to."""
    title = "The keys of JSON"
    about = (keys.__doc__ or "").partition("\n\n")[2].partition(" docs/commands/json.rst")[0]
    parts = [title, "=" * len(title), "", about, ""]
    for group, words in keys.KEYS.items():
        parts += [group, "-" * len(group), "", ".. list-table::", "   :widths: 28 22 50", ""]
        for key, (kind, meaning) in words.items():
            parts += [f"   * - ``{key}``", f"     - {kind}", f"     - {_escaped(meaning)}"]
        parts += [""]
    return "\n".join(parts)


def _page(name: str) -> str:
    parser = parser_of(name)
    title = f"qindex {name}"
    summary, _, description = (parser.description or "").partition("\n\n")
    parts = [title, "=" * len(title), "", *_prose(summary)]
    parts += ["::", "", *_indented(_usage(parser)), ""]
    parts += _prose(description)
    parts += [f".. program:: {title}", ""]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _is_shown(action)]
        if not actions:
            continue
        heading = _HEADINGS.get(group.title or "", (group.title or "options").capitalize())
        parts += [heading, "-" * len(heading), ""]
        for action in actions:
            parts += _entry(action, parser)
    head, colon, codes = (parser.epilog or "").strip().partition("exit codes:")
    parts += _prose(head)
    if colon:
        parts += ["Exit codes", "----------", "", ".. list-table::", "   :widths: 10 90", ""]
        for sentence in re.split(r"[;.]\s+(?=\d)", " ".join(codes.split()).rstrip(".")):
            code, _, meaning = sentence.partition(" ")
            parts += [f"   * - ``{code}``", f"     - {_escaped(_sentence(meaning))}"]
        parts += [""]
    return "\n".join(parts)


def _entry(action: argparse.Action, parser: argparse.ArgumentParser) -> Iterator[str]:
    shown = parser._get_formatter()._format_action_invocation(action)
    if action.option_strings:
        value = shown.split(", ")[-1].partition(" ")[2]
        spellings = [f"{each} {value}".rstrip() for each in action.option_strings]
        yield f".. option:: {', '.join(spellings)}"
    else:
        yield f".. describe:: {shown}"
    yield ""
    help_text = (action.help or "") % {**vars(action), "prog": parser.prog}
    yield f"   {_escaped(_sentence(help_text))}"
    yield ""


def _prose(text: str) -> Iterator[str]:
    """Paragraphs as paragraphs, lists as lists; what else is aligned by hand as it stands."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if not paragraph.strip():
            continue
        if items := _items(paragraph.splitlines()):
            for term, meaning in items:
                yield from [f"``{term}``", f"    {_escaped(_sentence(meaning))}", ""]
        elif _ALIGNED.search(paragraph):
            yield from ["::", "", *_indented(paragraph), ""]
        else:
            yield from [_escaped(" ".join(paragraph.split())), ""]


def _items(lines: list[str]) -> list[tuple[str, str]]:
    """Terms and their texts, of lines that have them in two columns; else none."""
    indents = [len(line) - len(line.lstrip()) for line in lines]
    first = indents[0]
    column = next((indent for indent in indents if indent > first), 0)
    if not column:
        gap = re.match(r" *\S.*?  +(?=\S)", lines[0])
        column = gap.end() if gap else 0
    items: list[tuple[str, str]] = []
    for line, indent in zip(lines, indents, strict=True):
        if indent == first and line[column - 1 : column] == " " and line[column:].strip():
            items.append((line[:column].strip(), line[column:].strip()))
        elif indent == column and items:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
        else:
            return []
    in_columns = all("  " not in term and "  " not in text for term, text in items)
    return items if column and in_columns else []


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in text.strip("\n").splitlines()]


def _escaped(text: str) -> str:
    """Text in which nothing is markup; long options, and what stands in backticks, are code."""
    parts = re.split(f"({LONG_OPTION.pattern}|`[^`]+`)", text)
    escaped = [
        f"``{part.strip('`')}``\\ " if i % 2 else _MARKUP.sub(r"\\\1", part)
        for i, part in enumerate(parts)
    ]
    line = "".join(escaped)
    return line if line[:1].isalnum() or line[:1] == "`" else f"\\ {line}"


def _sentence(text: str) -> str:
    """A help text as a sentence: argparse's have neither a capital letter nor a full stop."""
    text = text.strip()
    first = text[:1].upper() + text[1:] if _WORD.match(text) else text
    return first if first.endswith((".", ")")) else f"{first}."


def _usage(parser: argparse.ArgumentParser) -> str:
    return dedent(f"       {parser.format_usage().removeprefix('usage: ')}")


@contextmanager
def _terminal() -> Iterator[None]:
    """argparse looks at the environment for the width of lines, and for colours."""
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS=_WIDTH, NO_COLOR="1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS


def _subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[Any]:
    return next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
