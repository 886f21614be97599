"""qindex serve: a broker on a directory, for clients of AMQP 0-9-1.

Clients of RabbitMQ work as they are: pika, aio-pika, kombu and Celery, and those
of other languages. DIR is made if it is not there. It then holds users and
virtual hosts; each virtual host is a store.

A persistent message in a durable queue survives kill -9 as soon as the server has
it, and a power cut as soon as it is confirmed. kill -9 is a supported way to stop:
the next start reads what the journals have. SIGTERM and Ctrl-C confirm what was
published, tell the clients and close; a second one ends at once.

A new DIR has the user guest, with the password guest, who can connect from this
machine only, and the virtual host "/". QINDEX_DEFAULT_USER, QINDEX_DEFAULT_PASS
and QINDEX_DEFAULT_VHOST name others when DIR is made.

exit codes: 0 it was stopped; 1 the disk failed a sync, or the end was not clean;
2 DIR is served already or holds something else, or nothing can listen there.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from qindex.look.screen import CommandError, Screen

if TYPE_CHECKING:
    from qindex.serve.server import Server

PORT: Final = 5672
HOST: Final = "127.0.0.1"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", help="where its messages are")
    parser.add_argument(
        "--amqp",
        metavar="HOST:PORT",
        default=f"{HOST}:{PORT}",
        help=f"where to listen (default: {HOST}:{PORT}); port 0: one that the system chooses",
    )
    parser.add_argument(
        "--memory", action="store_true", help="keep everything in memory; needs no DIR"
    )
    parser.add_argument(
        "--confirm",
        choices=["durable", "written"],
        default="durable",
        help="what a confirm means: the message survives a power cut (durable, the default), or "
        "kill -9 (written)",
    )
    parser.add_argument(
        "--log",
        metavar="LEVEL",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="what is logged to stderr, from this level on (default: info)",
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    if bool(options.directory) == options.memory:
        raise CommandError("name a DIR to keep messages in, or say --memory, not both", 2)
    host, port = _address(options.amqp)
    logging.basicConfig(
        level=options.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(options, screen, host, port))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"--amqp takes HOST:PORT, as {HOST}:{PORT}, not {text!r}", 2)
    return host, int(port)


def _loop_factory() -> Any:
    """uvloop's event loop, if that is installed: `pip install qindex[serve]`."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(options: argparse.Namespace, screen: Screen, host: str, port: int) -> int:
    from qindex.serve.server import Server

    server = Server(
        None if options.memory else options.directory,
        confirm=options.confirm,
        environment=os.environ,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        server.loop.add_signal_handler(number, _stop, stopped)
    try:
        bound = await server.listen(host, port)
        _say(options, screen, server, f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}")
        server.failed.add_done_callback(lambda _: stopped.set())
        await stopped.wait()
    finally:
        await server.stop()
    if server.failed.done():
        raise CommandError(f"the disk failed a sync: {server.failed.result()}", 1)
    return 0


def _stop(stopped: asyncio.Event) -> None:
    if stopped.is_set():
        os._exit(130)  # the second signal: kill -9 is a supported way to stop
    stopped.set()


def _say(options: argparse.Namespace, screen: Screen, server: Server, address: str) -> None:
    what = "memory" if options.memory else options.directory
    promise = {
        "durable": "a confirm survives a power cut",
        "written": "a confirm survives kill -9",
    }[options.confirm]
    if options.memory:
        promise = "nothing survives the process"
    vhosts = ", ".join(server.node.vhosts)
    screen.line(f"serving {what} on amqp://{address} (virtual hosts: {vhosts}; {promise})")
    screen.out.flush()  # who has started it waits for this line
