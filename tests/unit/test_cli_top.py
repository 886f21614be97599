"""qindex top: what a look says, that looking disturbs nobody, and the pages on a terminal."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from helpers import files_of

import qindex
from qindex.cli.top.pages import MessagePage, QueuePage, QueuesPage, table
from qindex.look.watch import Watch


def queue_of(look, name):
    return next(queue for queue in look.queues if queue.name == name)


@pytest.fixture
def live(tmp_path):
    """A store that is open for writing, with a flush only where a test asks for one."""
    with qindex.open(tmp_path / "live", idle=3600) as store:
        yield store


def test_once_shows_each_queue_as_it_is(run, store_path):
    code, out, err = run("top", store_path, "--once", "--interval", 0.1, "--json")
    assert (code, err) == (0, "")
    look = json.loads(out)
    assert [(q["queue"], q["messages"], int(q["oldest_req_id"])) for q in look["queues"]] == [
        ("mails", 235, 70),
        ("orders", 235, 70),
    ]
    assert {q["rates"]["published"] for q in look["queues"]} == {0.0}
    assert look["message_files"] == 1
    assert look["unclean_session"] == 0
    code, out, err = run("top", store_path, "--once", "--interval", 0.1)
    assert (code, err) == (0, "")
    assert "2 queues, 470 messages" in out
    assert "closed" in out


def test_looking_changes_no_byte(store_path):
    before = files_of(store_path)
    watch = Watch(str(store_path))
    watch.look(), watch.look()
    watch.messages("mails", 0, 10, lambda message: message)
    assert files_of(store_path) == before


def test_rates_are_what_was_published_and_acked_between_two_looks(live):
    queue, watch = live.queue("orders"), Watch(live.path)
    queue.publish_many([b"x"] * 300)
    first = queue_of(watch.look(), "orders").rates
    assert (first.published, first.acked) == (None, None)
    queue.publish_many([b"x"] * 500)
    queue.ack_many(queue.get_many(250)[:200])
    rates = queue_of(watch.look(), "orders").rates
    assert rates.published / rates.acked == pytest.approx(500 / 200)
    assert rates.delivered / rates.acked == pytest.approx(250 / 200)


def test_a_flush_between_two_looks_hides_nothing_that_was_published(live):
    queue, watch = live.queue("orders"), Watch(live.path)
    queue.publish_many([b"x"] * 300)
    watch.look()
    queue.publish_many([b"x"] * 500)
    queue.ack_many(queue.get_many(200))
    queue.flush()
    queue.publish_many([b"x"] * 100)
    rates = queue_of(watch.look(), "orders").rates
    assert rates.published / rates.acked == pytest.approx(600 / 200)
    assert rates.delivered is None  # these records are gone


def test_unacked_are_those_that_were_handed_out(live):
    queue, watch = live.queue("orders"), Watch(live.path)
    queue.publish_many([b"x"] * 1000)
    taken = queue.get_many(40)
    queue.ack_many(taken[5:15])
    assert queue_of(watch.look(), "orders").unacked == 30
    queue.ack_many(taken[:5] + taken[15:])
    assert queue_of(watch.look(), "orders").unacked == 0


def test_priorities_and_delays_are_counted(live):
    queue, watch = live.queue("orders"), Watch(live.path)
    queue.publish_many([b"x"] * 1000)
    watch.look()
    queue.publish_many([b"urgent"] * 30, priority=5)
    queue.publish_many([b"later"] * 4, due=4e9)
    taken = queue.get_many(20)
    queue.ack_many(taken[:17])
    look = queue_of(watch.look(), "orders")
    assert (look.messages, look.unacked, look.delayed, look.next_due) == (1017, 3, 4, 4e9)
    assert look.rates.published / look.rates.acked == pytest.approx(34 / 17)


def test_the_age_of_the_first_message_comes_from_the_clock_in_the_journal(live):
    queue = live.queue("orders")
    before = time.time()
    queue.publish(b"first", confirm=True)
    synced = time.time()
    queue.publish(b"second")  # carries the MARK of the sync before
    look = queue_of(Watch(live.path).look(), "orders")
    now = time.time()
    assert not look.oldest_is_older
    assert now - synced - 0.5 <= look.oldest_seconds <= now - before + 0.5


def test_a_message_in_a_segment_is_older_than_what_is_said(live):
    queue = live.queue("orders")
    queue.publish(b"first")
    queue.flush()
    flushed = time.time()
    look = queue_of(Watch(live.path).look(), "orders")
    assert look.oldest_is_older
    assert 0 <= look.oldest_seconds <= time.time() - flushed + 1


def test_a_message_that_says_when_it_was_published_is_believed(live):
    when = time.time() - 7200
    live.queue("jobs").publish(b"x", headers={"timestamp_ns": int(when * 1e9)})
    look = queue_of(Watch(live.path).look(), "jobs")
    assert not look.oldest_is_older
    assert look.oldest_seconds == pytest.approx(7200, abs=5)


def test_a_queue_that_was_deleted_and_made_anew_begins_anew(live):
    queue, watch = live.queue("q"), Watch(live.path)
    for _ in range(3):
        queue.publish_many([b"x"] * 50)
        queue.flush()
    watch.look()
    live.delete_queue("q")
    assert watch.look().queues == []
    live.queue("q").publish_many([b"x"] * 7)
    look = queue_of(watch.look(), "q")
    assert (look.messages, look.rates.published) == (7, None)
    live.queue("q").publish_many([b"x"] * 7)
    assert queue_of(watch.look(), "q").rates.published > 0


def test_a_damaged_queue_is_told_and_the_others_are_shown(run, store_path):
    for journal in sorted(store_path.glob("queues/*/journal.*"))[:1]:
        for name in ("journal.jif", "journal.alt"):
            file = journal.with_name(name)
            if file.exists():
                file.write_bytes(b"\xff" * 20_000)
    code, out, err = run("top", store_path, "--once", "--interval", 0.1)
    assert (code, err) == (1, "")
    assert "beyond reading" in out
    assert "235" in out
    assert "DAMAGE" in out


def test_what_is_no_store_is_refused_with_advice(run, tmp_path, dead_node):
    code, out, err = run("top", tmp_path / "nothing", "--once")
    assert (code, out) == (2, "")
    assert "no such directory" in err
    assert "qindex recover reads it" in run("top", dead_node, "--once").err


def test_without_a_terminal_tables_follow_each_other_until_interrupted(start, store_path):
    process = start("top", store_path, "--interval", 0.1)
    seen = 0
    for line in process.stdout:
        seen += line.startswith("  orders")
        if seen == 3:
            break
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(30) == 130


# --- pages --------------------------------------------------------------------------------------


def test_the_cursor_stays_on_its_queue_when_the_order_changes(live):
    for number, name in enumerate(("a", "b", "c")):
        live.queue(name).publish_many([b"x"] * (10 - number))
    watch, page = Watch(live.path), QueuesPage()
    page.read(watch, watch.look())
    assert [page.key(row) for row in range(3)] == ["a", "b", "c"]
    live.queue("c").publish_many([b"x"] * 50)
    page.read(watch, watch.look())
    assert [page.key(row) for row in range(3)] == ["c", "a", "b"]
    while page.sort != "name":
        page.press("s")
    assert [page.key(row) for row in range(3)] == ["a", "b", "c"]


def test_a_queue_page_goes_on_to_the_next_messages_and_back(live):
    live.queue("q").publish_many([b"body %d" % n for n in range(450)])
    watch = Watch(live.path)
    look = watch.look()
    page = QueuePage("q")
    page.read(watch, look)
    assert (page.key(0), len(page.rows(80))) == (0, 200)
    page.press("n")
    page.read(watch, look)
    assert page.key(0) == 200
    page.press("f")
    page.read(watch, look)
    assert page.key(0) == 0
    assert "body 0" in page.rows(80)[0]


def test_a_message_page_says_when_the_message_has_gone(live):
    queue = live.queue("q")
    queue.publish(b"\x00\xff binary", headers={"kind": "x\x1b[2J"})
    watch = Watch(live.path)
    page = MessagePage("q", 0)
    page.read(watch, watch.look())
    text = "\n".join(page.rows(80))
    assert "00 ff 20 62" in text
    assert "\x1b" not in text
    queue.ack(queue.get())
    page.read(watch, watch.look())
    assert "not in the queue any more" in page.head(80)[0]
    assert "00 ff 20 62" in "\n".join(page.rows(80))


@pytest.mark.parametrize("columns", [20, 60, 200])
def test_a_table_never_needs_more_columns_than_there_are(columns):
    rows = [["a long name " * 9, "1,000,000", "12"], ["短い名前", "7", "-"]]
    lines = table(["<queue", ">messages", ">unacked"], rows, columns, gives=0)
    assert max(len(line) for line in lines) <= columns


# --- a terminal ---------------------------------------------------------------------------------


class Terminal:
    """A program on a terminal of its own, which pyte draws."""

    def __init__(self, *arguments, columns=100, rows=24):
        pyte = pytest.importorskip("pyte")
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._fd, its_end = pty.openpty()
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        command = [sys.executable, "-m", "qindex", *map(str, arguments)]
        environment = {**os.environ, "TERM": "xterm"}
        self._process = subprocess.Popen(
            command, stdin=its_end, stdout=its_end, stderr=its_end, env=environment
        )
        os.close(its_end)

    def wait_for(self, text, seconds=60):
        """Until the text is on the screen."""
        end = time.monotonic() + seconds
        while text not in self.text():
            assert time.monotonic() < end, f"no {text!r} on the screen:\n{self.text()}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self._stream.feed(os.read(self._fd, 65536))

    def text(self):
        return "\n".join(self._screen.display)

    def press(self, keys):
        os.write(self._fd, keys)

    def exit_code(self):
        """Reads what is left, so that the program can end."""
        while self._process.poll() is None:
            if select.select([self._fd], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # its end is closed
                    os.read(self._fd, 65536)
        return self._process.returncode

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._fd)


@pytest.fixture
def terminal():
    started = []

    def terminal(*arguments):
        started.append(Terminal(*arguments))
        return started[-1]

    yield terminal
    for each in started:
        each.close()


def test_a_terminal_shows_queues_then_messages_then_one_message(live, terminal):
    live.queue("orders").publish_many([b"order %d" % number for number in range(9)])
    live.queue("mails").publish(b"to whom it may concern", headers={"kind": "letter"})
    terminal = terminal("top", live.path, "--interval", "0.1")
    terminal.wait_for("Enter open   s sort")
    assert "2 queues, 10 messages" in terminal.text()
    live.queue("orders").publish_many([b"more"] * 1000)
    terminal.wait_for("2 queues, 1,010 messages")  # it looks again
    terminal.press(b"j\r")
    terminal.wait_for("to whom it may concern")
    terminal.press(b"\r")
    terminal.wait_for("kind = letter")
    terminal.press(b"\x1b")
    terminal.wait_for("n next messages")
    terminal.press(b"\x1b")
    terminal.wait_for("s sort")
    terminal.press(b"q")
    assert terminal.exit_code() == 0
