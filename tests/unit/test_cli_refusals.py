"""What commands must not pass over: options that say nothing, outputs that are gone, and counts."""

import re
import shutil
from types import SimpleNamespace

import pytest

import qindex


@pytest.mark.parametrize(
    "line",
    [
        "replay {store} mails --from 3 --at 4",
        "replay {store} mails --to 3 --step",
        "replay {store} mails --verb ack",
        "replay {store} mails --verb ack --at 3",
        "replay {store} mails --messages",
        "replay {store} mails --at 3 -n 2",
        "replay {store} mails --at 3 --out {out} --messages",
        "replay {store} mails --step --json",
        "replay {store} --verify --priority 3",
        "replay {store} mails --priority 3",
        "peek {store} --json --bodies hex",
        "diff {store} {store} --json --lines 3",
        "diff {store} {store} --jsonl --lines 3",
        "plot slots {store} mails --json --priority 3",
        "recover {store} --keep-expired",
        "republish {store} --amqp amqp://h --checkpoint {out} --as-published --strip-prefix m",
        "republish {store} --amqp amqp://h --checkpoint {out} --strip-prefix nobody",
        "write-rabbitmq {store} --out {out} --strip-prefix nobody",
        "spark-export {store} --out {out} --master none --states ,",
    ],
)
def test_an_option_that_would_say_nothing_is_refused(run, line, store_path, tmp_path):
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    code, shown, err = run(*line.format(store=store_path, out=out).split())
    assert (code, shown) == (2, "")
    assert err.startswith("qindex: ")
    assert not out.exists()


@pytest.mark.parametrize(
    "command",
    ["peek", "cat", "export --out {out}.jsonl", "replay", "bisect --cmd true", "diff {store}",
     "plot depth --json", "write-rabbitmq --out {out}",
     "republish --amqp amqp://h --checkpoint {out}"],
)  # fmt: skip
def test_a_queue_that_is_not_there_is_an_error(run, command, store_path, tmp_path):
    out = tmp_path / "out"
    name, *options = command.format(out=out, store=store_path).split()
    first = [options.pop(0)] if name == "plot" else []
    other = [options.pop(0)] if name == "diff" else []
    asked = ["mails", "nobody"] if name not in ("replay", "bisect", "plot") else ["nobody"]
    code, shown, err = run(name, *first, store_path, *other, *asked, *options)
    assert (code, shown) == (2, "")
    assert "'nobody'" in err
    assert not out.exists()


def test_two_queues_are_not_published_as_one(run, tmp_path, monkeypatch):
    pika = pytest.importorskip("pika")
    monkeypatch.setattr(pika, "BlockingConnection", lambda _: pytest.fail("nothing is refused"))
    with qindex.open(tmp_path / "s") as store:
        for name in ("vh/a", "a"):
            store.queue(name).publish(b"x")
    for command in (
        ["write-rabbitmq", "--out"],
        ["republish", "--amqp", "amqp://h", "--checkpoint"],
    ):
        code, _, err = run(
            command[0], tmp_path / "s", *command[1:], tmp_path / "o", "--strip-prefix", "vh/"
        )
        assert code == 2
        assert "two queues would become 'a'" in err
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "files"])
@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_an_export_that_is_gone_is_not_called_complete(run, form, harm, store_path, tmp_path):
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    export = ("export", store_path, "--form", form, "--out", out)
    assert run(*export).code == 0
    assert run(*export).code == 0
    if harm == "cut" and form != "parquet":
        file = out / "messages.jsonl" if form == "files" else out
        file.write_bytes(file.read_bytes()[:-1])
    elif out.is_dir():
        shutil.rmtree(out)
    else:
        out.unlink()
    code, shown, err = run(*export)
    assert (code, shown) == (2, "")
    assert f"delete '{out}.checkpoint'" in err


def test_a_trace_of_what_may_be_in_the_damage_is_no_clean_answer(run, store_path):
    file = next(store_path.glob("messages/*.qms"))
    data = bytearray(file.read_bytes())
    data[data.index(b"BBBB") + 100] ^= 1
    file.write_bytes(data)
    code, _, err = run("trace", store_path, "an id")
    assert code == 1
    assert "1 damaged place cannot: it may be there" in err


def test_a_trace_that_shows_a_part_says_so(run, tmp_path, monkeypatch):
    from qindex.cli.trace import command as trace

    monkeypatch.setattr(trace, "MATCHES_MAX", 2)
    found = [SimpleNamespace(damaged=False) for _ in range(3)]
    monkeypatch.setattr(trace, "_traces", lambda *_: iter(found))
    monkeypatch.setattr(trace, "_show", lambda *_: None)
    with qindex.open(tmp_path / "s") as store:
        store.queue("q")
    code, _, err = run("trace", tmp_path / "s", "x")
    assert code == 1
    assert "more than 2 messages" in err


def test_json_has_no_silence_about_a_queue_without_a_name(run, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"x")
        folder = tmp_path / "s" / store.queue_directory("q")
    (folder / "queue.meta").write_bytes(bytes(100))
    code, _, err = run("ls", tmp_path / "s", "--json")
    assert code == 1
    assert "1 queue whose name is damaged" in err


WRONG_PLURAL = re.compile(
    r"(?<![\d,.:/-])1 (?:live |more |dead |damaged |message |last )?([a-z]+s)\b"
)
SINGULAR = {"is", "was", "has", "s", "ms", "persistent", "us", "does", "expires", "needs"}


@pytest.mark.parametrize(
    "line",
    [
        "ls {s}", "stats {s}", "check {s}", "peek {s}", "du {s} --explain", "replay {s}",
        "replay {s} --at 1 --messages", "replay {s} --verify", "trace {s} q:0", "dump {s}",
        "diff {s} {s}", "diff {s} {other}", "salvage {s} --out {o}", "export {s} --out {o}.jsonl",
        "write-rabbitmq {s} --out {o}", "audit {s} --master none --out {o}", "top {s} --once",
        "spark-export {s} --master none --out {o}", "recover {node}", "recover {node} --out {o}",
        "spark-recover {node} --master none --out {o}", "bisect {s} --cmd true", "ls {node}",
        "stats {node}", "check {node}", "du {node}", "plot files {s} --json",
        "recover {node} --report {o}.html", "replay {s} --at 1 --out {o}", "peek {s} --bodies hex",
    ],
)  # fmt: skip
@pytest.mark.sample(3)
def test_one_is_singular(run, line, tmp_path):
    pytest.importorskip("pyarrow")
    node, other = tmp_path / "node", tmp_path / "other"
    for path, body in ((tmp_path / "s", b"line\n" * 9 + b"x" * 5000), (other, b"y")):
        with qindex.open(path) as store:
            store.queue("q").publish(body)
            store.queue("q").get()
    assert run("write-rabbitmq", tmp_path / "s", "--out", node).code == 0
    line = line.format(s=tmp_path / "s", other=other, node=node, o=tmp_path / "o")
    code, out, err = run(*line.split())
    assert code in (0, 1), err
    text = out + err
    for page in tmp_path.rglob("*.html"):
        text += page.read_text()
    wrong = [found[0] for found in WRONG_PLURAL.finditer(text) if found[1] not in SINGULAR]
    assert wrong == []
