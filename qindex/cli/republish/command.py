"""qindex republish: publish messages to a broker again.

Publish the chosen messages of a store, or of a dead broker's directory,
to a broker that speaks AMQP 0-9-1 (needs 'qindex[amqp]'). Each message is
published with its own properties and headers, as mandatory, and counts as
done when the broker has confirmed it.

Messages go straight into the queue of their name, which must exist (--declare
makes it, durable and without arguments). With --as-published they go through
the exchange and routing key that they were published with: then a message that
was in three queues is published three times.

At least once: FILE notes what was confirmed. Stopped by an error or Ctrl-C, the
same command goes on with the next message. After a kill, up to 100 messages are
published a second time. A message whose confirm never came may be there, too.

  --strip-prefix P  take the prefix off the queues' names: 'vhost/' of a queue
                    that was recovered from another virtual host
  --rate N          at most N messages a second

What has expired is left out, and so are dead letters (--state says what is
taken). A delayed message is not delayed there. A time to live starts anew. A
user_id that is not the login's is left out, since brokers refuse it.
Nothing is acked or changed in DIR.

exit codes: 0 all is confirmed; 1 all was tried: some were unroutable, or are
damaged (the text says which); 2 stopped: the text says why, run it again to go
on; 130 interrupted, likewise.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final

from qindex.apart import refuse_inside
from qindex.cli.arguments import add_directory, add_output
from qindex.cli.checkpoint import Checkpoint
from qindex.cli.republish.amqp import Broker, Login, Pace, Stopped, Unroutable, Unsendable, connect
from qindex.look.at_time import add_at_time
from qindex.look.members import add_members
from qindex.look.messages import FOR_CONSUMERS, Found, add_choice, choice_of, positive
from qindex.look.screen import CommandError, Screen
from qindex.look.sources import (
    Position,
    Source,
    chosen,
    chosen_names,
    open_source,
    total_of,
)
from qindex.look.stores import stripped
from qindex.look.telling import tell_damage
from qindex.look.text import count, duration, printable, rate

COMMIT_MESSAGES: Final = 100
LINES_MAX: Final = 20


def configure(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_members(parser)
    add_at_time(parser)
    add_choice(parser, states=FOR_CONSUMERS)
    parser.add_argument(
        "--amqp", metavar="URL", required=True, help="amqp://user:password@host:port/vhost"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        required=True,
        help="file that notes what is confirmed, to go on from",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--as-published",
        action="store_true",
        help="publish to the original exchange, not to the queue",
    )
    where.add_argument("--declare", action="store_true", help="make queues that do not exist")
    parser.add_argument(
        "--strip-prefix", metavar="P", default="", help="prefix that is taken off the queues' names"
    )
    parser.add_argument(
        "--rate", type=positive, metavar="N", help="publish at most N messages a second"
    )
    add_output(parser, "JSON: the account")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.as_published and options.strip_prefix:
        raise CommandError("--strip-prefix is for queues: --as-published goes to none by its name")
    login = Login.from_url(options.amqp)
    choice = choice_of(options)
    job = {
        "command": "republish",
        "source": str(Path(options.dir).resolve()),
        "choice": choice.as_json(),
        "to": login.place,
        "as_published": options.as_published,
        "strip_prefix": options.strip_prefix,
        **({} if options.at_time is None else {"at_time": options.at_time}),
    }
    with open_source(options.dir, screen, options.member, options.at_time) as source:
        path = Path(options.checkpoint).absolute()
        refuse_inside(path, source.root)
        if not path.parent.is_dir():
            raise CommandError(f"{str(path.parent)!r} is no directory: make it first")
        names = stripped(chosen_names(source, choice), options.strip_prefix)
        checkpoint = Checkpoint(path, job)
        checkpoint.load()
        for key in ("published", "unroutable", "damaged"):
            checkpoint.state.setdefault(key, 0)
        started, before = time.monotonic(), checkpoint.state["published"]
        if not checkpoint.complete:
            with connect(login, options.at_time) as broker:
                _republish(screen, source, options, checkpoint, broker, names)
        source.missing = checkpoint.state.get("missing", [])
        seconds = time.monotonic() - started
        _show(screen, checkpoint.state, options, login, before, seconds)
        bad = checkpoint.state["unroutable"] or checkpoint.state["damaged"]
        return tell_damage(screen, source) or (1 if bad else 0)


def _republish(
    screen: Screen,
    source: Source,
    options: argparse.Namespace,
    checkpoint: Checkpoint,
    broker: Broker,
    names: dict[str, str],
) -> None:
    choice = choice_of(options)
    run = _Run(screen, source, checkpoint, broker)
    try:
        if not options.as_published:
            wanted = [names[name] for name in names if source.depth(name)]
            broker.need_queues(wanted, declare=options.declare)
        with screen.progress("publishing", "messages") as progress:
            total = max(0, total_of(source, choice) - run.done)
            pace = Pace(options.rate, broker.sleep)
            for number, message in enumerate(chosen(source, choice, checkpoint.position)):
                pace.wait()
                queue = None if options.as_published else names[message.queue]
                run.publish(message, queue)
                progress.at(number + 1, total)
        checkpoint.state["missing"] = source.missing
        run.save(complete=True)
    except Stopped as error:
        published = count(checkpoint.state["published"], "message")
        raise CommandError(f"{error} ({published} so far: run it again to go on)") from None
    except KeyboardInterrupt:
        raise CommandError("interrupted: run the same command again to go on", 130) from None
    finally:
        run.save(complete=checkpoint.complete)


class _Run:
    """Publishes, counts, and saves the checkpoint now and then."""

    def __init__(
        self, screen: Screen, source: Source, checkpoint: Checkpoint, broker: Broker
    ) -> None:
        self._screen = screen
        self._source = source
        self._checkpoint = checkpoint
        self._broker = broker
        self._position = checkpoint.position
        self._damaged = checkpoint.state["damaged"]
        self._unsaved = 0

    @property
    def done(self) -> int:
        state = self._checkpoint.state
        return int(state["published"] + state["unroutable"])

    def publish(self, message: Found, queue: str | None) -> None:
        state = self._checkpoint.state
        try:
            self._broker.publish(message, queue)
            state["published"] += 1
        except Unroutable as error:
            state["unroutable"] += 1
            if state["unroutable"] <= LINES_MAX:
                where = f"{printable(message.queue)} {message.req_id}"
                self._screen.error(f"unroutable: message {where}: {error}")
        except Unsendable as error:
            self._source.tell(f"message {printable(message.queue)} {message.req_id}: {error}")
        position = self._position
        same = position is not None and position.queue == message.queue
        number = position.count + 1 if position is not None and same else 1
        self._position = Position(message.queue, message.part, message.req_id, number)
        self._unsaved += 1
        if self._unsaved >= COMMIT_MESSAGES:
            self.save()

    def save(self, *, complete: bool = False) -> None:
        self._checkpoint.state["damaged"] = self._damaged + self._source.damaged
        self._checkpoint.save(self._position, complete=complete)
        self._unsaved = 0


def _show(
    screen: Screen,
    state: dict[str, Any],
    options: argparse.Namespace,
    login: Login,
    before: int,
    seconds: float,
) -> None:
    if options.json:
        account = {key: state[key] for key in ("published", "unroutable", "damaged")}
        to = {"path": options.dir, "out": login.place, "seconds": round(seconds, 6)}
        screen.json({**to, **account, "published_before": before})
        return
    now = state["published"] - before
    told = f"{count(state['published'], 'message')} confirmed by {printable(login.place)}"
    if before:
        told += f", {before:,} of them in an earlier run"
    if now:
        told += f"; {now:,} in {duration(seconds)} ({rate(now, seconds)} messages/s)"
    screen.line(told)
    if state["unroutable"]:
        number = screen.paint(count(state["unroutable"], "message"), "red")
        screen.line(f"{number} unroutable: no queue is bound for them; they are not there")
