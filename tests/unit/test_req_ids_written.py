"""A ReqId has one written form, its decimal digits: JSON has it as a string, commands take it."""

import json
import shutil

import pytest

import qindex
from qindex.look.messages import Found, written_id

EXACT_MAX = 2**53  # of what JavaScript and jq read from a number


@pytest.fixture
def store_path(tmp_path):
    """A store whose ReqIds exceed what JavaScript can count to, and those ReqIds."""
    with qindex.open(tmp_path / "store") as store:
        queue = store.queue("orders", dead_letters=True)
        ids = [queue.publish(b"x" * 5000, priority=200) for _ in range(3)]
        ids.append(queue.publish(b"later", due=4102444800))
        queue.nack(queue.get(), requeue=False)
    assert min(ids) > EXACT_MAX
    return tmp_path / "store", ids


def documents(text):
    """The JSON documents of an output: one, or one a line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def leaves(value, key=None):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, key)
    else:
        yield key, value


def commands(path, copy, ids):
    first = written_id(ids[0])
    return [
        ("peek", path, "--json"),
        ("cat", path, "--jsonl"),
        ("stats", path, "--json"),
        ("top", path, "--once", "--json"),
        ("du", path, "--explain", "--json"),
        ("trace", path, f"orders:{first}", "--json"),
        ("replay", path, "orders", "--json", "--from", 0),
        ("replay", path, "orders", "--json", "--messages", "--until", first),
        ("diff", path, copy, "--jsonl"),
        ("diff", path, copy, "--jsonl", "--by", "content"),
        ("bisect", path, "orders", "--json", "--cmd", "! grep -q ."),
        ("check", path, "--json"),
        ("ls", path, "--json"),
    ]


def test_json_has_every_req_id_as_a_string_of_digits(run, store_path, tmp_path):
    path, ids = store_path
    copy = shutil.copytree(path, tmp_path / "copy")
    with qindex.open(copy) as store:
        store.queue("orders").purge()
    seen = {}
    for command in commands(path, copy, ids):
        ran = run(*command)
        assert ran.out, (command, ran)
        for document in documents(ran.out):
            for key, value in leaves(document):
                assert not (isinstance(value, int) and value > EXACT_MAX), (command, key, value)
                if key is not None and (key.endswith(("req_id", "req_ids")) or key == "other"):
                    assert value is None or (isinstance(value, str) and value.isdecimal())
                    seen.setdefault(command[0], set()).add(value)
    for name in ("peek", "cat", "trace", "replay", "diff", "bisect", "du", "top"):
        assert seen[name] & set(map(str, ids)), (name, seen)


def test_what_a_command_prints_a_command_takes(run, store_path):
    path, _ = store_path
    for line in run("cat", path, "--jsonl").out.splitlines():
        told = json.loads(line)
        text = told["req_id"]
        (again,) = run("cat", path, "orders", "--req-id", text, "--jsonl").out.splitlines()
        assert json.loads(again) == told
        assert run("trace", path, f"orders:{text}").code == 0
        assert run("replay", path, "orders", "--until", text).code == 0
        assert text in run("peek", path, "orders", "--req-id", f"{text}-{text}").out


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1e3", "0x1", "1,000", "٣", " 1", "1" * 21])
def test_another_form_is_refused(run, store_path, text):
    path, _ = store_path
    assert run("cat", path, "orders", f"--req-id={text}").code == 2
    assert run("replay", path, "orders", f"--until={text}").code == 2


def test_python_keeps_the_int(store_path):
    path, ids = store_path
    with qindex.open(path, read_only=True) as store:
        assert sorted(m.req_id for m in store.queue("orders").browse()) == sorted(ids)
    message = Found("q", ids[0], "ready", False, 0, True, 0, b"", b"")
    assert message.req_id == int(message.as_json()["req_id"]) == ids[0]
