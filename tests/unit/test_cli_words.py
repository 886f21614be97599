"""The command line is one language: its words for arguments, its keys of JSON, its times."""

import json
import subprocess
import sys

import pytest
from hostile_commands import BASE

import qindex
from qindex.cli.main import COMMANDS, make_parser
from qindex.look.keys import KEYS, MEANING, strange_keys
from qindex.look.messages import STATES
from qindex.moments import utc


def actions_of(command):
    (parsers,) = (a for a in make_parser(command)._actions if a.dest == "command")
    return parsers.choices[command]._actions


def takes(command, option):
    return any(option in action.option_strings for action in actions_of(command))


def test_what_is_read_has_one_name():
    names = {
        action.metavar or action.dest
        for command in COMMANDS
        for action in actions_of(command)
        if not action.option_strings
    }
    # A and B of diff, TO of backup, kind of plot, COMMAND and ARGUMENT of ctl
    of_one = {"A", "B", "TO", "kind", "COMMAND", "ARGUMENT", "SETTING=VALUE"}
    assert names == {"DIR", "QUEUE", "WHAT", *of_one}


def test_what_is_written_has_one_name():
    former = {"--into", "-o", "--jsonl", "--parquet", "--files", "--output", "--to-store"}
    for command in COMMANDS:
        shown = {
            spelling
            for action in actions_of(command)
            if action.help != "==SUPPRESS=="
            for spelling in action.option_strings
        }
        assert not shown & former - {"--jsonl"}, command
        if command not in ("cat", "diff"):  # which print JSON Lines
            assert "--jsonl" not in shown, command


def test_json_and_progress_say_the_same_in_every_command():
    for option in ("--progress", "--json"):
        helps = {
            action.help.partition(" ")[0]
            for command in COMMANDS
            for action in actions_of(command)
            if option in action.option_strings
        }
        assert len(helps) == 1, helps


def test_every_command_with_json_is_among_those_whose_keys_are_looked_at():
    """test_cli_hostile.py runs them all; conftest.py looks at each key that they print."""
    assert {command for command in COMMANDS if takes(command, "--json")} <= set(BASE)


def test_a_key_is_explained_once():
    assert sum(map(len, KEYS.values())) == len(MEANING)
    assert all(meaning for _, meaning in MEANING.values())


def test_a_key_that_nobody_knows_is_noticed():
    assert strange_keys([{"queue": "q", "headers": {"any": 1}, "seconds": 0.5}]) == []
    assert strange_keys([{"queues": [{"name": "q"}]}]) == ["[].queues[].name is in no table"]
    (found,) = strange_keys({"expires_at": 1700000000.0})
    assert "no moment" in found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.25Z"),
        (253_402_300_800, "@253402300800"),
    ],
)
def test_a_moment_is_written_in_one_way(seconds, text):
    assert utc(seconds) == text


def test_states_are_those_of_the_library():
    assert set(STATES) - {"expired"} == {"ready", "delayed", "unacked", "dead"}
    assert {"ready", "unacked", "delayed", "dead"} <= set(qindex.QueueStats.__dataclass_fields__)


@pytest.fixture
def mixed(tmp_path):
    """One message of each state; one that was delivered stays so, because nobody closes."""
    with qindex.open(tmp_path / "s", idle=3600) as store:
        queue = store.queue("q", dead_letters=True)
        for body in (b"bad", b"taken", b"good"):
            queue.publish(body)
        queue.nack(queue.get(), requeue=False)
        queue.get()
        queue.publish(b"later", delay=3600)
        store.sync()
        yield store


def test_top_and_stats_agree(run, mixed):
    (top,) = json.loads(run("top", mixed.path, "--once", "--json").out)["queues"]
    (stats,) = json.loads(run("stats", mixed.path, "--json").out)["queues"]
    told = ("queue", "messages", "ready", "unacked", "delayed", "dead", "next_due_at")
    assert [top[key] for key in told] == [stats[key] for key in told]
    assert [top[key] for key in told[1:6]] == [4, 1, 1, 1, 1]
    keys = set(top) - {"rates"}
    assert keys <= set(stats)


def test_text_and_json_of_stats_agree(run, mixed):
    (stats,) = json.loads(run("stats", mixed.path, "--json").out)["queues"]
    row = run("stats", mixed.path).out.splitlines()[-1].split()
    keys = ("queue", "messages", "unacked", "delayed", "dead")
    assert row[:5] == [str(stats[key]) for key in keys]


def test_a_state_has_one_name_in_peek_cat_and_the_options(run, mixed):
    told = [json.loads(line) for line in run("cat", mixed.path, "--jsonl").out.splitlines()]
    assert sorted(line["state"] for line in told) == ["dead", "delayed", "ready", "unacked"]
    out = run("cat", mixed.path, "--state", "unacked").out
    assert out == "taken\n"


def test_former_spellings_work_for_one_more_version_and_say_so(run, mixed, tmp_path):
    former = run("cat", mixed.path, "--state", "delivered")
    assert former.out == "taken\n"
    assert "the state delivered is called unacked now" in former.err
    wrote = run("export", mixed.path, "--jsonl", tmp_path / "lines")
    assert wrote.code == 0
    assert "--jsonl is called --out now" in wrote.err
    assert len((tmp_path / "lines").read_text().splitlines()) == 4
    assert run("export", mixed.path, "--out", tmp_path / "again.jsonl").err == ""
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "lines").read_text()


