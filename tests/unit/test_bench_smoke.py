"""The benchmark's parts on tiny counts: they run, and they say what they measured. No timing."""

import json
import resource
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import qindex

BENCH = Path(__file__).parents[2] / "tools" / "bench"
sys.path.insert(0, str(BENCH))

import bodies  # noqa: E402
import dead  # noqa: E402
import facts  # noqa: E402
import floor  # noqa: E402
import plan  # noqa: E402
import run  # noqa: E402
import surfaces  # noqa: E402
import table  # noqa: E402
import works  # noqa: E402
from results import Results  # noqa: E402
from systems import Sqlite  # noqa: E402
from warm import WarmMemory  # noqa: E402


def sqlite_job(directory: Path, work: str = "single", count: int = 300) -> works.Job:
    return works.Job(work, "sqlite", str(directory), body_bytes=100, count=count, seconds_max=5.0)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    try:
        return floor.build(tmp_path)
    except floor.FloorUnavailable as reason:
        pytest.skip(f"no raw floor here: {reason}")


def report(results: Results) -> table.Report:
    return table.Report(
        results=results,
        labels=plan.labels(plan.STEPS),
        systems={"sqlite": Sqlite},
        versions={"sqlite": "3"},
        missing=["qindex (package qindex)"],
        facts={"Python": "CPython 3"},
        command="python tools/bench/run.py --rounds 2",
        rounds=2,
        quick=False,
    )


@pytest.mark.parametrize(
    ("work", "count"),
    [
        ("single", 300),
        ("cycle", 300),
        ("batches", 300),
        ("durable", 300),
        ("compaction", 2000),
        ("priority", 2000),
        ("lease", 300),
        ("dead_letters", 300),
        ("aio", 300),
    ],
)
def test_every_work_gives_positive_figures(work: str, count: int, tmp_path: Path) -> None:
    figures = works.WORKS[work](sqlite_job(tmp_path, count=count))
    assert figures
    assert all(value > 0 for value in figures.values())


@pytest.mark.parametrize("system", ["qindex", "sqlite"])
def test_delayed_messages_are_drained_by_the_next_process(system: str, tmp_path: Path) -> None:
    job = replace(sqlite_job(tmp_path, count=2000), system=system)
    assert works.WORKS["delay_fill"](job)["filled"] == 2000
    assert works.WORKS["delay_drain"](job)["delay_get_ack"] > 0
    left = job.open()
    assert left.get_first() is None
    left.close()


