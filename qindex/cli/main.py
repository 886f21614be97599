"""`qindex COMMAND ...`: chooses the command, and turns whatever goes wrong into one line."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, NoReturn

import qindex
from qindex.cli.help import Help, complete
from qindex.look.screen import CommandError, Screen, error_line

GROUPS: Final = {
    "look at a store or a dead broker": {
        "ls": "list the queues of a store or of a dead broker",
        "stats": "show the figures of a store and of its queues",
        "top": "watch a store, also while a process has it open: rates, ages, unacked, disk",
        "check": "read a whole store and verify every checksum and counter",
        "peek": "show messages without taking them",
        "cat": "write the bodies of messages to stdout",
        "diff": "compare two stores or directories, message by message",
        "du": "show what takes the space, what keeps it, and what would free it",
        "plot": "draw slots, depth, files or recovery times, as SVG or PNG",
    },
    "follow what happened": {
        "trace": "show every record about one message",
        "replay": "step through a queue's journals; the state behind any record",
        "dump": "show journals and segments, record by record",
    },
    "rescue messages": {
        "recover": "show or take the messages in a dead broker's directory",
        "salvage": "copy what can be read of a damaged store into a new one",
        "export": "write messages to JSON Lines, Parquet or files; goes on after a kill",
        "republish": "publish messages to a broker, with confirms; goes on after a kill",
        "write-rabbitmq": "write messages as the files that a RabbitMQ node opens and serves",
        "bisect": "find the message that kills a consumer",
    },
    "many brokers at once": {
        "audit": "examine a fleet of brokers: tables, a report, what is wrong; on Spark if it pays",
        "spark-export": "write the messages of a fleet to Parquet; goes on after a kill",
        "spark-recover": "bring back many dead brokers at once; goes on after a kill",
    },
    "run a broker": {
        "serve": "serve a directory to clients of RabbitMQ (AMQP 0-9-1)",
        "ctl": "ask a server: users, permissions, virtual hosts, queues, connections",
    },
    "keep a copy": {
        "backup": "copy a store as it is at one moment; again: only what has changed",
    },
    "change a store": {
        "redrive": "make dead letters ready again",
        "move": "move messages to another queue of the store",
        "purge": "drop messages that are ready, delayed or dead",
        "delete": "delete queues with all their messages",
        "rename": "give a queue another name",
        "configure": "show or change a queue's settings",
        "compact": "free the space of acked bodies",
        "upgrade": "upgrade a store to the newest format",
    },
    "try it": {
        "demo": "recover a dead RabbitMQ node, kill a writer, prove that nothing is lost",
        "torture": "kill, fork and fill on your own disk; write a report for a ticket",
    },
}
COMMANDS: Final = {name: text for group in GROUPS.values() for name, text in group.items()}
DESCRIPTION: Final = """\
qindex: an embedded, crash-safe storage engine for message queues.

A store is a directory. Most commands only read it, so you can use them while
another process has it open. Those that write are backup, demo, serve, torture and
the commands that change a store.
"""
EPILOG: Final = """\
exit codes: 0 fine; 1 damage was found, a proof failed, or there is a
difference; 2 wrong usage, or refused (the text says why and what to do);
130 interrupted.

Colour is used on terminals only, and never if NO_COLOR is set.
'qindex COMMAND --help' says more about a command.
"""


class Overview(Help):
    """The help of qindex itself: its commands in groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        column = max(len(name) for group in GROUPS.values() for name in group) + 6
        parts = []
        for title, group in GROUPS.items():
            parts.append(f"  {title}:\n")
            for name, summary in group.items():
                lines = textwrap.wrap(
                    summary,
                    self._width,
                    initial_indent=f"    {name}".ljust(column),
                    subsequent_indent=" " * column,
                )
                parts += [f"{line}\n" for line in lines]
        return "".join(parts)


class Parser(argparse.ArgumentParser):
    """One line for an error, like all other errors, and help that keeps its line breaks."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(error_line(f"{message} (see '{self.prog} --help')"))
        sys.exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse exits by itself for --help."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a Latin-1 terminal, a Cyrillic queue
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not all(map(_can_be_given, arguments)):
        return _fail("an argument holds a character that no argument can hold", 2)
    options = _parsed(arguments)
    if options is None:
        return 2
    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing may be flushed into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except CommandError as error:
        return _fail(str(error), error.code)
    except qindex.StoreCorrupt as error:
        return _fail(f"{error}: 'qindex check' lists all damage", 1)
    except (qindex.QindexError, OSError) as error:
        return _fail(_text_of(error), 2)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace | None:
    """What the arguments say; None: they name no command, and the help was shown."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may come next
        complete(make_parser(*os.environ.get("COMP_LINE", "").split()[1:2]))
    chosen = next((word for word in arguments if not word.startswith("-")), "")
    parser = make_parser(chosen, is_alone=bool(arguments) and arguments[0] == chosen)
    options, rest = parser.parse_known_args(arguments)
    takes = [name for name in ("queues", "paths") if isinstance(getattr(options, name, None), list)]
    options_end = rest.index("--") if "--" in rest else len(rest)
    unknown = [word for word in rest[:options_end] if not takes or word.startswith("-")]
    rest = rest[:options_end] + rest[options_end + 1 :]
    if unknown or (rest and not takes):
        parser.prog += f" {options.command}" if options.command else ""
        advice = "; names that begin with - go behind --" if takes else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}{advice}")
    if rest:  # QUEUE or PATH behind an option: argparse took the list to have ended before that
        setattr(options, takes[0], [*getattr(options, takes[0]), *rest])
    if options.command is None:
        parser.print_help(sys.stderr)
        return None
    return options


def make_parser(chosen: str = "", *, is_alone: bool = False) -> Parser:
    """All commands, and the arguments of the chosen one: the others need not be imported.

    With `is_alone` it has no others, if it is one: to make them all takes milliseconds.
    """
    parser = Parser("qindex", description=DESCRIPTION, epilog=EPILOG, formatter_class=Overview)
    version = f"qindex {qindex.__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if is_alone and name != chosen and chosen in COMMANDS:
            continue
        command = commands.add_parser(name, help=summary, formatter_class=Help, allow_abbrev=False)
        if name == chosen:
            _configure(command, name)
    return parser


def _configure(command: argparse.ArgumentParser, name: str) -> None:
    """A command's help is its module's docstring; the first line says what it does."""
    module = import_module(f"qindex.cli.{name.replace('-', '_')}")
    if hasattr(module, "__path__"):  # a command with a folder
        module = import_module(f"{module.__name__}.command")
    text, _, codes = str(module.__doc__).partition("exit codes:")
    text = text.removeprefix(f"qindex {name}: ").strip()
    command.description = text[:1].upper() + text[1:]
    command.epilog = f"exit codes:{codes}".rstrip()
    module.configure(command)
    command.set_defaults(run=module.run)


def _can_be_given(argument: str) -> bool:
    """By a shell: then it can be the name of a file. Callers in Python may give anything."""
    try:
        return b"\0" not in os.fsencode(argument)
    except UnicodeEncodeError:
        return False


def _run(options: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace, Screen], int] = options.run
    return run(options, Screen(getattr(options, "progress", False)))


def _fail(text: str, code: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(error_line(text))
    return code


def _text_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
