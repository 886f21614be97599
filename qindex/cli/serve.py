"""qindex serve: a broker on a directory, for clients of AMQP 0-9-1 and of gmq.

Clients of RabbitMQ work as they are: pika, aio-pika, kombu and Celery, and those
of other languages. DIR is made if it is not there. It holds users and
virtual hosts; each of these is a store.

A persistent message in a durable queue survives kill -9 as soon as the server has
it, and a power cut as soon as it is confirmed. kill -9 is a supported way to stop:
the next start reads what the journals have. SIGTERM and Ctrl-C confirm what was
published, tell the clients and close; a second signal ends at once. SIGHUP opens the
log anew and reads the settings about it again. SIGUSR2 upgrades: it closes as SIGTERM
does and starts the installed version in the same process, with the same sockets: no
connection is refused meanwhile.

A new DIR has the user guest, with the password guest, who can connect from this
machine only, and the virtual host "/". QINDEX_DEFAULT_USER, QINDEX_DEFAULT_PASS
and QINDEX_DEFAULT_VHOST name others when DIR is made.

--page-only STORE serves no broker but a page at --http (127.0.0.1:15672) that shows
a store: one that a program has open, or that none has. It is only read. Who has the
address that is printed, with its key, may look.

--rescue NODE serves what is in the directory of a dead RabbitMQ node: users,
virtual hosts, exchanges, bindings, queues and messages. NODE is only read. Clients
can connect at once; a queue is served when its messages are in.

A setting comes from its flag, from the environment (QINDEX_SERVE_AMQP,
QINDEX_SERVE_LOG_FILE ...) or from the file of --config; the first that has it wins.
The file is TOML, with the names of the flags: amqp, gmq, gmq-http, gmq-pop-seconds,
http, http-host, confirm, log, log-format, log-file, audit-file. Sockets that systemd hands over
(LISTEN_FDS) take the place of --amqp.

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
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from qindex.brokers.tree import UnknownFormat
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.screen import CommandError, Screen

if TYPE_CHECKING:
    from qindex.serve.logs import Logs
    from qindex.serve.server import Server
    from qindex.serve.settings import Settings
    from qindex.serve.stopping import Stopping

log: Final = logging.getLogger("qindex.serve")
HTTP_PORT: Final = 15672
HOST: Final = "127.0.0.1"
_NEEDS: Final = "{} needs more packages ({}): pip install 'qindex[serve]'"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", help="where the broker's data are")
    parser.add_argument(
        "--amqp",
        metavar="HOST:PORT",
        help=f"for AMQP clients (default: {HOST}:5672); port 0: one that the system chooses",
    )
    parser.add_argument(
        "--gmq",
        metavar="HOST:PORT",
        help=f"for gmq's protocols, which have no login: for example {HOST}:9503 (default: none)",
    )
    parser.add_argument(
        "--gmq-http",
        metavar="HOST:PORT",
        help=f"where to answer the HTTP of gmq's version 2, for example {HOST}:9504 "
        "(default: none); it has no login, and needs qindex[serve]",
    )
    parser.add_argument(
        "--gmq-pop-seconds",
        metavar="SECONDS",
        help="how long a pop of gmq's version 1 waits for a job (default: 2, as gmq's own)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help=f"where to answer HTTP, for example {HOST}:{HTTP_PORT}: the page, the management API, "
        "metrics (default: none); needs qindex[serve]",
    )
    parser.add_argument(
        "--http-host",
        metavar="NAMES",
        help="more names of this machine that HTTP clients may use, separated by commas",
    )
    parser.add_argument(
        "--page-only",
        metavar="STORE",
        help="serve only the web page of this store, which is only read; no broker runs",
    )
    parser.add_argument(
        "--memory", action="store_true", help="keep everything in memory; needs no DIR"
    )
    parser.add_argument(
        "--confirm",
        choices=["durable", "written"],
        help="what a confirm means: the message survives a power cut (durable, the default), or "
        "kill -9 (written)",
    )
    parser.add_argument(
        "--rescue",
        metavar="NODE",
        help="serve what is in the directory of a dead RabbitMQ node, which is only read; DIR has "
        "to be new, or left by an earlier run with the same NODE",
    )
    parser.add_argument(
        "--without",
        metavar="WHAT",
        action="append",
        default=[],
        help="with --rescue: leave this part of NODE out. The message that refuses NODE names the "
        "word to use",
    )
    add_members(parser)
    add_at_time(parser)
    parser.add_argument("--config", metavar="FILE", help="read settings from this TOML file")
    parser.add_argument(
        "--log",
        metavar="LEVEL",
        choices=["debug", "info", "warning", "error"],
        help="log from this level on: debug, info (default), warning or error",
    )
    parser.add_argument(
        "--log-format", choices=["text", "json"], help="a line of text (default) or of JSON"
    )
    parser.add_argument("--log-file", metavar="FILE", help="where the log goes (default: stderr)")
    parser.add_argument(
        "--audit-file",
        metavar="FILE",
        help="also log here who has changed what, over HTTP and by qindex ctl",
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    from qindex.serve.logs import Logs
    from qindex.serve.sockets import start_anew
    from qindex.serve.stopping import Stopping

    if options.rescue is not None and options.memory:
        raise CommandError("--rescue needs a DIR: what is rescued has to survive", 2)
    if options.without and options.rescue is None:
        raise CommandError("--without says what --rescue leaves out: name a NODE, too", 2)
    if (options.member or options.at_time is not None) and options.rescue is None:
        raise CommandError("--member and --at-time are for --rescue: name a NODE, too", 2)
    if options.page_only is not None:
        return _run_page(options, screen)
    stopping = Stopping()
    if bool(options.directory) == options.memory:
        raise CommandError("name a DIR to keep messages in, or say --memory, not both", 2)
    settings = _settings(options)
    logs = Logs()
    logs.reopen(settings)
    running = _Run(options, screen, settings, logs, stopping)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(running.serve())
    finally:
        logs.close()
    if running.kept:
        start_anew(running.kept)
    return 0


def _run_page(options: argparse.Namespace, screen: Screen) -> int:
    """Serve the page of a store that is only read."""
    gmq = options.gmq or options.gmq_http
    if options.directory or options.memory or options.rescue or options.amqp or gmq:
        raise CommandError("--page-only STORE goes with --http alone: there is no broker", 2)
    settings = _settings(options)
    try:
        from qindex.serve.http.only import door
        from qindex.serve.http.only.store import Looker
    except ImportError as error:
        raise CommandError(_NEEDS.format("--page-only", error), 2) from None
    from qindex.serve.settings import addresses, hosts
    from qindex.serve.sockets import bind

    if settings.http == "none":
        settings = replace(settings, http=f"{HOST}:{HTTP_PORT}")

    async def serve() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        looker = Looker(options.page_only)
        await looker.begin()
        sockets, key = bind(*addresses(settings)["http"]), door.Key()
        url = f"http://{_shown(sockets[0])}/#key={key.text}"
        screen.line(f"serving a page of {options.page_only}, read-only, on {url}")
        screen.out.flush()
        await door.serve(looker, sockets, hosts(settings), key, stopped)

    asyncio.run(serve())
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    """All settings; their addresses can be read."""
    from qindex.serve.settings import NAMES, SettingsError, addresses, pop_seconds, read_settings

    flags = {name: getattr(options, name) for name in NAMES}
    try:
        found = read_settings(flags, os.environ, options.config)
        addresses(found)
        pop_seconds(found)
    except SettingsError as error:
        raise CommandError(str(error), 2) from None
    return found


def _loop_factory() -> Any:
    """uvloop's event loop, if that is installed: `pip install qindex[serve]`."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Run:
    """The server from its start to its end. `kept` are descriptors of sockets for the next one."""

    def __init__(
        self,
        options: argparse.Namespace,
        screen: Screen,
        settings: Settings,
        logs: Logs,
        stopping: Stopping,
    ) -> None:
        self._options = options
        self._screen = screen
        self._settings = settings
        self._logs = logs
        self._stopping = stopping
        self._stopped = stopping.asked
        self._sockets: dict[str, list[socket.socket]] = {}
        self.kept: list[tuple[str, int]] = []

    async def serve(self) -> None:
        from qindex.broker.errors import Invalid
        from qindex.broker.rescue.rescue import Rescue
        from qindex.serve.server import Server
        from qindex.serve.settings import addresses, pop_seconds
        from qindex.serve.sockets import handed_over

        options = self._options
        loop = asyncio.get_running_loop()
        # First of all: without a handler, these end the process, while stores are opened, too.
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(signal.SIGUSR2, self._start_anew)
        rescue = None
        if options.rescue is not None:
            rescue = Rescue(
                options.rescue,
                options.without,
                loop.call_soon_threadsafe,
                members=options.member,
                at_time=options.at_time,
            )
        try:
            server = Server(
                None if options.memory else options.directory,
                confirm=self._settings.confirm,  # type: ignore[arg-type]  # it is one of both
                environment=os.environ,
                rescue=rescue,
            )
        except (Invalid, UnknownFormat) as error:  # nothing was made
            raise CommandError(f"{error}; nothing is served", 2) from None
        server.gmq_pop_seconds = pop_seconds(self._settings)
        server.on_reload = self._reload
        self._stopping.attach(loop)
        try:
            if self._stopped.is_set():
                return
            # Clients may connect from now on, and wait.
            found = handed_over(os.environ)
            for name, address in addresses(self._settings).items():
                if name not in found:
                    found[name] = _bind(name, *address)
            rescued = await self._begin_rescue(server)
            await server.accept(found["amqp"])
            if "gmq" in found:
                await server.accept_gmq(found["gmq"])
            if "http" in found or "gmq-http" in found:
                await self._answer_http(server, found)
            self._sockets = found
            self._say(server, _shown(found["amqp"][0]), rescued)
            server.failed.add_done_callback(lambda _: self._stopped.set())
            await self._stopped.wait()
        finally:
            await server.stop_or_fail()
            if self.kept:
                self._stopping.ignore(loop, signal.SIGHUP, signal.SIGUSR2)
        if server.failed.done():
            raise CommandError(f"the disk failed a sync: {server.failed.result()}", 1)

    async def _answer_http(self, server: Server, found: dict[str, list[socket.socket]]) -> None:
        """Open the doors of HTTP that are wanted."""
        from qindex.serve.settings import hosts

        names = hosts(self._settings)
        try:
            from qindex.serve.http import version2
            from qindex.serve.http.door import accept
        except ImportError as error:
            wanted = " and ".join(f"--{name}" for name in ("gmq-http", "http") if name in found)
            raise CommandError(_NEEDS.format(wanted, error), 2) from None
        if "gmq-http" in found:
            await version2.accept(server, found["gmq-http"], names)
        if "http" in found:
            await accept(server, found["http"], names)

    async def _begin_rescue(self, server: Server) -> str:
        from qindex.broker.rescue.rescue import RescueRefused

        try:
            return await server.begin_rescue()
        except UnknownFormat as error:
            raise CommandError(f"{error}; nothing is served", 2) from None
        except RescueRefused as error:
            for problem in error.problems:
                self._screen.error(problem)
            raise CommandError(str(error), 1) from None

    def _start_anew(self) -> None:
        from qindex.serve.sockets import kept

        if not self._stopped.is_set() and self._sockets:
            log.info("starting anew, with the same sockets")
            self.kept = kept(self._sockets)
            self._stopped.set()

    def _reload(self) -> None:
        """Open the log anew; what cannot be read or opened is logged, and all stays as it was."""
        from qindex.serve.settings import RELOADED

        try:
            new = _settings(self._options)
            self._logs.reopen(new)
        except (CommandError, OSError) as error:
            log.error("the settings stay as they were: %s", error)
            return
        for name in new.__slots__:
            if name not in RELOADED and getattr(new, name) != getattr(self._settings, name):
                log.warning("the new %s counts from the next start on", name)
        log.info("the log was opened anew")

    def _say(self, server: Server, address: str, rescued: str) -> None:
        options, confirm = self._options, self._settings.confirm
        what = "memory" if options.memory else options.directory
        promise = {
            "durable": "a confirm survives a power cut",
            "written": "a confirm survives kill -9",
        }[confirm]
        if options.memory:
            promise = "nothing survives the process"
        vhosts = ", ".join(server.node.vhosts)
        more = f"; {rescued}" if rescued else ""
        self._screen.line(
            f"serving {what} on amqp://{address} (virtual hosts: {vhosts}; {promise}){more}"
        )
        if "gmq" in self._sockets:
            self._screen.line(f"serving gmq's protocols on {_shown(self._sockets['gmq'][0])}")
        if "gmq-http" in self._sockets:
            address = _shown(self._sockets["gmq-http"][0])
            self._screen.line(f"serving the HTTP of gmq's version 2 on http://{address}/")
        if "http" in self._sockets:
            address = _shown(self._sockets["http"][0])
            self._screen.line(f"serving the page and the management API on http://{address}/")
        self._screen.out.flush()  # who has started it waits for this line


def _bind(name: str, host: str, port: int) -> list[socket.socket]:
    from qindex.serve.sockets import bind

    try:
        return bind(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(f"cannot listen on --{name} {host}:{port}: {why}", 2) from None


def _shown(found: socket.socket) -> str:
    host, port = found.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