def test_an_export_to_a_name_that_says_nothing_asks_for_its_form(run, mixed, tmp_path):
    refused = run("export", mixed.path, "--out", tmp_path / "lines")
    assert refused.code == 2
    assert "End it in .jsonl or .parquet, or give --form files" in refused.err
    assert not list(tmp_path.glob("lines*"))


@pytest.fixture
def killed(tmp_path):
    """Not closed, and opened again: all is `redelivered`, also what nobody got."""
    path = tmp_path / "killed"
    code = (
        "import os, qindex, sys; queue = qindex.open(sys.argv[1]).queue('q');"
        "queue.publish_many([b'got', b'never', b'never either']); queue.get(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)
    with qindex.open(path) as store:
        messages = [(m.body, m.redelivered, m.delivery_count) for m in store.queue("q").browse()]
    assert messages == [(b"got", True, 1), (b"never", True, 0), (b"never either", True, 0)]
    return path


def test_what_nobody_got_is_ready_also_after_an_unclean_end(run, killed):
    told = [json.loads(line) for line in run("cat", killed, "--jsonl").out.splitlines()]
    states = {line["body"]: line["state"] for line in told}
    assert states == {"got": "unacked", "never": "ready", "never either": "ready"}
    assert all(line["redelivered"] for line in told)
    assert run("cat", killed, "--state", "ready").out == "never\nnever either\n"
    (stats,) = json.loads(run("stats", killed, "--json").out)["queues"]
    assert (stats["unacked"], stats["messages"]) == (1, 3)
    ends = [
        run("trace", killed, f"q:{line['req_id']}", "--json").out for line in told
    ]  # and so say those that follow the records
    assert [json.loads(end)[0]["summary"] for end in ends] == [
        "live, unacked, 1 delivery",
        "live, ready",
        "live, ready",
    ]
    last = json.loads(run("replay", killed, "q", "--json").out.splitlines()[-1])["step"]
    replayed = json.loads(run("replay", killed, "q", "--at", last, "--messages", "--json").out)
    assert [each["state"] for each in replayed["message_list"]] == ["unacked", "ready", "ready"]
    assert (replayed["unacked"], replayed["ready"]) == (1, 2)


def test_the_column_state_says_it_too(killed):
    pytest.importorskip("pyarrow")
    from qindex.spark.plan import find
    from qindex.spark.tables import Choice, batches

    names = ["state", "redelivered", "delivery_count"]
    (rows,) = batches(find([str(killed)]), "messages", names, Choice())
    assert rows["state"].to_pylist() == ["unacked", "ready", "ready"]
    assert rows["delivery_count"].to_pylist() == [1, 0, 0]
    assert rows["redelivered"].to_pylist() == [True] * 3
    chosen = batches(find([str(killed)]), "messages", names, Choice(states=frozenset({"ready"})))
    assert sum(each.num_rows for each in chosen) == 2


def test_what_was_given_back_without_a_count_is_ready(run, tmp_path):
    """It says `redelivered`, and a count of 0: nobody has looked at it."""
    path = tmp_path / "s"
    with qindex.open(path, format=2) as store:
        queue = store.queue("q")
        queue.publish_many([b"had", b"prefetched"])
        had, prefetched = queue.get_many(2)
        queue.nack(had)
        queue.nack(prefetched, count=False)
    (stats,) = json.loads(run("stats", path, "--json").out)["queues"]
    told = [json.loads(line) for line in run("cat", path, "--jsonl").out.splitlines()]
    assert [(line["state"], line["delivery_count"]) for line in told] == [
        ("unacked", 1),
        ("ready", 0),
    ]
    assert all(line["redelivered"] for line in told)
    assert (stats["unacked"], stats["messages"]) == (1, 2)
    last = json.loads(run("replay", path, "q", "--json").out.splitlines()[-1])["step"]
    replayed = json.loads(run("replay", path, "q", "--at", last, "--messages", "--json").out)
    assert [each["state"] for each in replayed["message_list"]] == ["unacked", "ready"]
    assert run("replay", path, "--verify").code == 0
    ends = [run("trace", path, f"q:{line['req_id']}", "--json").out for line in told]
    assert [json.loads(end)[0]["summary"] for end in ends] == [
        "live, unacked, 1 delivery",
        "live, ready",
    ]


def test_a_copy_after_an_unclean_end_has_no_difference(run, tmp_path):
    path = tmp_path / "s"
    code = (
        "import os, qindex, sys; queue = qindex.open(sys.argv[1]).queue('q');"
        "queue.publish_many([b'got', b'never']); queue.get(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)
    assert run("backup", path, tmp_path / "copy").code == 0
    code, out, err = run("diff", path, tmp_path / "copy")
    assert (code, err) == (0, ""), out
    assert run("salvage", path, "--out", tmp_path / "salvaged").code == 0
    code, out, err = run("diff", path, tmp_path / "salvaged")
    assert (code, err) == (0, ""), out
