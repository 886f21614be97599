"""qindex demo: the main job in a few seconds, proven.

A dead RabbitMQ node's directory, which ships with qindex, is recovered into a
fresh store. Another process opens that store, publishes, gets and acks beside
the recovered queues, and is killed with SIGKILL in the middle. The store is
opened again: every message that RabbitMQ had, and every one that the killed
process had reported, must be there once, unaltered and in order.
Then everything is got and acked, until the store is empty, and checked.

Whatever is printed was measured or compared in this very run.

exit codes: 0 all is proven; 1 a proof failed (the files are kept); 2 refused.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import qindex
from qindex.brokers.rabbitmq.directory import Node, open_node
from qindex.brokers.recover import RecoverReport, recover_into
from qindex.cli.arguments import add_output
from qindex.cli.demo import proof
from qindex.cli.demo.hands import Writer, drain, unpack
from qindex.cli.demo.writer import digest_of
from qindex.look.screen import CommandError, Screen
from qindex.look.stores import damage_count
from qindex.look.text import count, duration, rate, size
from qindex.private import make_folder

NODE: Final = Path(__file__).with_name("demo_node")
WRITER_QUEUE: Final = "beside"
WRITER_SECONDS: Final = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="PATH", help="work there (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the files and say where they are")
    add_output(parser, "JSON: the figures and proofs")


def run(options: argparse.Namespace, screen: Screen) -> int:
    folder = _folder(options.dir)
    demo = Demo(screen, folder, quiet=options.json)
    keep = options.keep
    try:
        demo.run()
        keep = keep or bool(demo.failures)
    finally:
        if not keep:
            shutil.rmtree(folder / "node", ignore_errors=True)
            shutil.rmtree(folder / "store", ignore_errors=True)
            with suppress(OSError):
                folder.rmdir()
    if options.json:
        kept = str(folder) if keep else None
        screen.json({**demo.figures, "failures": demo.failures, "kept_in": kept})
    else:
        demo.conclude(folder if keep else None)
    return 1 if demo.failures else 0


def _folder(asked: str | None) -> Path:
    if asked is None:
        return Path(tempfile.mkdtemp(prefix="qindex-demo-"))
    folder = Path(asked)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"{asked!r} is not an empty directory: choose another --dir")
    make_folder(folder)
    return folder


class Demo:
    """The steps in their order; each leaves its figures and, if it proves something, a verdict."""

    def __init__(self, screen: Screen, folder: Path, *, quiet: bool) -> None:
        self.screen = screen
        self.folder = folder
        self.quiet = quiet
        self.figures: dict[str, Any] = {}
        self.failures: list[str] = []
        self.started = perf_counter()
        self.truth = proof.read_truth(NODE.with_suffix(".json"))
        self.wanted = proof.truth_rows(self.truth)

    def run(self) -> None:
        """All of it. CommandError if a step could not be done at all."""
        recovered = self.recover()
        told = self.kill_a_writer()
        started = perf_counter()
        with qindex.open(self.folder / "store", create=False) as store:
            waiting = self.reopen(store, recovered, started)
            looked = self.prove(store, recovered, told)
            self.drain(store, looked, waiting)

    # --- the steps ------------------------------------------------------------------------------

    def recover(self) -> RecoverReport:
        """The dead node into a fresh store, and what is in there against the truth."""
        self.section("A dead RabbitMQ node, recovered")
        file_bytes = unpack(NODE.with_suffix(".tar.xz"), self.folder / "node")
        started = perf_counter()
        with (
            self.screen.progress("recovering", "messages") as progress,
            open_node(self.folder / "node") as node,
            qindex.open(self.folder / "store") as store,
        ):
            self.say_found(node, file_bytes, perf_counter() - started)
            started = perf_counter()
            report = recover_into(
                node,
                store,
                keep_expired=True,
                progress=lambda so_far: progress.at(so_far.messages, so_far.live),
            )
            seconds = perf_counter() - started
            tally = proof.Tally()
            for queue in report.queues:
                found = proof.recovered_rows(store.queue(queue.into).browse())
                tally.add(proof.compare(self.wanted[queue.group, queue.name], found))
            damage = damage_count(node.findings)
        self.figures["recovered"] = {
            "messages": report.messages,
            "body_bytes": report.body_bytes,
            "seconds": round(seconds, 6),
            "proof": proof.as_json(tally),
        }
        self.say(
            "recovered",
            f"{report.messages:,} of {report.live:,} messages, {size(report.body_bytes)},"
            f" into a fresh store in {duration(seconds)}, synced",
        )
        self.verdict(
            "proof",
            tally.is_clean and report.messages == report.live == tally.expected and damage == 0,
            f"all {tally.expected:,} are as RabbitMQ had them:"
            " digest, order, exchange, routing key, redelivered",
            f"{tally.expected:,} expected: {tally}; {count(damage, 'damaged place')} in the node",
        )
        return report

    def say_found(self, node: Node, file_bytes: int, seconds: float) -> None:
        """What the node's directory holds."""
        counts = node.counts
        queue_count = sum(len(vhost.queues) for vhost in node.vhosts)
        self.figures["dead_node"] = {
            "node": node.name,
            "version": self.truth["rabbitmq"],
            "file_bytes": file_bytes,
            "vhost_count": len(node.vhosts),
            "queue_count": queue_count,
            "published": counts.published,
            "acked": counts.acked,
            "transient": counts.transient,
            "live": counts.live,
            "seconds": round(seconds, 6),
        }
        self.say(
            "found",
            f"{node.name}, RabbitMQ {self.truth['rabbitmq']}:"
            f" {count(len(node.vhosts), 'virtual host')}, {count(queue_count, 'queue')},"
            f" {size(file_bytes)} of files",
        )
        self.say(
            "in its indexes",
            f"{counts.live:,} live, {counts.transient:,} transient, {counts.acked:,} acked"
            f" messages; read in {duration(seconds)}",
        )

    def kill_a_writer(self) -> proof.WriterReport:
        """Another process works in the store until it is killed; returns what it had reported."""
        self.section("A process that writes beside it, killed")
        with self.screen.progress("publishing", "messages") as progress:
            writer = Writer(self.folder / "store", WRITER_QUEUE)
            raw, seconds = writer.run_and_kill(WRITER_SECONDS, progress.at)
        told = proof.parse_report(raw)
        published, acked = len(told.published), len(told.acked)
        publish_seconds, ack_seconds = told.publish_ns / 1e9, told.ack_ns / 1e9
        self.figures["killed_writer"] = {
            "published": published,
            "acked": acked,
            "seconds": round(seconds, 6),
            "publishes_per_second": round(published / publish_seconds),
            "get_acks_per_second": round(acked / ack_seconds),
        }
        self.say(
            "reported",
            f"{published:,} published, {acked:,} got and acked, in {duration(seconds)}",
        )
        self.say(
            "speed",
            f"{rate(published, publish_seconds)} publishes/s, {rate(acked, ack_seconds)}"
            " get + ack/s, one call each, about 100 bytes",
        )
        self.say("ended", "by SIGKILL, while it was working; it closed nothing")
        return told

    def reopen(self, store: qindex.Store, recovered: RecoverReport, started: float) -> int:
        """Until the first message of the writer's queue can be had, and then all others."""
        self.section("The store, opened again")
        first = store.queue(WRITER_QUEUE, create=False).peek()
        first_seconds = perf_counter() - started
        waiting = len(store.queue(WRITER_QUEUE))
        for queue in recovered.queues:
            waiting += len(store.queue(queue.into, create=False))
        seconds = perf_counter() - started
        unclean = store.stats().unclean_session
        damage = damage_count(store.findings)
        self.figures["reopened"] = {
            "first_message_seconds": round(first_seconds, 6),
            "all_queues_seconds": round(seconds, 6),
            "waiting": waiting,
            "damage": damage,
        }
        self.say(
            "reopened",
            f"{duration(first_seconds)} to the first message, {duration(seconds)} to all"
            f" {count(len(recovered.queues) + 1, 'queue')}; {waiting:,} messages are waiting",
        )
        self.verdict(
            "recovery",
            first is not None and unclean > 0 and damage == 0,
            "knows that it was not closed, and met no damage",
            f"unclean session {unclean}, {count(damage, 'damaged place')}, first {first!r}",
        )
        return waiting

    def prove(
        self, store: qindex.Store, recovered: RecoverReport, told: proof.WriterReport
    ) -> dict[str, list[tuple[int, str]]]:
        """Every message against the truth and against the writer's report, by digests.

        Returns what it saw: ReqIds and digests by queue.
        """
        tally, flags_lost = proof.Tally(), 0
        looked: dict[str, list[tuple[int, str]]] = {}
        with self.screen.progress("comparing digests") as progress:
            progress.at(0)
            for queue in recovered.queues:
                wanted = self.wanted[queue.group, queue.name]
                messages = list(store.queue(queue.into).browse())
                looked[queue.into] = [(m.req_id, digest_of(m.body)) for m in messages]
                found = proof.recovered_rows(messages)
                flags_lost += proof.redelivered_lost(wanted, found)
                wanted, found = proof.without_redelivered(wanted), proof.without_redelivered(found)
                tally.add(proof.compare(wanted, found))
            found = proof.writer_rows(store.queue(WRITER_QUEUE).browse())
            looked[WRITER_QUEUE] = [content for _, content in found]
            beside = proof.compare(proof.expected_rows(told, found), found)
            for message in store.queue(WRITER_QUEUE).browse(stop=max(told.held) + 1):
                flags_lost += message.req_id in told.held and not message.redelivered
        self.figures["proof"] = {
            "recovered": proof.as_json(tally),
            "killed_writer": proof.as_json(beside),
            "redelivered_lost": flags_lost,
        }
        for label, one in (("from RabbitMQ", tally), ("from the writer", beside)):
            text = f"{one.expected:,} messages: {one}"
            self.verdict(label, one.is_clean, text, text)
        happened = beside.expected - (len(told.published) - len(told.acked))
        self.say("unreported", told.in_doubt(happened))
        self.verdict(
            "redelivered",
            flags_lost == 0,
            f"all that had been delivered say so, also the {len(told.held)} that the writer held",
            f"{flags_lost:,} that had been delivered do not say so",
        )
        return looked

    def drain(
        self, store: qindex.Store, looked: dict[str, list[tuple[int, str]]], waiting: int
    ) -> None:
        """Gets and acks everything, in the order in which it was looked at; nothing is left."""
        self.section("Drained")
        drained, seconds, misplaced = 0, 0.0, 0
        with self.screen.progress("draining", "messages") as progress:
            for name in store.queues():

                def at(done: int, before: int = drained) -> None:
                    progress.at(before + done, waiting)

                got, taken = drain(store.queue(name), at)
                misplaced += sum(a != b for a, b in zip_longest(looked.get(name, []), got))
                drained += len(got)
                seconds += taken
        left = sum(len(store.queue(name)) for name in store.queues())
        bodies = store.stats().live_references
        damage = damage_count(store.check())
        self.figures["drained"] = {
            "messages": drained,
            "seconds": round(seconds, 6),
            "misplaced": misplaced,
            "left": left,
            "damage": damage,
        }
        speed = f"{rate(drained, seconds)} get + ack/s"
        self.say("drained", f"{drained:,} messages in {duration(seconds)}: {speed}, one call each")
        self.verdict(
            "order",
            misplaced == 0 and drained == waiting,
            "each came in its place, with its digest",
            f"{drained:,} of {waiting:,} came, {misplaced:,} not in their place",
        )
        self.verdict(
            "store",
            left + bodies + damage == 0,
            "empty; its check, which reads everything, is clean",
            f"{left:,} messages and {bodies:,} bodies left, {count(damage, 'damaged place')}",
        )

    # --- what is shown --------------------------------------------------------------------------

    def section(self, title: str) -> None:
        if not self.quiet:
            self.screen.line()
            self.screen.heading(title)

    def say(self, label: str, text: str) -> None:
        if not self.quiet:
            self.screen.pair(label, text, columns=15)

    def verdict(self, label: str, ok: bool, good: str, bad: str) -> None:
        """A claim that was computed; what failed is kept."""
        if not ok:
            self.failures.append(f"{label}: {bad}")
        self.say(label, f"{self.screen.mark(ok)} {good if ok else bad}")

    def conclude(self, kept: Path | None) -> None:
        seconds = duration(perf_counter() - self.started)
        self.screen.line()
        if self.failures:
            failed = f"{count(len(self.failures), 'proof')} failed"
            self.screen.line(f"{self.screen.paint(failed, 'red')}, in {seconds}.")
        else:
            verdict = self.screen.paint("Nothing lost, nothing doubled, nothing altered", "green")
            self.screen.line(f"{verdict}, in {seconds}.")
        if kept is not None:
            self.screen.line(f"The files are in {kept}: try qindex stats {kept / 'store'}")
