"""The crash explorer: finds nothing in the engine, and everything in one with bugs."""

import re
import shutil

import explore as tool
import pytest
from explored import EXPLORED
from helpers import run_tool

# The first of them compiles the engine twice with its simulated disk, which takes half a minute.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]


def test_a_power_cut_at_any_point_loses_nothing_that_was_confirmed():
    ran = run_tool(tool, "--points", 12_000)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "12,000 crash points" in ran.stdout


def test_every_protocol_bug_on_purpose_is_found():
    ran = run_tool(tool, "--mutants")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found, bugs = map(int, re.search(r"(\d+) of (\d+) bugs found", ran.stdout).groups())
    assert found == bugs >= 20


@pytest.mark.parametrize("found", EXPLORED, ids=lambda found: found.bug)
def test_what_was_found_once_is_not_found_again(found, capsys):
    code = tool.main(["--program", found.program, "--images", "12"])
    assert code == 0, found.story + capsys.readouterr().out


def test_a_bug_that_is_named_is_in_the_engine_that_is_tried(capsys):
    """Without --mutants it was left out, and the sound engine was tried, which has no finding."""
    program = "seed=1 mapping=1 segment=16 journal=100 bytes=9000 embed=64 file=2048 history=0 "
    program += "files=0 format=1 few=3 log=8800 crowd=1; publish c 381; delete c; publish a 1757"
    bug = ["--bug", "delete_not_synced"]
    assert tool.main(["--program", program, "--images", "12"]) == 0
    assert tool.main(["--program", program, "--images", "12", *bug]) == 1
    assert "delete c; publish a" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        tool.main(["--bug", "no_such_bug"])
    assert (
        "the engine has no bug on purpose that is called 'no_such_bug'" in capsys.readouterr().err
    )


def test_every_call_and_allocation_may_fail_once_and_for_ever():
    """And each did: none of the program's calls is left out."""
    ran = run_tool(tool, "--faults", "--programs", 4, "--operations", 40)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = re.findall(
        r"(EIO|allocations), (?:once|for ever) +([\d,]+) failed, of ([\d,]+)", ran.stdout
    )
    assert len(rows) == 4
    for _, failed, of in rows:
        assert failed == of != "0"


def test_an_engine_that_crashes_in_a_sweep_is_told(monkeypatch, capsys):
    """The last words of a process have no program: the cross stood there without a reason."""
    died = tool.Run(
        findings=["seed=4 point=0 image=0 fault=memory:129:once call=signal Segmentation fault"],
        code=1,
    )
    monkeypatch.setattr(tool, "build", lambda *, mutants: None)
    monkeypatch.setattr(tool, "sweep", lambda *_: [died])
    assert tool.main(["--faults", "--jobs", "1"]) == 1
    told = capsys.readouterr().out
    assert "Segmentation fault" in told
    assert "--fault memory:129:once --jobs 1 --seed 4 " in told


def test_the_model_counts_what_returned_not_what_it_foresaw():
    """A get_many that memory stopped after 8 of 12, then a batch that got none: the model still
    took all 12 deliveries for returned, and no frames could explain what a kill left."""
    program = (
        "seed=1 mapping=1 segment=8 journal=200 bytes=9000 embed=64 file=2048; publish a 7;"
        " batch a x12 7; get_many a x12; nack a x12; get_many a x12; batch a x8 7"
    )
    ran = run_tool(tool, "--faults", "--program", program)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_model_leaves_what_was_taken_back_in_its_place():
    """Of two redriven messages one was delivered, and its process died: they have one place.
    The model took the other one first, and missed that the engine made this one a dead letter."""
    program = (
        "seed=15938544525572411821 mapping=0 segment=8 journal=100 bytes=9000 embed=100000"
        " file=2048; publish c 20 +r; publish b 58 +p; batch c x30 23 +ed; tick; advance 975;"
        " publish b 39 +p; get c +l; redrive c x7; get c; kill; reschedule c 881 +d; get c"
    )
    ran = run_tool(tool, "--program", program, "--images", 12)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "operations",
    [
        # The open itself parks a queue, with a SESSION frame that is not synced.
        "crowd=1; publish a 20; publish b 9; kill; publish a 9; sync a",
        # A get_many has one message from a segment; the next one is in the journal that is lost.
        "; create a; publish a 20; flush a; publish a 20; create b; publish b 9; get_many a x4",
    ],
    ids=["open", "get_many"],
)
def test_what_a_parked_queue_lost_is_no_finding_if_nobody_was_told_that_it_is_durable(operations):
    """The disk lost a journal while it was closed, and the engine says so at its next use. The
    model forgot the loss if the open made it, and asked for messages that no sync had confirmed.
    It also did not know that a get_many ends early where the loss shows."""
    program = (
        "seed=8 mapping=1 segment=16 journal=100 bytes=20000 embed=64 file=4096 files=8 "
        + operations
    )
    ran = run_tool(tool, "--faults", "--program", program)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_purge_of_two_states_takes_the_only_dead_letter_of_a_segment():
    """The purge of what is delayed or dead passed over a segment in which nothing else waited."""
    program = (
        "seed=7515127652161174312 mapping=1 segment=16 journal=24 bytes=10240 embed=64 file=700;"
        " publish c 18 +eh; publish c 368; cut 833300812; batch c x9 39 +e; publish c 48 +t;"
        " batch c x2 57 +p; purge c x7"
    )
    ran = run_tool(tool, "--program", program)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_retired_journal_is_read_from_the_medium():
    """Of a flush whose sync failed the cache had it all: the MANIFEST, and the old journal retired.
    The MANIFEST was read from the medium again, which had it not; the journal was not."""
    program = (
        "seed=8666001544558392426 mapping=1 segment=8 journal=24 bytes=10240 embed=100000 file=700;"
        " ack_many b x8 149; publish c 68; publish b 26; ack c 403; publish b 7; tick;"
        " fanout c x1 28; flush b; publish b 409; publish a 3232; sync a; kill; publish b 934 +t;"
        " ack b 306; flush c; fail 48; batch b x4 42; ack c 799; drop c 66; fanout c x3 8;"
        " publish a 7 +th; batch b x9 53 +e; ack a 219; publish b 2903 +p"
    )
    ran = run_tool(tool, "--program", program)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_damage_of_a_synced_image_is_told_and_stays_where_it_is():
    ran = run_tool(tool, "--flips", 10_000)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tried, silent, wrong = re.search(r"bits flipped +([\d,]+) +(\d+) +(\d+)", ran.stdout).groups()
    assert int(tried.replace(",", "")) > 5_000
    assert silent == wrong == "0"


def test_damage_that_nobody_tells_is_found():
    ran = run_tool(tool, "--flips", 10_000, "--bug", "marks_ignored")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "nobody tells" in ran.stdout


def test_a_finding_is_replayed_bit_for_bit():
    """An engine with a bug, found by a seed; the same point alone says the same words."""
    program = tool.build(mutants=True)
    arguments = ["--bug", "segment_not_synced"]
    first = tool.play(program, [*arguments, "--seed", 1, "--points", 5000]).findings[0]
    seed, point = re.match(r"seed=(\d+) point=(\d+)", first).groups()
    again = tool.play(program, [*arguments, "--seed", seed, "--point", point]).findings[0]
    assert again == first
