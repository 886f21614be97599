"""bisect: which message kills a consumer, on a copy; and what if no single one does."""

import json
import random
import sys

import pytest

import qindex
from qindex.cli.bisect.search import TooManyRuns, Trials, find_killers

READ = "import sys, json; bodies = [json.loads(line)['body'] for line in sys.stdin]; "


def consumer(code):
    return f'{sys.executable} -c "{code}"'


def search(count, kills, runs_max=10000):
    trials = Trials(lambda positions: kills(set(positions)), runs_max)
    return find_killers(trials, count), trials.runs


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000])
def test_one_killer_is_found_wherever_it_is(count):
    for killer in {0, count // 3, count - 1}:
        found, runs = search(count, lambda all_, killer=killer: killer in all_)
        assert found == [killer]
        assert runs <= count.bit_length() + 2


def test_of_several_killers_the_first_is_found():
    assert search(500, lambda all_: bool({77, 78, 300} & all_))[0] == [77]


def test_some_that_do_it_together_are_found_and_none_too_many():
    choose = random.Random(3)
    for size in (2, 3, 5):
        for _ in range(20):
            wanted = set(choose.sample(range(200), size))
            found, runs = search(200, lambda all_, wanted=wanted: wanted <= all_)
            assert set(found) == wanted
            assert runs < 40 * size


def test_a_mere_number_of_messages_kills_it():
    found, _ = search(100, lambda all_: len(all_) >= 40)
    assert len(found) == 40


def test_a_limit_of_runs_ends_the_search_with_the_best_so_far():
    with pytest.raises(TooManyRuns) as error:
        search(1000, lambda all_: len(all_) >= 400, runs_max=15)
    assert 400 <= len(error.value.best) < 1000


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "s") as store:
        queue = store.queue("q")
        queue.publish_many([b"body %d" % n for n in range(40)], headers=[{"n": 1}] * 40)
        queue.get_many(5)
        queue.ack_many([0, 1])
    return tmp_path / "s"


def files_of(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_the_message_is_named_and_nothing_is_changed(run, store):
    before = files_of(store)
    kills = consumer(READ + "assert 'body 17' not in bodies, 'cannot read 17'")
    code, out, err = run("bisect", store, "q", "--cmd", kills)
    assert (code, err) == (1, "")
    assert "it dies of this message: exit status 1" in out
    assert "17  ready" in out
    assert "AssertionError: cannot read 17" in out
    assert "without it: it survives the rest" in out
    assert files_of(store) == before
    found = json.loads(run("bisect", store, "--cmd", kills, "--json").out)
    assert [int(k["req_id"]) for k in found["killers"]] == [17]
    assert (found["messages"], found["survives"], found["others_kill_too"]) == (38, False, False)


@pytest.mark.slow
def test_two_that_do_it_together_and_one_more_that_does_it_alone(run, store):
    kills = consumer(READ + "sys.exit({'body 9', 'body 30'} <= set(bodies))")
    code, out, _ = run("bisect", store, "--cmd", kills)
    assert code == 1
    assert "no single message does it: it dies of these 2 together" in out
    kills = consumer(READ + "sys.exit(bool({'body 3', 'body 30'} & set(bodies)))")
    found = json.loads(run("bisect", store, "--cmd", kills, "--json").out)
    assert [int(k["req_id"]) for k in found["killers"]] == [3]
    assert found["killers"][0]["state"] == "unacked"
    assert found["others_kill_too"]


@pytest.mark.slow
def test_a_store_of_its_own_for_each_run(run, store):
    code = (
        "import os, sys, qindex; store = qindex.open(os.environ['QINDEX_STORE']);"
        " queue = store.queue(os.environ['QINDEX_QUEUE']);"
        " got = queue.get_many(99); queue.ack_many(got); store.close();"
        " sys.exit(any(m.body == b'body 21' and m.headers == {'n': 1} for m in got))"
    )
    found = json.loads(run("bisect", store, "--feed", "store", "--cmd", consumer(code),
                           "--json").out)  # fmt: skip
    assert [int(k["req_id"]) for k in found["killers"]] == [21]


@pytest.mark.parametrize(
    ("feed", "text"), [("bodies", "b'body 12\\n'"), ("lengths", "b'\\0\\0\\0\\x07body 12'")]
)
def test_bodies_on_stdin(run, store, feed, text):
    kills = consumer(f"import sys; sys.exit({text} in sys.stdin.buffer.read())")
    found = json.loads(run("bisect", store, "--feed", feed, "--cmd", kills, "--json").out)
    assert [int(k["req_id"]) for k in found["killers"]] == [12]


def test_signals_and_runs_that_do_not_end_are_deaths(run, store):
    kills = consumer(READ + "import os; 'body 8' in bodies and os.kill(os.getpid(), 6)")
    assert "killed by SIGABRT" in run("bisect", store, "--cmd", kills).out
    hangs = consumer(READ + "import time; 'body 8' in bodies and time.sleep(600)")
    chosen = (store, "q", "--req-id", "6-9", "--seconds", "0.8")
    out = run("bisect", *chosen, "--cmd", hangs).out
    assert "it dies of this message: still ran after 0.8 s" in out
    code, out, _ = run("bisect", *chosen, "--cmd", hangs, "--alive-ok")
    assert code == 0
    assert "it survives all 4 messages" in out


@pytest.mark.slow
def test_what_cannot_be_searched_is_refused(run, store, tmp_path):
    def refused(command, *more):
        code, _, err = run("bisect", store, *more, "--cmd", command)
        assert code == 2
        return err

    assert "dies without any message (exit status 3)" in refused("exit 3")
    assert "cannot be run" in refused("/no/such/program")
    assert "cannot judge" in refused("exit 125")
    assert "no message is chosen" in refused("true", "q", "--req-id", "5000")
    flag = tmp_path / "flag"  # dies of the first message that it ever sees, then never again
    once = f"test $QINDEX_COUNT = 0 || test -e {flag} || {{ touch {flag}; exit 1; }}"
    assert "depends on something else" in refused(once)
    many = consumer(READ + "sys.exit(len(bodies) > 20)")
    assert "the smallest set so far has" in refused(many, "--runs", "9")
