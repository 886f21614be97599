"""What commands write: for its owner only, whatever the umask is, and a folder for each queue.

The commands and their options are taken from the parser, so that none can be forgotten.
"""

import argparse
import os
import stat
from types import SimpleNamespace

import pytest
from helpers import DEMO_NODE, unpack
from hypothesis import given
from hypothesis import strategies as st

import qindex
from qindex.cli.demo import command as demo
from qindex.cli.demo import hands as demo_run
from qindex.cli.export import outputs as export_outputs
from qindex.cli.main import COMMANDS, make_parser
from qindex.private import make_folder, open_private, replace_file

# Options that take a text, but name nothing that is written.
READ = {
    "--amqp", "--at-time", "--by", "--cmd", "--columns", "--config",
    "--format", "--gmq", "--gmq-http",
    "--gmq-pop-seconds", "--http", "--http-host", "--master", "--max-priority",
    "--member", "--member-b", "--page-only", "--queues", "--rescue", "--separator", "--state",
    "--states", "--strip-prefix", "--to", "--vhost", "--without",
}  # fmt: skip
# All that name what is written: the whole command, with {store}, {node} and {out}.
WRITE = {
    ("demo", "--dir"): "demo --dir {out}/demo --keep",
    ("recover", "--out"): "recover {node} --out {out}/store",
    ("recover", "--report"): "recover {node} --report {out}/page.html",
    ("salvage", "--out"): "salvage {store} --out {out}/store",
    ("export", "--out"): "export {store} --out {out}/lines.jsonl",
    ("export", "--out", "files"): "export {store} --form files --out {out}/files",
    ("export", "--out", "parquet"): "export {store} --out {out}/table.parquet",
    ("replay", "--out"): "replay {store} mails --at 10 --out {out}/store",
    ("republish", "--checkpoint"): "republish {store} --amqp amqp://b --checkpoint {out}/note",
    ("plot", "--out"): "plot files {store} --out {out}/plot.png",
    ("write-rabbitmq", "--out"): "write-rabbitmq {store} --out {out}/node",
    ("audit", "--out"): "audit {store} {node} --master none --out {out}/new/audit",
    ("spark-export", "--out"): "spark-export {store} {node} --master none --out {out}/new/export",
    ("spark-recover", "--out"): "spark-recover {node} --master none --out {out}/new/stores",
    ("torture", "--report"): "torture {out} --minutes 0.01 --report {out}/report.txt",
}


def options_with_text(command):
    parser = make_parser(command)
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for action in commands.choices[command]._actions:
        is_number = action.type in (int, float) or action.metavar in ("N", "S", "N[-M]", "SECONDS")
        if action.help == argparse.SUPPRESS:  # a former name of another option
            continue
        if action.option_strings and action.nargs is None and not action.choices and not is_number:
            yield action.option_strings[-1]


def test_every_option_is_known_to_write_or_to_read():
    """Whoever adds an option that names an output adds a command that writes it."""
    all_options = {(name, option) for name in COMMANDS for option in options_with_text(name)}
    written = {(command, option) for command, option, *_ in WRITE}
    known = written | {(name, option) for name, option in all_options if option in READ}
    known |= {("replay", "--priority"), ("replay", "--until"), ("plot", "--priority")}
    known |= {("serve", "--log-file"), ("serve", "--audit-file")}  # test_serve_operation.py, ~audit
    assert all_options - known == set()
    assert written <= all_options


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def broker(monkeypatch):
    pika = pytest.importorskip("pika")
    nothing = SimpleNamespace(
        confirm_delivery=lambda: None,
        queue_declare=lambda *_, **__: None,
        basic_publish=lambda *_, **__: None,
        close=lambda: None,
    )
    connection = SimpleNamespace(channel=lambda: nothing, close=lambda: None, sleep=None)
    monkeypatch.setattr(pika, "BlockingConnection", lambda _: connection)


