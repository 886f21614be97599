"""`qindex COMMAND ...`: chooses the command, and turns whatever goes wrong into one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, NoReturn

import qindex
from qindex.cli.screen import CommandError, Screen

COMMANDS: Final = {
    "demo": "recover a dead RabbitMQ node, kill a writer, prove that nothing is lost",
    "recover": "show or take the messages in a dead broker's directory",
    "salvage": "copy what can be read of a damaged store into a new one",
    "ls": "list the queues of a store or of a dead broker",
    "stats": "show the figures of a store and of its queues",
    "top": "watch a store, also while a process has it open: rates, ages, unacked, disk",
    "check": "read a whole store and verify every checksum and counter",
    "peek": "show messages without taking them",
    "cat": "write the bodies of messages to stdout",
    "export": "write messages to JSON Lines, Parquet or files; goes on after a kill",
    "trace": "show every record about one message",
    "replay": "step through a queue's journals; the state behind any record",
    "bisect": "find the message that kills a consumer",
    "du": "show what takes the space, what keeps it, and what would free it",
    "republish": "publish messages to a broker, with confirms; goes on after a kill",
    "plot": "draw slots, depth, files or recovery times, as SVG or PNG",
    "write-rabbitmq": "write messages as the files that a RabbitMQ node opens and serves",
    "diff": "compare two stores or directories, message by message",
    "audit": "examine a fleet of brokers: tables, a report, what is wrong; on Spark if it pays",
    "spark-export": "write the messages of a fleet to Parquet; goes on after a kill",
    "spark-recover": "bring back many dead brokers at once; goes on after a kill",
    "dump": "show journals and segments, record by record",
    "torture": "kill, fork and fill on your own disk; write a report for a ticket",
}
DESCRIPTION: Final = """\
qindex: an embedded, crash-safe storage engine for message queues.

A store is a directory. All commands but demo and torture only read the one
that they are given, so that they may be used while another process has it open.
"""
EPILOG: Final = """\
exit codes: 0 fine; 1 damage was found, a proof failed, or there is a
difference; 2 wrong usage, or refused (the text says why and what to do);
130 interrupted.

Colour is used on terminals only, and never if NO_COLOR is set.
'qindex COMMAND --help' says more about a command.
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Text stands beside each command: argparse forgets that commands are indented twice."""

    def __init__(self, prog: str) -> None:
        longest = max(map(len, COMMANDS)) + 4
        super().__init__(prog, max_help_position=longest + 2)
        self._action_max_length = longest


class Parser(argparse.ArgumentParser):
    """One line for an error, like all other errors, and help that keeps its line breaks."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"qindex: {message} (see '{self.prog} --help')\n")
        sys.exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse exits by itself for --help."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a Latin-1 terminal, a Cyrillic queue
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = make_parser(next((word for word in arguments if not word.startswith("-")), ""))
    options, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(options, "queues") or any(word.startswith("-") for word in rest)):
        parser.prog += f" {options.command}"
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # QUEUE ... behind an option: argparse took the list to have ended before that
        options.queues = [*options.queues, *rest]
    if options.command is None:
        parser.print_help(sys.stderr)
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


def make_parser(chosen: str) -> Parser:
    """All commands, and the arguments of the chosen one: the others need not be imported."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser("qindex", description=DESCRIPTION, epilog=EPILOG, formatter_class=_Help)
    version = f"qindex {qindex.__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=raw, allow_abbrev=False)
        if name == chosen:
            _configure(command, name)
    return parser


def _configure(command: argparse.ArgumentParser, name: str) -> None:
    """A command's help is its module's docstring, without the first line."""
    module = import_module(f"qindex.cli.{name.replace('-', '_')}")
    text, _, codes = str(module.__doc__).partition("\n\n")[2].partition("exit codes:")
    command.description = text.strip()
    command.epilog = f"exit codes:{codes}".rstrip()
    module.configure(command)
    command.set_defaults(run=module.run)


def _run(options: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace, Screen], int] = options.run
    return run(options, Screen(getattr(options, "progress", False)))


def _fail(text: str, code: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"qindex: {' '.join(text.split())}\n")
    return code


def _text_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
