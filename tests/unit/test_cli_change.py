"""The commands that change a store say what they will do, ask, and do that and no more."""

import io

import pytest

import qindex

CHANGES = {
    "redrive": ["orders"],
    "move": ["orders", "--to", "mails"],
    "purge": ["orders"],
    "delete": ["orders", "mails"],
    "rename": ["orders", "--to", "purchases"],
    "compact": [],
    "configure": ["orders", "max_messages=100", "lease=30"],
}


@pytest.fixture
def path(tmp_path):
    small = {"embed_below": 64, "segment_entries": 16, "message_file_size": 16384, "format": 2}
    with qindex.open(tmp_path / "data", **small) as store:
        orders = store.queue("orders", dead_letters=True)
        orders.publish_many([b"x" * 5000] * 30)
        orders.nack_many(orders.get_many(4), requeue=False)
        orders.ack_many(orders.get_many(6))
        orders.publish(b"later", due=4102444800)
        orders.get()  # ready again when the store is opened anew
        store.queue("mails").publish_many([b"mail"] * 3)
    return tmp_path / "data"


def states(path, name="orders"):
    with qindex.open(path, read_only=True) as store:
        if name not in store:
            return None
        queue = store.queue(name)
        return queue.ready, queue.delayed, queue.dead


def files_of(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("command", CHANGES)
def test_a_dry_run_says_what_would_be_done_and_changes_nothing(run, path, command):
    before = files_of(path)
    ran = run(command, path, *CHANGES[command], "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("would ")
    assert files_of(path) == before


@pytest.mark.parametrize("command", CHANGES)
def test_without_a_terminal_it_is_refused_unless_yes_is_said(run, path, command, monkeypatch):
    before = files_of(path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ran = run(command, path, *CHANGES[command])
    assert ran.code == 2
    assert "--yes" in ran.err
    assert files_of(path) == before
    assert run(command, path, *CHANGES[command], "--yes").code == 0


@pytest.mark.parametrize("command", CHANGES)
@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yse\n"])
def test_anything_but_yes_changes_nothing(run, path, command, answer, monkeypatch):
    before = files_of(path)
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ran = run(command, path, *CHANGES[command])
    assert (ran.code, ran.err) == (2, "Go on? [y/N] qindex: nothing was changed\n")
    assert files_of(path) == before


@pytest.mark.parametrize("answer", ["y\n", "Yes\n"])
def test_yes_does_it(run, path, answer, monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ran = run("redrive", path)
    assert ran.code == 0
    assert (
        ran.out
        == "will make 4 dead letters of orders ready again\norders: 4 messages ready again\n"
    )
    assert states(path) == (24, 1, 0)


def test_some_dead_letters_are_redriven(run, path):
    ran = run("redrive", path, "orders", "-n", 3, "--yes")
    assert ran.out.endswith("orders: 3 messages ready again\n")
    assert states(path) == (23, 1, 1)
    assert run("redrive", path, "mails", "--yes").out == "there is nothing to do\n"


@pytest.mark.parametrize(
    ("options", "out", "left"),
    [
        ([], "orders: 20 messages dropped", (0, 1, 4)),
        (["--state", "dead"], "orders: 4 messages dropped", (20, 1, 0)),
        (["--state", "delayed,dead"], "orders: 5 messages dropped", (20, 0, 0)),
        (["--state", "ready,delayed,dead"], "orders: 25 messages dropped", (0, 0, 0)),
    ],
)
def test_a_purge_takes_what_is_in_these_states(run, path, options, out, left):
    ran = run("purge", path, "orders", "--yes", *options)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, out)
    assert states(path) == left
    assert states(path, "mails") == (3, 0, 0)
    assert run("check", path).code == 0
    assert run("purge", path, "orders", "--yes", *options).out == "there is nothing to do\n"


@pytest.mark.parametrize(
    ("options", "moved", "left", "there"),
    [
        ([], 20, (0, 1, 4), (23, 0, 0)),
        (["-n", 7], 7, (13, 1, 4), (10, 0, 0)),
        (["--state", "dead"], 4, (20, 1, 0), (7, 0, 0)),
    ],
)
def test_a_move_takes_what_is_in_one_state(run, path, options, moved, left, there):
    ran = run("move", path, "orders", "--to", "mails", "--yes", *options)
    told = f"orders to mails: {moved} messages moved"
    assert (ran.code, ran.out.splitlines()[-1]) == (0, told)
    assert (states(path), states(path, "mails")) == (left, there)
    assert run("check", path).code == 0


def test_a_move_of_many_goes_in_several_transactions_and_keeps_to_limits(run, tmp_path):
    with qindex.open(tmp_path / "data", format=2) as store:
        store.queue("a").publish_many([f"{n}".encode() for n in range(1200)])
        store.queue("b", max_messages=1100)
        store.queue("c", max_bytes=1 << 30)
    for target, text in (("b", "may have 1,100"), ("c", "max_bytes")):
        ran = run("move", tmp_path / "data", "a", "--to", target, "--yes")
        assert (ran.code, text in ran.err) == (2, True)
    assert run("move", tmp_path / "data", "a", "--to", "b", "-n", 1100, "--yes").code == 0
    with qindex.open(tmp_path / "data") as store:
        bodies = [[message.body for message in store.queue(name).browse()] for name in "bac"]
    numbers = [f"{n}".encode() for n in range(1200)]
    assert bodies == [numbers[:1100], numbers[1100:], []]


def test_a_move_that_cannot_be_changes_nothing(run, path, tmp_path):
    before = files_of(path)
    for names in (["orders", "--to", "orders"], ["orders", "--to", "nobody"]):
        assert run("move", path, *names, "--yes").code == 2
    assert files_of(path) == before
    with qindex.open(tmp_path / "old", format=1) as store:
        store.queue("a").publish(b"x")
        store.queue("b")
    ran = run("move", tmp_path / "old", "a", "--to", "b", "--yes")
    assert (ran.code, "qindex upgrade" in ran.err) == (2, True)


def test_a_state_that_is_none_is_refused(run, path):
    for state in ("unacked", "", "ready,gone"):
        ran = run("purge", path, "orders", "--yes", "--state", state)
        assert (ran.code, "is none of ready, delayed, dead" in ran.err) == (2, True)


def test_queues_are_deleted(run, path):
    ran = run("delete", path, "orders", "--yes", "--if-empty")
    assert (ran.code, states(path)) == (2, (20, 1, 4))
    assert "queue orders has 25 messages" in ran.err
    ran = run("delete", path, "orders", "none", "--yes")
    assert (ran.code, states(path)) == (2, (20, 1, 4))
    ran = run("delete", path, "orders", "--yes")
    assert ran.out.splitlines()[-1] == "orders: deleted, with 25 messages"
    assert (states(path), states(path, "mails")) == (None, (3, 0, 0))


def test_space_is_freed(run, path):
    run("purge", path, "orders", "--state", "ready,dead", "--yes")

    def size():
        return sum(file.stat().st_size for file in path.glob("messages/*"))

    ran = run("compact", path, "--yes")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].endswith("B freed")
    assert size() <= 2 * 16384  # the newest file is written to, and stays as it is
    assert run("check", path).code == 0


@pytest.mark.parametrize("command", CHANGES)
def test_a_store_that_a_process_has_open_is_not_changed(run, path, command):
    with qindex.open(path, expire=False):
        ran = run(command, path, *CHANGES[command], "--yes")
        assert ran.code == 2
        assert "another writer has this store open" in ran.err
        assert run(command, path, *CHANGES[command], "--dry-run").code == 0
    assert states(path) == (20, 1, 4)


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_is_made_where_no_store_is(run, tmp_path, command):
    assert run(command, tmp_path / "none", *CHANGES[command], "--yes").code == 2
    assert not (tmp_path / "none").exists()


def test_history_is_kept_if_there_is_any(run, tmp_path):
    path = tmp_path / "data"
    with qindex.open(path, keep_history=1 << 20, max_journal_entries=8) as store:
        queue = store.queue("a")
        for _ in range(5):
            queue.publish_many([b"x"] * 10)
            queue.flush()
    before = sorted(path.glob("queues/*/past.*"))
    assert before
    assert run("purge", path, "a", "--yes").code == 0
    assert set(before) <= set(path.glob("queues/*/past.*"))


def settings_of(path, name="orders"):
    with qindex.open(path, read_only=True) as store:
        return store.queue(name, create=False).settings


def test_settings_are_changed_durably_and_shown(run, path):
    ran = run("configure", path, "orders", "ttl=0.5", "expires=3600", "overflow=none", "--dry-run")
    assert ran.out.splitlines() == [
        "would set ttl of orders to 0.5 (it is none)",
        "would set expires of orders to 3600 (it is none)",
    ]
    words = ["max_bytes=5000", "overflow=dead-letter", "max_deliveries=3", "lease=30"]
    ran = run("configure", path, "orders", *words, "--yes")
    assert (ran.code, ran.err) == (0, "")
    wanted = qindex.Settings(
        max_bytes=5000, overflow="dead-letter", max_deliveries=3, lease=30, dead_letters=True
    )
    assert settings_of(path) == wanted
    shown = run("configure", path, "orders").out
    assert [line.split() for line in shown.splitlines()[-8:]][:3] == [
        ["ttl", "none"],
        ["max_messages", "none"],
        ["max_bytes", "5000"],
    ]
    ran = run("configure", path, "orders", "max_bytes=none", "overflow=none", "lease=none", "--yes")
    assert ran.code == 0
    assert settings_of(path) == qindex.Settings(max_deliveries=3, dead_letters=True)
    assert run("configure", path, "orders", "max_deliveries=3").out == "there is nothing to do\n"
    assert run("configure", path, "orders", "dead_letters=mails", "--yes").code == 0
    assert settings_of(path).dead_letters == "mails"
    assert run("configure", path, "orders", "dead_letters=no", "--yes").code == 0
    assert settings_of(path).dead_letters is False


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ttl=0"], "ttl must be seconds, above 0"),
        (["ttl=soon"], "ttl is a number, not 'soon'"),
        (["max_messages=1.5"], "max_messages is a number, not '1.5'"),
        (["colour=red"], "the settings are ttl, max_messages"),
        (["ttl"], "is no SETTING=VALUE"),
        (["overflow=drop-head"], "needs a limit beside it"),
        (["overflow=odd", "max_bytes=5"], "overflow must be one of reject, drop-head, dead-letter"),
        (["dead_letters=nobody"], "there is no queue 'nobody'"),
        (["dead_letters=orders"], "cannot move from 'orders' to itself"),
        (["ttl=5", "ttl=6"], "named twice"),
    ],
)
def test_settings_that_cannot_be_change_nothing(run, path, words, text):
    before = files_of(path)
    ran = run("configure", path, "orders", *words, "--yes")
    assert ran.code == 2
    assert text in ran.err
    assert files_of(path) == before


def test_a_store_of_format_1_has_no_settings_to_change(run, tmp_path):
    with qindex.open(tmp_path / "old", format=1) as store:
        store.queue("a")
    for words in ([], ["ttl=5", "--yes"]):
        ran = run("configure", tmp_path / "old", "a", *words)
        assert ran.code == 2
        assert "'qindex upgrade' makes it one that does" in ran.err