def modes_below(folder):
    return {
        str(path.relative_to(folder)): (path.is_dir(), stat.S_IMODE(path.lstat().st_mode))
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("what", WRITE, ids=" ".join)
@pytest.mark.sample(3)
def test_with_any_umask_an_output_is_for_its_owner(
    run, what, tmp_path, store_path, dead_node, open_umask, broker, monkeypatch
):
    command = what[0]
    if command == "plot":
        pytest.importorskip("matplotlib")
    if "parquet" in what or command in ("audit", "spark-export", "spark-recover"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(demo, "WRITER_SECONDS", 0.1)
    monkeypatch.setattr(demo_run, "ROUNDS_MIN", 4)
    out = tmp_path / "out"
    out.mkdir(mode=0o700)
    line = WRITE[what].format(store=store_path, node=dead_node, out=out)
    ran = run(*line.split())
    assert ran.code in (0, 1), ran.err  # the node that ships has damage
    found = modes_below(out)
    assert found, "nothing was written"
    wrong = {n: oct(m) for n, (is_dir, m) in found.items() if m != (0o700 if is_dir else 0o600)}
    assert wrong == {}


@pytest.mark.parametrize(
    "line",
    ["recover {node} --report {file}.html", "plot files {store} --out {file}.svg"],
)
def test_an_output_that_is_written_again_is_for_its_owner_too(
    run, line, tmp_path, store_path, dead_node
):
    pytest.importorskip("matplotlib")
    line = line.format(file=tmp_path / "file", store=store_path, node=dead_node)
    old = next(tmp_path / f"file{ending}" for ending in (".html", ".svg") if ending in line)
    old.write_text("an older one" * 100_000)
    old.chmod(0o644)
    assert run(*line.split()).code in (0, 1)
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert "an older one" not in old.read_text()


def test_a_file_is_private_before_anything_is_in_it(tmp_path, open_umask):
    path = tmp_path / "file"
    path.write_bytes(b"old" * 10)
    path.chmod(0o666)
    with open_private(path) as file:
        assert (path.stat().st_size, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
        file.write(b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(FileExistsError):
        open_private(path, "xb")
    replace_file(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert sorted(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_written_as_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o644)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open_private(tmp_path / "pipe", "w", encoding="utf-8") as file:
        file.write("é")
    assert os.read(reader, 9) == "é".encode()
    assert stat.S_IMODE((tmp_path / "pipe").stat().st_mode) == 0o644
    os.close(reader)


def test_folders_are_private_down_to_the_last(tmp_path, open_umask):
    make_folder(tmp_path / "a/b/c")
    make_folder(tmp_path / "a/b/c")
    assert {mode for _, mode in modes_below(tmp_path).values()} == {0o700}
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


# --- a folder for each queue --------------------------------------------------------------------

STRANGE = ["", "\0", "%00", "%empty", "%25empty", ".", "..", "%2E", "messages.jsonl", "z" * 300]
STRANGE += ["messages%2Ejsonl", "Messages.JSONL", "z" * 301, "a/b", "a%2Fb", "\udc80", "☃", "~"]
STRANGE += [export_outputs.folder_name("z" * 300), "\udcff", "\ud800", "z" * 150, "é" * 25]
names = st.sampled_from(STRANGE) | st.text(max_size=60) | st.text("z%./~", max_size=200)


@given(names, names)
def test_two_queues_never_share_a_folder(one, other):
    folders = [export_outputs.folder_name(name) for name in (one, other)]
    assert (folders[0] == folders[1]) == (one == other)
    for folder in folders:
        assert not set(folder) & set("/\0")
        assert not folder.startswith(".")
        assert 0 < len(folder.encode()) <= 255
        assert folder.lower() != export_outputs.LIST


def test_every_queue_is_exported_into_files(run, tmp_path):
    strange = [name for name in dict.fromkeys(STRANGE) if len(name.encode(errors="replace")) < 256]
    with qindex.open(tmp_path / "s") as store:
        for name in strange:
            store.queue(name).publish(f"{name!a}".encode())
    code, out, err = run("export", tmp_path / "s", "--form", "files", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.startswith(f"{len(strange)} messages ")
    bodies = sorted(path.read_bytes() for path in (tmp_path / "out").glob("*/*.body"))
    assert bodies == sorted(f"{name!a}".encode() for name in strange)


def test_the_unpacked_archive_keeps_its_files(tmp_path):
    """The modes are ours, the content the archive's."""
    unpack(DEMO_NODE, tmp_path)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) > 20
