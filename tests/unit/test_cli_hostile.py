"""Foreign text goes through every command: names of queues, files and folders, headers, arguments.

No control character may reach the terminal, JSON is valid and has every name, HTML is escaped, and
nothing ends in a traceback. The commands and options are taken from the parser.
"""

import argparse
import functools
import json
import struct
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile_commands import (
    ABOUT_A_SERVER,
    AS_FILES,
    BASE,
    ESCAPES,
    HOSTILE,
    NEEDS,
    OUR_COLOURS,
    Broker,
    Terminal,
)

import qindex
from qindex.brokers.rabbitmq.write import Content, VhostWriter
from qindex.brokers.storable import storable_name
from qindex.cli.demo import command as demo
from qindex.cli.demo import hands as demo_run
from qindex.cli.main import main, make_parser
from qindex.names import as_bytes, written


@functools.cache
def actions_of(command):
    parsers = [
        a for a in make_parser(command)._actions if isinstance(a, argparse._SubParsersAction)
    ]
    return parsers[0].choices[command]._actions


def commands():
    parsers = [a for a in make_parser("")._actions if isinstance(a, argparse._SubParsersAction)]
    return list(parsers[0].choices)


COMMANDS = [name for name in commands() if name not in ABOUT_A_SERVER]


def test_no_command_is_forgotten():
    assert set(COMMANDS) == set(BASE)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A store, an NSQ directory and a RabbitMQ node, in folders with hostile names."""
    base = tmp_path_factory.mktemp("hostile") / "\x1b[35mfolder\n\udcff\u202e<b>"
    base.mkdir()
    with qindex.open(base / "store", format=2, segment_entries=64) as store:
        for name in HOSTILE:
            headers = {ESCAPES: ESCAPES, "a": [ESCAPES, "<b>"]}
            store.queue(name).publish(ESCAPES.encode(), headers=headers)
            store.queue(name).publish(b"B" * 9000)
        store.queue("plain").publish_many([b"x"] * 100)
        store.queue("plain").ack_many(store.queue("plain").get_many(50))
    nsq = base / "nsq"
    nsq.mkdir()
    for number, name in enumerate(AS_FILES):
        name = name[:60]
        content = b"".join(struct.pack(">I", 5) + b"body%d" % n for n in range(4))
        (nsq / f"{name}.diskqueue.000000.dat").write_bytes(content + b"\0\0" * (number % 2))
        (nsq / f"{name}.diskqueue.000000.dat.bad").write_bytes(content)
        (nsq / f"{name}.diskqueue.meta.dat").write_text(f"4\n0,0\n0,{len(content)}\n")
    node = base / "node"
    node.mkdir()
    vhost = VhostWriter(node, b"/\xff\x1b[35m")
    for name in HOSTILE:
        if name and not set(name) & set("\r\n\0"):  # names in a file of lines
            raw = as_bytes(name)
            for count in range(2):
                content = Content(
                    "ex", [ESCAPES], b"", b"x" * (5000 * count), bytes(15) + raw[:1], True
                )
                vhost.queue(raw).publish(content)
    vhost.close()
    index = next(node.rglob("0.idx"))
    index.write_bytes(index.read_bytes()[:-3])  # something to tell of
    return {"store": base / "store", "nsq": nsq, "node": node, "file": AS_FILES[0]}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder for outputs, with a hostile name, which is the current one, too."""
    monkeypatch.setattr(demo, "WRITER_SECONDS", 0.1)
    monkeypatch.setattr(demo_run, "ROUNDS_MIN", 4)
    out = tmp_path / "\x1b[35mout\udcfe\n<i>"
    out.mkdir()
    monkeypatch.chdir(out)
    return out


@pytest.fixture
def play(capfd, monkeypatch):
    """Runs a command in this process; what it wrote into pipes. A traceback fails the test."""

    def play(*arguments):
        if arguments[0] == "republish":
            monkeypatch.setattr(pytest.importorskip("pika"), "BlockingConnection", Broker)
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        return (code, *capfd.readouterr())

    return play


def filled(words, places, out, queue):
    return [word.format(**places, out=out, queue=queue, plain="plain") for word in words]


def is_clean(text):
    return all(c == "\n" or c.isprintable() for c in text)


def shown_controls(text):
    return sorted({repr(c) for c in text if c != "\n" and not c.isprintable()})


def texts_in(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
    elif isinstance(value, str):
        yield value


def json_in(text):
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)


