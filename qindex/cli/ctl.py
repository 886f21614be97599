"""qindex ctl: ask the server of a directory, with the words of rabbitmqctl.

  users          add_user USER [PASSWORD], change_password USER [PASSWORD],
                 authenticate_user USER [PASSWORD], clear_password USER,
                 delete_user USER, set_user_tags USER [TAG ...], list_users
  permissions    set_permissions [-p VHOST] USER CONFIGURE WRITE READ,
                 clear_permissions [-p VHOST] USER, list_permissions [-p VHOST],
                 list_user_permissions USER
  virtual hosts  add_vhost VHOST, delete_vhost VHOST, list_vhosts
  queues         list_queues [-p VHOST] [COLUMN ...], purge_queue [-p VHOST] QUEUE,
                 delete_queue [-p VHOST] QUEUE
  what is there  list_exchanges, list_bindings, list_consumers: [-p VHOST] [COLUMN ...];
                 export_definitions FILE, import_definitions FILE (RabbitMQ's JSON; a
                 FILE - is stdout or stdin)
  the server     status, ping, await_startup, list_connections [COLUMN ...],
                 list_channels [COLUMN ...], close_connection PID WHY,
                 close_all_connections [-p VHOST] WHY, reload, rotate_logs

A password that is not given is read from stdin, so that no other user of the
machine sees it. If nobody serves DIR, the command opens it itself.

exit codes: 0 it is done; 1 it was refused; 2 wrong usage, or DIR is no directory
of qindex serve.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import getpass
import io
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from qindex.look.screen import CommandError, Screen, plain
from qindex.private import open_private

_OPTIONS: Final = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_OPTIONS.add_argument("-p", "--vhost", default="/")
_OPTIONS.add_argument("-q", "-s", "--quiet", "--silent", action="store_true")
_OPTIONS.add_argument("--no-table-headers", action="store_true")
_OPTIONS.add_argument("--formatter", choices=("table", "csv", "json"), default="table")
_OPTIONS.add_argument("--json", action="store_const", const="json", dest="formatter")
_OPTIONS.add_argument("arguments", nargs="*")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="what `qindex serve` serves")
    parser.add_argument("verb", metavar="COMMAND", help="one of those above")
    parser.add_argument(
        "rest",
        metavar="ARGUMENT",
        nargs=argparse.REMAINDER,
        help="its arguments; -p VHOST (default: /), -q or -s (rows only), --no-table-headers, "
        "--formatter table|csv|json, --json",
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    from qindex.serve.commands import WITH_PASSWORD
    from qindex.serve.control import ask

    directory = Path(options.directory)
    if not (directory / "node" / "store.meta").exists():
        raise CommandError(f"{options.directory} is no directory of qindex serve", 2)
    given, unknown = _OPTIONS.parse_known_intermixed_args(options.rest)
    arguments: list[str] = given.arguments
    if unknown:
        raise CommandError(f"unknown options: {' '.join(unknown)}", 2)
    if options.verb in WITH_PASSWORD and len(arguments) == 1:
        arguments.append(_password())
    file = _file_of(options.verb, arguments)
    if options.verb == "import_definitions":
        arguments[:] = [_read(file)]
    request = {"command": options.verb, "arguments": arguments, "vhost": given.vhost}
    reply = ask(directory, request)
    if reply is None:
        reply = asyncio.run(_without_server(directory, request))
    if "error" in reply:
        raise CommandError(str(reply["error"]), 1)
    if options.verb == "export_definitions":
        _write(screen, file, reply["rows"][0][0], given)
    else:
        _show(screen, reply, given)
    return 0


def _file_of(verb: str, arguments: list[str]) -> str:
    """The FILE of commands about definitions, which the server does not see."""
    if verb not in ("export_definitions", "import_definitions"):
        return ""
    if len(arguments) != 1:
        raise CommandError(f"usage: {verb} FILE", 2)
    return arguments.pop()


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file}: {error}", 2) from None


def _write(screen: Screen, file: str, text: str, given: argparse.Namespace) -> None:
    """For the owner only: digests of passwords are in there."""
    if file == "-":
        screen.line(json.dumps(json.loads(text)))
        return
    try:
        with open_private(file, "w", encoding="utf-8") as into:
            into.write(text + "\n")
    except OSError as error:
        raise CommandError(f"{file}: {error}", 2) from None
    if not given.quiet:
        screen.line(f"Exported definitions to {file}")


def _password() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Password: ")
    return sys.stdin.readline().rstrip("\r\n")


async def _without_server(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    from qindex.broker.node import Node
    from qindex.serve.administration import Administration
    from qindex.serve.control import answer
    from qindex.serve.syncs import LoopSyncer, Reads

    loop = asyncio.get_running_loop()
    node = Node(directory, loop, partial(LoopSyncer, loop, Reads()), {}, is_rescue=True)
    try:
        admin = Administration(node, None, request["vhost"])
        return answer(admin, request["command"], request["arguments"])
    finally:
        node.close()


def _show(screen: Screen, reply: dict[str, Any], given: argparse.Namespace) -> None:
    columns, rows = reply["columns"], reply["rows"]
    if given.formatter == "json":
        # The keys are rabbitmqctl's columns, not those that other commands share.
        told = [dict(zip(columns, row, strict=True)) for row in rows]
        screen.line(json.dumps(plain(told), allow_nan=False))
        return
    has_heads = columns and not given.quiet and not given.no_table_headers
    lines = [columns] if has_heads else []
    lines += [[_cell(value) for value in row] for row in rows]
    if given.formatter == "csv":
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
        for line in text.getvalue().splitlines():
            screen.line(line)
        return
    if not given.quiet:
        screen.line(reply["text"])
    for cells in lines:
        screen.cells(cells)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return f"[{','.join(map(_pair, value.items()))}]"
    return "" if value is None else str(value)


def _pair(item: tuple[str, Any]) -> str:
    """An entry of a table as rabbitmqctl writes it: {"x-message-ttl",60000}."""
    name, value = item
    shown = _cell(value) if isinstance(value, bool | dict | list) else json.dumps(value)
    return f"{{{json.dumps(name)},{shown}}}"
