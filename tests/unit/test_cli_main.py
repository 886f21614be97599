"""What all commands have in common: help, errors in one line, exit codes, pipes, terminals."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import qindex
from qindex.cli import ls
from qindex.cli.main import COMMANDS
from qindex.names import written


def on_a_terminal(*arguments, **environment):
    """Everything that the command wrote to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "qindex", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(ours)
    return process.wait(), written.decode()


def test_version(run):
    assert run("--version") == (0, f"qindex {qindex.__version__}\n", "")


def test_help_names_every_command_and_the_exit_codes(run):
    code, out, _ = run("--help")
    assert code == 0
    first_words = [line.split()[0] for line in out.splitlines() if line.startswith("    ")]
    assert set(COMMANDS) <= set(first_words)
    assert "exit codes" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_its_purpose_and_its_exit_codes(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"usage: qindex {command} " in out
    assert "exit codes: 0 " in out
    assert max(map(len, out.splitlines())) <= 82


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_readable_in_60_columns(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run(*command.split(), "--help")
    prose = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert max(map(len, prose)) <= 60


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("qindex rec", {"recover"}),
        ("qindex recover --or", {"--orphans"}),
        ("qindex top --in", {"--interval"}),
    ],
)
def test_a_shell_is_told_what_may_come_next(tmp_path, typed, offered):
    environment = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "offered"),
        "COMP_LINE": typed,
        "COMP_POINT": str(len(typed)),
    }
    command = [sys.executable, "-m", "qindex"]
    subprocess.run(command, env={**os.environ, **environment}, check=True)
    assert {word.strip() for word in (tmp_path / "offered").read_text().split()} == offered


@pytest.mark.parametrize(
    ("command", "old"),
    [
        ("recover {dead} --into {out}", "--into"),
        ("replay {store} mails --at 3 --into {out}", "--into"),
        ("spark-recover {dead} --master none --into {out}", "--into"),
        ("plot files {store} -o {out}.svg", "-o"),
    ],
)
def test_an_options_former_name_works_and_is_told(
    run, store_path, dead_node, tmp_path, command, old
):
    words = command.format(store=store_path, dead=dead_node, out=tmp_path / "out").split()
    code, _, err = run(*words)
    assert code == 0, err
    assert err.startswith(f"note: {old} is called --out now")
    new = [word if word != old else "--out" for word in words]
    assert run(*new, "--into" if old == "--into" else "-o", tmp_path / "x").code == 2  # one of them


def test_without_a_command_help_is_shown_as_an_error(run):
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("usage: qindex")


@pytest.mark.parametrize(
    "arguments",
    [
        ["pek"],
        ["peek"],
        ["peek", "x", "-n", "0"],
        ["peek", "x", "-n", "many"],
        ["ls", "x", "--jso"],
    ],
)
def test_wrong_usage_is_one_line_that_says_where_help_is(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("qindex: ")
    assert err.count("\n") == 1
    assert "--help" in err


@pytest.mark.parametrize("command", ["ls", "stats", "check", "peek", "dump"])
def test_a_path_that_is_no_store_is_refused_in_one_line(run, command, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        code, out, err = run(command, path)
        assert (code, out) == (2, "")
        assert err.startswith("qindex: ")
        assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_refusal_says_what_to_do_instead(run, store_path, dead_node):
    assert "RabbitMQ node; qindex recover" in run("top", dead_node).err
    assert f"the store is {str(store_path)!r}" in run("stats", store_path / "queues").err
    assert f"perhaps you mean {str(store_path)!r}" in run("stats", store_path.parent).err


def test_a_directory_of_serve_names_its_stores(tmp_path, run):
    """It named only DIR/node, where the messages are not."""
    (tmp_path / "data" / "vhosts").mkdir(parents=True)
    for name in ("node", "vhosts/0", "vhosts/1"):
        qindex.open(tmp_path / "data" / name, format=2).close()
    result = run("check", tmp_path / "data")
    assert result.code == 2
    stores = ", ".join(repr(str(tmp_path / "data" / "vhosts" / each)) for each in "01")
    assert f"a directory of qindex serve; its stores are {stores}" in result.err


def test_output_in_a_pipe_has_no_escapes(start, store_path):
    for arguments in (["stats", store_path], ["check", store_path], ["dump", store_path]):
        out, err = start(*arguments).communicate()
        assert "\x1b" not in out
        assert err == ""


def test_a_terminal_gets_colour_unless_it_does_not_want_it(store_path):
    assert "\x1b[1m" in on_a_terminal("stats", store_path)[1]
    assert "\x1b[" not in on_a_terminal("stats", store_path, NO_COLOR="1")[1]
    assert "\x1b[" not in on_a_terminal("stats", store_path, TERM="dumb")[1]


def test_a_narrow_terminal_shortens_names_only(tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("a" * 200).publish(b"x")
    _, shown = on_a_terminal("ls", tmp_path / "s", NO_COLOR="1", COLUMNS="40")
    assert max(map(len, shown.splitlines())) <= 40
    assert "aaa…aaa" in shown
    assert " 1\r\n" in shown


def test_a_closed_pipe_is_no_error(store_path):
    program = f"{sys.executable} -m qindex dump {store_path} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("queue mails")
    assert done.stderr == ""
    assert done.returncode in (0, 141)  # 0: head was slower than we were


def test_an_interrupt_ends_with_one_line(run, store_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ls, "open_to_look", interrupted)
    assert run("ls", store_path) == (130, "", "qindex: interrupted\n")


def test_names_that_the_terminal_cannot_show_are_escaped(start, tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("заказы")
    out, _ = start("ls", tmp_path / "s", PYTHONIOENCODING="latin-1").communicate()
    assert "\\u0437\\u0430" in out


def test_json_survives_any_name_and_any_value(run, tmp_path):
    name = "q\udc80\x1b\n☃"
    headers = {"nan": float("nan"), "raw": b"\xff", "list": [1, {"a": None}], "big": 2**62}
    with qindex.open(tmp_path / "s") as store:
        store.queue(name).publish(b"\xff\x00", headers=headers)
    out = run("peek", tmp_path / "s", "--json").out
    assert out.isascii()
    told = json.loads(out)
    assert told["queue"] == written(name)
    assert told["headers"]["raw"] == {"hex": "ff"}
    assert told["body_base64"] == "/wA="
    for command in ("ls", "stats", "check"):
        assert run(command, tmp_path / "s", "--json").out.isascii()


def test_ctrl_c_in_the_demo_leaves_nothing_behind(start, tmp_path):
    demo = start("demo", "--dir", tmp_path / "demo")
    while not list(Path(tmp_path).glob("demo/store/queues/*")) and demo.poll() is None:
        time.sleep(0.01)
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate()
    assert (demo.returncode, err) == (130, "qindex: interrupted\n")
    assert list(tmp_path.iterdir()) == []