def look_at_files(out):
    for path in out.rglob("*"):
        if path.suffix == ".html":
            text = path.read_bytes().decode()
            assert is_clean(text), shown_controls(text)
            assert not Tags(text).found & {"script", "b" if "audit" not in str(path) else "", "x"}
        elif path.suffix == ".svg":
            ElementTree.fromstring(path.read_bytes())  # noqa: S314 - our own
        elif path.name.endswith((".jsonl", "definitions.json")):
            for value in json_in(path.read_bytes().decode("ascii")):
                list(map(str.encode, texts_in(value)))
        elif path.name.endswith(("torture.txt",)):
            assert is_clean(path.read_text())


CASES = [(command, number) for command in COMMANDS for number in range(len(BASE[command]))]
# They start processes, or draw a picture for each name.
SLOW = ("bisect", "demo", "plot", "torture")


def with_slow(cases):
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=slow if case[0] in SLOW else ()) for case in cases]


@pytest.mark.parametrize(("command", "number"), with_slow(CASES))
@pytest.mark.sample(3)
def test_names_are_harmless_in_text_and_in_files(play, places, here, command, number):
    pytest.importorskip(NEEDS.get(command, "json"))
    words = BASE[command][number]
    queues = HOSTILE if "{queue}" in str(words) and command != "write-rabbitmq" else HOSTILE[:1]
    for queue in queues:
        arguments = filled(words, places, here, queue)
        if set("\0\ud800") & set("".join(arguments)):
            continue  # no argument can hold these
        code, out, err = play(command, *arguments)
        assert code in (0, 1), (queue, err)
        if (command, "--jsonl") != ("cat", words[-1]) and command == "cat":
            out = out.replace(ESCAPES, "")  # bodies, in a pipe: as they are
        assert is_clean(out), shown_controls(out)
        assert is_clean(err), shown_controls(err)
        look_at_files(here)
        for path in here.glob("*.svg"):
            path.unlink()


WITH_JSON = [
    (command, number)
    for command, number in CASES
    if any("--json" in action.option_strings for action in actions_of(command))
    and "--bodies" not in BASE[command][number]
    and "--jsonl" not in BASE[command][number][1:2] + BASE[command][number][2:3]
]


@pytest.mark.parametrize(("command", "number"), with_slow(WITH_JSON))
@pytest.mark.sample(3)
def test_names_are_valid_json_and_come_back(play, places, here, command, number):
    pytest.importorskip(NEEDS.get(command, "json"))
    words = BASE[command][number]
    if command == "plot":
        words = words[: words.index("--out")]
    if command == "export":
        words = [*words[:-1], "{out}/o"]
    code, out, err = play(command, *filled(words, places, here, HOSTILE[0]), "--json")
    assert code in (0, 1), err
    assert out.isascii()
    assert is_clean(out), shown_controls(out)
    assert is_clean(err), shown_controls(err)
    texts = [text for value in json_in(out) for text in texts_in(value)]
    for text in texts:
        text.encode()  # valid for strict readers, too
    if command in ("ls", "stats", "top", "peek", "du", "diff") and words[0] == "{store}":
        assert set(map(written, HOSTILE)) <= set(texts)
    if command in ("ls", "stats", "peek", "du") and words[0] == "{nsq}":
        # But for stats, by the names that they get in a store.
        called = str if command == "stats" else storable_name
        assert {written(called(name[:60])) for name in AS_FILES} <= set(texts)


@pytest.mark.parametrize("command", [*with_slow((command,) for command in COMMANDS)])
@pytest.mark.sample(6)
def test_hostile_arguments_are_harmless(play, places, here, command):
    """In the place of each positional, as the value of each option, and as an unknown option."""
    base = BASE[command][0]
    trials = [["-" + ESCAPES], ["--" + HOSTILE[1]], ["--json=" + ESCAPES], [ESCAPES] * 9]
    for action in actions_of(command):
        if (
            action.help == argparse.SUPPRESS
            or action.nargs == 0
            or "--master" in action.option_strings
        ):  # Spark's own
            continue
        for name in (ESCAPES, HOSTILE[1], "\udcff\udc80", ""):
            if action.option_strings:
                trials.append([*base, action.option_strings[-1], name])
            else:
                trials.append([name, *base[1:]])
                trials.append([*base, name])
    for number, trial in enumerate(trials):
        if command in ("demo", "torture") and number > 8:
            break  # they take seconds each
        out = here / str(number)
        out.mkdir()
        code, shown, err = play(command, *filled_trial(trial, places, out))
        assert code in (0, 1, 2), (trial, err)
        if command == "cat":
            shown = shown.replace(ESCAPES, "")
            shown = shown if is_clean(shown) or "--separator" not in trial else ""
        assert is_clean(shown), (trial, shown_controls(shown))
        assert is_clean(err), (trial, shown_controls(err))
        if code == 2:
            assert err.count("\n") == 1
            assert err.startswith("qindex: ")