@pytest.mark.slow
def test_bodies_are_compared_by_both_clocks(
    tmp_path: Path, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bodies.json"
    small = [
        "--count",
        "200",
        "--sizes",
        "65536",
        "--systems",
        "qindex,sqlite,floor",
        "--dir",
        str(tmp_path),
    ]
    assert bodies.main([*small, "--rounds", "1", "--places", "disk", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.count(" us") == 7 * 3  # figures, systems
    amounts = shown.partition("written by the kernel")[2].split()
    assert amounts.count("KiB") == 3
    assert "-" in amounts  # of the systems that were not asked for
    assert bodies.main(["--draw", str(out), "--clock", "wall"]) == 0
    assert "/s" in capsys.readouterr().out
    samples = json.loads(out.read_text())["samples"]
    rates = [sample for sample in samples if sample["clock"] != "amount"]
    assert len(rates) == 7 * 3 * 2
    amounts = {(s["system"], s["figure"], s["size"]) for s in samples if s["clock"] == "amount"}
    assert len(amounts) == 2 * 3 == len(samples) - len(rates)  # systems, figures
    assert all(sample["rate"] > 0 for sample in samples)


def test_what_is_not_measured_is_named_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> dict[str, float]:
        raise run.WorkFailed("no disk")

    monkeypatch.setattr(bodies, "version", lambda system: None if system.name == "LMDB" else "1")
    monkeypatch.setattr(bodies, "measure", measure)
    monkeypatch.setattr(bodies, "WORKS", {"single": ("publish", "get_ack")})
    monkeypatch.setattr(bodies, "WarmMemory", lambda _: WarmMemory(1))
    out = tmp_path / "bodies.json"
    words = ["--rounds", "1", "--sizes", "100", "--systems", "lmdb,sqlite", "--places", "memory"]
    assert bodies.main([*words, "--dir", str(tmp_path), "--out", str(out)]) == 1
    told = [
        "not installed, not measured: lmdb (package lmdb)",
        "FAILED sqlite single 100 memory: no disk",
    ]
    assert capsys.readouterr().out.splitlines()[-2:] == told
    assert bodies.main(["--draw", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == told


def test_many_queues_are_filled_and_used_again(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    job = replace(sqlite_job(tmp_path, count=40), system="qindex")
    filled = works.WORKS["queues_fill"](job)
    reopened = works.WORKS["queues_reopen"](job)
    assert works.WORKS["queues_kill"](job) == {}
    reopened |= works.WORKS["queues_after_kill"](job)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
    assert {f"{name}_q1" for name in (filled | reopened)} == {
        row.figure for row in plan.QUEUES_ROWS if row.figure.endswith("_q1")
    }
    assert all(value > 0 for name, value in (filled | reopened).items() if "memory" not in name)
    with qindex.open(tmp_path / "store", read_only=True) as store:
        assert len(store.queues()) == 40
        assert {len(store.queue(name)) for name in store.queues()} == {1}  # of four


@pytest.mark.parametrize("work", ["spread", "transactions", "moves", "mixed", "aio_confirm"])
def test_what_format_2_adds_is_measured(work: str, tmp_path: Path) -> None:
    job = works.Job(work, "qindex", str(tmp_path), 100, 200, 0.2)
    figures = works.WORKS[work](job)
    assert figures
    assert all(value > 0 for value in figures.values())


@pytest.mark.slow
def test_a_store_of_dirty_queues_is_opened_behind_a_kill(tmp_path: Path) -> None:
    job = works.Job("dirty_kill", "qindex", str(tmp_path), 100, 30, 1.0)
    assert works.WORKS["dirty_kill"](job)["dirty_create"] > 0
    opened = works.WORKS["dirty_open"](job)
    assert 0 < opened["dirty_open_ms"] <= opened["dirty_first_ms"]


def test_the_numbers_of_queues_are_chosen() -> None:
    options = run.parse_arguments(["--queues", "30,400"])
    chosen = plan.steps(quick=False, queue_counts=options.queues)
    assert [step.counts[plan.SMALL] for step in chosen[-2:]] == [30, 400]
    assert chosen[-1].suffix == "_q2"
    labels = plan.labels(chosen)
    assert labels["queues_create_q2"] == "400 queues, 256 open files: create_queues, durable"
    assert "--queues 30,400" in run.command_line(options)
    for wrong in ("", "0", "1,2,3,4", "many"):
        with pytest.raises(SystemExit):
            run.parse_arguments(["--queues", wrong])


def test_get_follows_the_order_of_publish_and_ack_removes(tmp_path: Path) -> None:
    queue = Sqlite(tmp_path)
    queue.publish(b"a")
    queue.publish_many([b"b", b"c", b"d"])
    first = queue.get()
    queue.ack(first)
    queue.ack_many(queue.get_many(2))
    queue.close()
    queue = Sqlite(tmp_path)
    assert [queue.body(message) for message in queue.get_many(10)] == [b"d"]
    assert queue.get() is None
    queue.close()


def test_what_is_not_acked_comes_back_after_kill_9(tmp_path: Path) -> None:
    step = plan.Step(("kill9_fill", "kill9_read"), plan.is_any, {plan.SMALL: 400})
    results = Results()
    chosen = run.Measurement(step, plan.SMALL, "sqlite", round_number=0)
    results.add(0, plan.SMALL, "sqlite", run.measure(chosen, tmp_path, library=""))
    assert results.after_kill9(plan.SMALL, "sqlite") == "300 of 300 waiting came back"
    assert list(tmp_path.iterdir()) == []


def test_a_backlog_too_slow_to_fill_gives_no_figure(tmp_path: Path) -> None:
    step = plan.Step(
        ("waiting_fill", "waiting_reopen"), plan.is_any, {plan.SMALL: 100_000}, seconds_max=0.0
    )
    chosen = run.Measurement(step, plan.SMALL, "sqlite", round_number=0)
    assert run.measure(chosen, tmp_path, library="") == {}


def test_a_work_that_fails_is_named_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = run.Measurement(plan.Step(("nonsense",), plan.is_any, {100: 10}), 100, "sqlite", 0)
    good = run.Measurement(plan.Step(("cycle",), plan.is_any, {100: 10}), 100, "sqlite", 0)
    with WarmMemory(1) as memory:
        results = run.measure_all([bad, good], tmp_path, library="", memory=memory)
    assert results.failures == ["sqlite nonsense 100: KeyError: 'nonsense'"]
    assert results.median("cycle", 100, "sqlite") is not None
    assert "FAILED sqlite nonsense 100" in capsys.readouterr().err


def test_the_floor_gives_every_rate(library: Path, tmp_path: Path) -> None:
    measured = floor.Floor(library, tmp_path)
    rates = measured.append_and_read(1000, b"x" * 100)
    rates["cycle"] = measured.cycle(1000, 10, b"x" * 100)
    rates["sync"] = measured.sync_each(3, 1.0)
    rates["batches"] = measured.sync_batches(10, 30, 1.0, b"x" * 100)
    assert all(rate > 0 for rate in rates.values())


def test_the_floor_reports_an_error_of_the_system(library: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        floor.Floor(library, tmp_path / "missing").sync_each(1, 1.0)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2_512_000, plan.RATE, "2.51 M/s"),
        (999_900, plan.RATE, "1.00 M/s"),
        (12_040, plan.RATE, "12.0 k/s"),
        (912.4, plan.RATE, "912 /s"),
        (8.43, plan.MS, "8.43 ms"),
        (2900, plan.MS, "2,900 ms"),
        (None, plan.MB, "-"),
    ],
)
def test_a_number_has_three_digits_and_a_unit(value: float | None, unit: str, text: str) -> None:
    assert table.number(value, unit) == text


def test_rates_must_reach_their_target_and_sizes_must_stay_below() -> None:
    rows = {row.figure: row for row in plan.ROWS}
    assert rows["publish"].passes(2.5e6)
    assert not rows["publish"].passes(2.4e6)
    assert rows["rss_filled_mb_10m"].passes(60)
    assert not rows["rss_filled_mb_10m"].passes(65)
    assert rows["sync_share"].passes(0.95)
    assert rows["sync_each"].passes(1) is None


def test_the_sync_share_compares_figures_of_the_same_round() -> None:
    results = Results()
    for round_number, (rate, raw) in enumerate([(90, 100), (400, 500)]):
        results.add(round_number, plan.SMALL, "qindex", {"sync_each": rate})
        results.add(round_number, plan.SMALL, "floor", {"sync_each": raw})
    results.derive_sync_share()
    assert results.median("sync_share", plan.SMALL, "qindex") == pytest.approx(0.85)


def test_the_tables_show_targets_verdicts_and_promises() -> None:
    results = Results()
    results.add(0, plan.SMALL, "qindex", {"publish": 2.6e6, "get_ack": 1.0e6})
    results.add(0, plan.SMALL, "sqlite", {"publish": 70e3})
    text = table.as_text(report(results))
    by_label = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert "pass" in by_label["publish, one call each"]
    assert "MISS" in by_label["get + ack, one call each"]
    assert "not installed, skipped: qindex (package qindex)" in text
    assert "kill -9: keeps all" in text


def test_the_docs_table_has_columns_of_one_width() -> None:
    results = Results()
    results.add(0, plan.SMALL, "qindex", {"publish": 2.6e6})
    rst = table.as_rst(report(results))
    assert "    python tools/bench/run.py --rounds 2\n" in rst
    rules = [line for line in rst.splitlines() if line.startswith("==") and "  " in line]
    assert len(rules) >= 3
    first = rst.splitlines().index(rules[0])
    header, closing = rst.splitlines()[first + 1], rst.splitlines()[first + 2]
    assert closing == rules[0]
    assert len(header) <= len(closing)


def test_patterns_narrow_what_is_measured() -> None:
    options = run.parse_arguments(["--rounds", "1", "--only", "sqlite", "--only", "cycle"])
    todo = list(run.measurements(options, {"sqlite": Sqlite}, with_floor=True))
    assert [chosen.label for chosen in todo] == ["sqlite cycle 100", "sqlite cycle 1024"]


def test_the_printed_command_names_no_folder(tmp_path: Path) -> None:
    arguments = ["--dir", str(tmp_path), "--json", str(tmp_path / "all.json"), "--only", "cycle"]
    command = run.command_line(run.parse_arguments(arguments))
    assert command == "python tools/bench/run.py --rounds 5 --only cycle --json all.json"


def test_machine_facts_name_no_host_and_no_path(tmp_path: Path) -> None:
    text = json.dumps(facts.machine_facts(tmp_path))
    assert str(tmp_path) not in text
    assert {"CPU", "kernel", "file system", "Python"} <= set(json.loads(text))


@pytest.mark.slow
def test_the_other_surfaces_are_measured(tmp_path: Path) -> None:
    figures = dict(surfaces.one_round(tmp_path, 50))
    assert {"qindex.aio", "qindex.compat.Queue"} <= set(figures)
    for option in ("no options", "four headers", "a lease", "a ttl", "events on"):
        assert figures[f"qindex, {option}"].keys() == figures[f"qindex.aio, {option}"].keys()
    of_verbs = figures["qindex, the other verbs (CPU)"]
    assert (
        of_verbs.keys()
        == figures["qindex.aio, the other verbs (CPU)"].keys()
        == surfaces.VERBS.keys()
    )
    assert all(value > 0 for found in figures.values() for value in found.values())


@pytest.mark.parametrize("name", dead.WORKS)
@pytest.mark.sample(8)
def test_each_dead_directory_is_made_read_and_removed(name: str, tmp_path: Path) -> None:
    if dead.WORKS[name][2] == dead.COLUMNS:
        pytest.importorskip("pyarrow")
    found = dead.measure(name, 400, tmp_path, repeats=1)
    assert found.messages == (1000 if "10 GB" in name else 400)
    assert found.file_bytes > found.messages * dead.STORED_BODY_BYTES
    assert found.memory_bytes > 1 << 20
    assert not list(tmp_path.iterdir())
