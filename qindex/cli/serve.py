"""qindex serve: a broker on a directory, for clients of AMQP 0-9-1 and of gmq.

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

--rescue NODE serves what is in the directory of a dead RabbitMQ node: users,
virtual hosts, exchanges, bindings, queues and messages. NODE is only read. Clients
can connect at once; a queue is served when its messages are in.

exit codes: 0 it was stopped; 1 the disk failed a sync, the end was not clean, or
not all of NODE can be served; 2 DIR is served already or holds something else, or
nothing can listen there.
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
GMQ_PORT: Final = 9503
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
        "--gmq",
        metavar="HOST:PORT",
        default="none",
        help=f"where to speak gmq's protocols, as {HOST}:{GMQ_PORT} (default: none); they have no "
        "login",
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
        "--rescue",
        metavar="NODE",
        help="serve what is in the directory of a dead RabbitMQ node; DIR has to be new, or begun "
        "so before. NODE is only read",
    )
    parser.add_argument(
        "--without",
        metavar="WHAT",
        action="append",
        default=[],
        help="leave out this part of NODE, which cannot be taken over: a refusal names it",
    )
    parser.add_argument(
        "--log",
        metavar="LEVEL",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="what is logged to stderr, from this level on (default: info)",
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.rescue is not None and options.memory:
        raise CommandError("--rescue needs a DIR: what is rescued has to survive", 2)
    if options.without and options.rescue is None:
        raise CommandError("--without says what --rescue leaves out: name a NODE, too", 2)
    if bool(options.directory) == options.memory:
        raise CommandError("name a DIR to keep messages in, or say --memory, not both", 2)
    host, port = _address(options.amqp)
    gmq = None if options.gmq == "none" else _address(options.gmq, "--gmq", GMQ_PORT)
    logging.basicConfig(
        level=options.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(options, screen, host, port, gmq))


def _address(text: str, option: str = "--amqp", port_shown: int = PORT) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"{option} takes HOST:PORT, as {HOST}:{port_shown}, not {text!r}", 2)
    return host, int(port)


def _loop_factory() -> Any:
    """uvloop's event loop, if that is installed: `pip install qindex[serve]`."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    options: argparse.Namespace, screen: Screen, host: str, port: int, gmq: tuple[str, int] | None
) -> int:
    from qindex.broker.rescue.rescue import Rescue, RescueRefused
    from qindex.serve.server import Server
    from qindex.serve.sockets import bind

    loop = asyncio.get_running_loop()
    rescue = None
    if options.rescue is not None:
        rescue = Rescue(options.rescue, options.without, loop.call_soon_threadsafe)
    server = Server(
        None if options.memory else options.directory,
        confirm=options.confirm,
        environment=os.environ,
        rescue=rescue,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        server.loop.add_signal_handler(number, _stop, stopped)
    try:
        found = bind(host, port)  # clients may connect from now on, and wait
        try:
            rescued = await server.begin_rescue()
        except RescueRefused as error:
            for problem in error.problems:
                screen.error(problem)
            raise CommandError(str(error), 1) from None
        bound = await server.accept(found)
        gmq_bound = await server.listen_gmq(*gmq) if gmq is not None else None
        _say(options, screen, server, _shown(host, bound), rescued)
        if gmq is not None and gmq_bound is not None:
            screen.line(f"serving gmq's protocols on {_shown(gmq[0], gmq_bound)}")
            screen.out.flush()
        server.failed.add_done_callback(lambda _: stopped.set())
        await stopped.wait()
    finally:
        await server.stop()
    if server.failed.done():
        raise CommandError(f"the disk failed a sync: {server.failed.result()}", 1)
    return 0


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _stop(stopped: asyncio.Event) -> None:
    if stopped.is_set():
        os._exit(130)  # the second signal: kill -9 is a supported way to stop
    stopped.set()


def _say(
    options: argparse.Namespace, screen: Screen, server: Server, address: str, rescued: str
) -> None:
    what = "memory" if options.memory else options.directory
    promise = {
        "durable": "a confirm survives a power cut",
        "written": "a confirm survives kill -9",
    }[options.confirm]
    if options.memory:
        promise = "nothing survives the process"
    vhosts = ", ".join(server.node.vhosts)
    more = f"; {rescued}" if rescued else ""
    screen.line(f"serving {what} on amqp://{address} (virtual hosts: {vhosts}; {promise}){more}")
    screen.out.flush()  # who has started it waits for this line