def filled_trial(trial, places, out):
    return [word if word in HOSTILE else w(word, places, out) for word in trial]


def w(word, places, out):
    return filled([word], places, out, "plain")[0] if "{" in word and "\x1b" not in word else word


@pytest.mark.parametrize("name", [ESCAPES, "\n", "\udcff", "\0", "x" * 10_000])
def test_hostile_commands_are_harmless(play, name):
    code, out, err = play(name)
    assert (code, out) == (2, "")
    assert err.startswith("qindex: ")
    assert is_clean(err.removesuffix("\n")), shown_controls(err)
    assert err.count("\n") == 1


ON_TERMINAL = [case for case in CASES if case[0] not in ("demo", "torture")]


@pytest.mark.parametrize(("command", "number"), ON_TERMINAL)
@pytest.mark.sample(3)
def test_a_terminal_gets_our_colours_and_no_others(places, here, command, number, monkeypatch):
    pytest.importorskip(NEEDS.get(command, "json"))
    if command == "republish":
        monkeypatch.setattr(pytest.importorskip("pika"), "BlockingConnection", Broker)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    queue = HOSTILE[command != "write-rabbitmq"]  # which has no names with line breaks
    arguments = filled(BASE[command][number], places, here, queue)
    with monkeypatch.context() as patch:
        terminal = Terminal(patch)
        code = main([command, *map(str, arguments)])
        shown = terminal.end()
    assert code in (0, 1), shown
    for ours in [*OUR_COLOURS, "\r\x1b[K", "\r\n"]:
        shown = shown.replace(ours, "\n")
    assert is_clean(shown), shown_controls(shown)


def test_the_colours_cannot_be_forged(places, monkeypatch):
    """A name with one of our own colours is text, also where nobody has made it printable."""
    from qindex.look.screen import Screen

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with monkeypatch.context() as patch:
        terminal = Terminal(patch)
        screen = Screen()
        assert screen.colour
        screen.line(f"{screen.paint('good', 'green')} \x1b[31mevil\x1b[0m \udcff\n")
        shown = terminal.end()
    assert shown == "\x1b[32mgood\x1b[0m \\x1b[31mevil\\x1b[0m \\x{ff}\\n\r\n"


def test_a_broker_gets_the_bytes_that_a_name_stands_for(play, places, here):
    pytest.importorskip("pika")
    code, _, err = play(
        "republish", places["store"], "--amqp", "amqp://h", "--checkpoint", here / "note"
    )
    assert (code, err) == (0, "")
    keys = {key for key, _ in Broker.sent}
    assert {b"\xff\x80", b"\\x{fe}\\x{80}", b"\\u{d800}", ESCAPES.encode()} <= keys


@pytest.mark.parametrize("name", ["\udcff\udc80", "\ud800", "\\x{fe}\\x{80}"])
def test_a_queue_is_found_by_its_written_name(play, places, here, name):
    """A shell cannot give \\ud800 as an argument."""
    for asked in {written(name), name} - {"\ud800"}:
        code, out, err = play("peek", places["store"], asked, "--json")
        assert (code, err) == (0, "")
        assert [line["queue"] for line in json_in(out)] == [written(name)] * 2
        assert play("replay", places["store"], asked)[0] == 0
        assert play("trace", places["store"], f"{asked}:0")[0] == 0
        assert play("plot", "slots", places["store"], asked, "--json")[0] == 0
        assert play("diff", places["store"], places["store"], asked)[0] == 0


def test_du_shows_file_names_in_one_line(play, places):
    _, out, _ = play("du", places["nsq"], "--explain")
    assert "\\x1b[2J\\x1b]0;owned\\x07" in out
    assert Path(places["nsq"]).name


def test_two_queues_whose_names_look_alike_are_told_apart(play, tmp_path):
    """One is called what the other one is written as; each is found by its own written form."""
    with qindex.open(tmp_path / "store") as store:
        for name in ("\ud800", "\\u{d800}"):
            store.queue(name).publish(name.encode("utf-8", "surrogatepass"))
    listed = json.loads(play("ls", tmp_path / "store", "--json")[1])
    assert [row["queue"] for row in listed] == ["\\\\u{d800}", "\\u{d800}"]
    assert play("ls", tmp_path / "store")[1].split()[2::2] == ["\\\\u{d800}", "\\u{d800}"]
    for row, name in zip(listed, ("\\u{d800}", "\ud800"), strict=True):
        [found] = json_in(play("peek", tmp_path / "store", row["queue"], "--json")[1])
        assert found["queue"] == row["queue"]
        assert ("body" in found) == (name != "\ud800")  # else it is no text
