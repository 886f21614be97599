"""The demo as a whole, and the proofs that it prints."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qindex
from qindex.cli.demo import command as demo
from qindex.cli.demo import hands as demo_run
from qindex.cli.demo import proof as demo_proof
from qindex.cli.demo.proof import Tally, WriterReport, compare, expected_rows, parse_report
from qindex.cli.demo.writer import ACKS_PER_ROUND, PUBLISHES_PER_ROUND, body_of, digest_of
from qindex.look.screen import CommandError

ROWS = [(number, (f"body {number}",)) for number in range(20)]


@pytest.fixture
def short(monkeypatch):
    """Half a second less for each demo that is not about speed."""
    monkeypatch.setattr(demo, "WRITER_SECONDS", 0.1)
    monkeypatch.setattr(demo_run, "ROUNDS_MIN", 4)


def test_the_demo_proves_the_main_job(start, tmp_path):
    process = start("demo", TMPDIR=str(tmp_path))
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "339 of 339 messages" in out
    assert out.count("0 lost, 0 doubled, 0 altered, 0 unexpected, 0 misplaced") == 2
    assert out.count("✓") == 7
    assert "✗" not in out
    assert "\x1b" not in out
    assert "Nothing lost, nothing doubled, nothing altered, in " in out
    assert list(tmp_path.iterdir()) == []


def test_the_figures_agree_with_each_other(run, short, tmp_path):
    code, out, err = run("demo", "--dir", tmp_path / "d", "--keep", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["failures"] == []
    assert told["dead_node"]["live"] == told["recovered"]["messages"] == 339
    proof, writer = told["proof"], told["killed_writer"]
    in_doubt = proof["killed_writer"]["expected"] - (writer["published"] - writer["acked"])
    assert -ACKS_PER_ROUND <= in_doubt <= PUBLISHES_PER_ROUND
    waiting = proof["killed_writer"]["expected"] + proof["recovered"]["expected"]
    assert told["reopened"]["waiting"] == told["drained"]["messages"] == waiting
    assert told["kept_in"] == str(tmp_path / "d")
    with qindex.open(tmp_path / "d" / "store", read_only=True) as store:
        assert sum(len(store.queue(name)) for name in store.queues()) == 0


def test_a_folder_with_something_in_it_is_refused(run, tmp_path):
    (tmp_path / "precious").write_text("x")
    code, _, err = run("demo", "--dir", tmp_path)
    assert code == 2
    assert "not an empty directory" in err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_folder_of_ones_own_is_given_back_as_it_was(run, short, tmp_path):
    assert run("demo", "--dir", tmp_path / "new").code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_failed_proof_is_told_and_the_files_are_kept(run, short, tmp_path, monkeypatch):
    read_truth = demo_proof.read_truth

    def another_truth(path):
        truth = read_truth(path)
        truth["queues"][0]["messages"][3][-1] = "0" * 32
        del truth["queues"][1]["messages"][0]
        return truth

    monkeypatch.setattr(demo_proof, "read_truth", another_truth)
    code, out, _ = run("demo", "--dir", tmp_path / "d")
    assert code == 1
    assert "from RabbitMQ    ✗ 338 messages: 0 lost, 0 doubled, 1 altered, 1 unexpected" in out
    assert "2 proofs failed" in out
    assert "Nothing lost" not in out
    assert (tmp_path / "d" / "store").is_dir()


def test_a_message_that_vanishes_while_the_store_is_closed_is_missed(
    run, short, tmp_path, monkeypatch
):
    kill_a_writer = demo.Demo.kill_a_writer

    def and_a_thief(self):
        told = kill_a_writer(self)
        with qindex.open(self.folder / "store") as store:
            store.queue("q.edge").ack(store.queue("q.edge").get())
        return told

    monkeypatch.setattr(demo.Demo, "kill_a_writer", and_a_thief)
    code, out, _ = run("demo", "--dir", tmp_path / "d")
    assert code == 1
    assert "✗ 339 messages: 1 lost" in out


def test_a_writer_that_ends_by_itself_is_an_error(tmp_path):
    (tmp_path / "s").write_text("no store")
    with pytest.raises(CommandError, match="the writer ended by itself"):
        demo_run.Writer(tmp_path / "s", "q").run_and_kill(0.1, lambda _: None)


@pytest.mark.sample(5)
@pytest.mark.parametrize("number", range(5))
def test_what_a_killed_writer_reported_is_there(tmp_path, short, number):
    qindex.open(tmp_path / "s").close()
    raw, _ = demo_run.Writer(tmp_path / "s", "q").run_and_kill(0.01 * number, lambda _: None)
    told = parse_report(raw)
    with qindex.open(tmp_path / "s") as store:
        found = demo_proof.writer_rows(store.queue("q").browse())
        assert asdict(compare(expected_rows(told, found), found)) == asdict(
            Tally(expected=len(found))
        )
        assert [m.req_id for m in store.queue("q").browse(stop=3)] == told.held
        assert not [finding for finding in store.check() if finding.severity == "damage"]


# --- the proofs themselves: a proof that cannot fail proves nothing -------------------------------


def test_the_same_is_clean():
    assert compare(ROWS, list(ROWS)).is_clean
    assert compare([], []).is_clean


@given(st.data())
def test_whatever_is_done_to_the_messages_is_counted(data):
    found = list(ROWS)
    kind = data.draw(st.sampled_from(["lost", "doubled", "altered", "unexpected", "misplaced"]))
    at = data.draw(st.integers(0, len(found) - 2))
    if kind == "lost":
        del found[at]
    elif kind == "doubled":
        found.insert(data.draw(st.integers(at + 1, len(found))), found[at])
    elif kind == "altered":
        found[at] = (at, ("other",))
    elif kind == "unexpected":
        found.insert(at, (100, ("new",)))
    else:
        found[at], found[at + 1] = found[at + 1], found[at]
    tally = compare(ROWS, found)
    assert getattr(tally, kind) == (2 if kind == "misplaced" else 1)
    assert not tally.is_clean


def report_of(published, acked=(), held=(), doubt="p"):
    return WriterReport(
        [(number, digest_of(body_of(number))) for number in range(published)],
        list(held),
        list(acked),
        doubt=doubt,
    )


def rows_of(numbers):
    return [(number, (number, digest_of(body_of(number)))) for number in numbers]


def test_a_report_is_read_but_for_its_torn_end():
    told = parse_report(b"r\np 500 0:aa 1:bb\nh 0\na 70 1\np 100 2:cc 3:d")
    assert told == WriterReport([(0, "aa"), (1, "bb")], [0], [1], 500, 70, "p")
    assert parse_report(b"r\np 500 0:aa 1:bb\n").doubt == "a"


def test_published_and_not_acked_is_expected():
    told = report_of(10, acked=[1, 2], held=[0])
    wanted = rows_of([0, *range(3, 10)])
    assert expected_rows(told, wanted) == wanted
    assert compare(expected_rows(told, rows_of(range(3, 10))), rows_of(range(3, 10))).lost == 1


def test_publishes_in_doubt_may_have_happened_up_to_a_round():
    told = report_of(10)
    for more in (0, 1, PUBLISHES_PER_ROUND):
        found = rows_of(range(10 + more))
        assert compare(expected_rows(told, found), found).is_clean
    found = rows_of(range(10 + PUBLISHES_PER_ROUND + 1))
    assert compare(expected_rows(told, found), found).unexpected == 1
    found = rows_of([*range(10), 11])  # the second without the first
    assert not compare(expected_rows(told, found), found).is_clean


def test_acks_in_doubt_may_have_happened_up_to_a_round():
    told = report_of(300, held=[0], doubt="a")
    for less in (0, 1, ACKS_PER_ROUND):
        found = rows_of([0, *range(1 + less, 300)])
        assert compare(expected_rows(told, found), found).is_clean
    found = rows_of([0, *range(2 + ACKS_PER_ROUND, 300)])
    assert compare(expected_rows(told, found), found).lost == 1
    found = rows_of([0, 1, *range(3, 300)])  # the second ack without the first
    assert not compare(expected_rows(told, found), found).is_clean
    found = rows_of(range(1, 300))  # what was held was never acked
    assert compare(expected_rows(told, found), found).lost == 1


def test_an_acked_message_that_comes_back_is_unexpected():
    told = report_of(10, acked=[1])
    found = rows_of(range(10))
    assert compare(expected_rows(told, found), found).unexpected == 1


def test_the_node_that_ships_is_the_one_of_the_truth():
    archive = demo.NODE.with_suffix(".tar.xz")
    assert archive.stat().st_size < 1_000_000
    truth = demo_proof.read_truth(demo.NODE.with_suffix(".json"))
    assert sum(len(rows) for rows in demo_proof.truth_rows(truth).values()) == 339
    assert Path(qindex.__file__).parent in archive.parents
