"""qindex.aio is the same names as qindex, awaited: both surfaces, signature by signature."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio

PAIRS = [
    (qindex.Store, aio.Store),
    (qindex.Queue, aio.Queue),
    (qindex.DiskQueue, aio.DiskQueue),
    (qindex.Consumer, aio.Consumer),
    (qindex.Events, aio.Events),
    (qindex.Data, aio.Data),
]
CONTEXT = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}
ITEMS = {"__getitem__", "__setitem__", "__delitem__"}
DUNDERS = {"__len__", "__bool__", "__contains__", "__repr__", *ITEMS, *CONTEXT}
NOT_AWAITED = DUNDERS - CONTEXT.keys() | {"queue_directory", "transaction"}
ONLY_ASYNC = {
    aio.Queue: {"__aiter__"},  # a loop of threads would end with nothing: get(timeout=None)
    aio.Store: set(),
    aio.Consumer: set(),
    aio.Events: set(),
    aio.DiskQueue: {"__await__"},
    aio.Data: set(),
}
STUB = ast.parse(Path(qindex.__file__).with_name("calls.pyi").read_text("utf-8"))


def members(cls):
    return {
        name: inspect.getattr_static(cls, name)
        for name in dir(cls)
        if not name.startswith("_") or (name in DUNDERS and getattr(cls, name, None) is not None)
        if inspect.getattr_static(cls, name) is not inspect.getattr_static(object, name, None)
    }


def in_the_stub(name):
    """Parameters and result of a verb that is written in C, as the stub for editors has them."""
    (found,) = [
        method
        for kind in STUB.body
        if isinstance(kind, ast.ClassDef) and kind.name == "QueueCalls"
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name == name
    ]
    return ast.unparse(found.args), ast.unparse(found.returns)


def shape(function):
    """Each parameter with its kind, its default and its type; and the result's type."""
    signature = inspect.signature(function)
    result = str(signature.return_annotation)
    for asynchronous in ("AsyncIterator", "AsyncGenerator"):
        result = result.replace(asynchronous, "Iterator")
    parameters = [
        (p.name, p.kind, "default" if p.default is p.empty else p.default, str(p.annotation))
        for p in signature.parameters.values()
    ]
    return parameters, result


@pytest.mark.parametrize(("plain", "awaited"), PAIRS, ids=lambda cls: cls.__module__)
def test_both_surfaces_have_the_same_names(plain, awaited):
    expected = {CONTEXT.get(name, name) for name in members(plain)}
    if "__enter__" in members(plain):
        expected |= {"__aenter__", "__aexit__"}
    found = {name for name in dir(awaited) if not name.startswith("_")}
    found |= {name for name in (*DUNDERS, *CONTEXT.values()) if name in vars_of(awaited)}
    extra = ONLY_ASYNC[awaited] - {"__await__"}
    assert found - {"__repr__"} == (expected | extra) - {"__repr__"}


def vars_of(cls):
    return {name for base in cls.__mro__[:-1] for name in vars(base)}


@pytest.mark.parametrize(
    ("plain", "awaited", "name"),
    [
        (plain, awaited, name)
        for plain, awaited in PAIRS
        for name in [*members(plain), "__init__"]
        if name not in CONTEXT and (name != "__init__" or plain is qindex.DiskQueue)
    ],
    ids=lambda value: value if isinstance(value, str) else value.__module__,
)
def test_a_member_has_the_same_signature_and_type(plain, awaited, name):
    ours = inspect.getattr_static(plain, name)
    theirs = inspect.getattr_static(awaited, name)
    if isinstance(ours, property):
        assert isinstance(theirs, property)
        assert shape(ours.fget) == shape(theirs.fget)
        return
    if not inspect.isfunction(ours):  # written in C
        method = next(
            node
            for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(theirs))))
            if isinstance(node, ast.AsyncFunctionDef) and node.name == name
        )
        arguments = ast.unparse(method.args).replace("*wrong: Never,", "*,")  # what is refused
        assert (arguments, ast.unparse(method.returns)) == in_the_stub(name)
        assert [p[:3] for p in shape(ours)[0][1:]] == [p[:3] for p in shape(theirs)[0][1:]]
    elif ours.__module__ == "collections.abc" or name in ("__setitem__", "__delitem__"):
        named = [list(inspect.signature(verb).parameters) for verb in (ours, theirs)]
        assert named[0] == named[1]  # the types are those of typeshed; what is refused has none
    else:
        assert shape(ours) == shape(theirs)
    is_awaited = inspect.iscoroutinefunction(theirs) or inspect.isasyncgenfunction(theirs)
    assert is_awaited == (name not in NOT_AWAITED | {"__init__"})
    assert inspect.getdoc(theirs) or name.startswith("__")


def test_open_has_the_same_options_and_one_more():
    ours, _ = shape(qindex.open)
    theirs, _ = shape(aio.open)
    assert theirs[: len(ours)] == ours
    assert [name for name, *_ in theirs[len(ours) :]] == ["max_unconfirmed"]


@on_a_loop
async def test_what_is_an_attribute_of_a_store_or_queue_is_one_on_both_surfaces(tmp_path):
    def plain_attributes(thing):
        return {name for name in vars(thing) if not name.startswith("_")}

    with qindex.open(tmp_path / "plain") as store:
        names = plain_attributes(store), plain_attributes(store.queue("a"))
    async with aio.open(tmp_path / "awaited") as store:
        awaited = plain_attributes(store), plain_attributes(await store.queue("a"))
        assert awaited == (names[0] | {"max_unconfirmed"}, names[1])
        assert (store.read_only, store.sync_policy) == (False, "group")


@on_a_loop
async def test_figures_names_and_findings_are_those_of_the_plain_surface(tmp_path):
    async with aio.open(tmp_path, idle=3600) as store:  # nothing is flushed meanwhile
        queue = await store.queue("a", dead_letters=True)
        assert bool(queue)
        assert (len(queue), queue.next_due, queue.oldest_age_min) == (0, None, None)
        await queue.publish_many([b"0", b"1", b"2", b"3"])
        await queue.publish(b"4", due=4102444800)
        await queue.nack(await queue.get(), requeue=False)
        await queue.get()
        await queue.sync()
        figures = (len(queue), queue.ready, queue.unacked, queue.delayed, queue.dead)
        assert figures == (5, 2, 1, 1, 1)
        assert queue.next_due == 4102444800
        assert queue.oldest_age_min >= 0
        assert queue.dirty_count == (await queue.stats()).dirty_count > 0
        assert ("a" in store, "b" in store, 5 in store) == (True, False, False)
        assert store.findings == []
        assert store.queue_directory("a").startswith("queues/")


def test_a_transaction_only_collects_so_its_block_alone_is_awaited():
    ours, theirs = members(qindex.Transaction), members(aio.Transaction)
    assert ours.keys() - CONTEXT.keys() == theirs.keys() - CONTEXT.keys()
    for name in ours.keys() - CONTEXT.keys():
        assert theirs[name] is ours[name]
    for name in CONTEXT.values():
        assert hasattr(aio.Transaction, name) == (name != "__aiter__")
    with pytest.raises(TypeError, match="async with"):
        aio.Transaction.__enter__(object.__new__(aio.Transaction))


@on_a_loop
async def test_messages_and_mappings_are_the_same_on_both_surfaces(tmp_path):
    async with aio.open(tmp_path, format=2) as store:
        queue = await store.queue("a")
        await queue.publish(b"x")
        assert type(await queue.get()) is qindex.Message
        for data in (store.data, queue.data):
            await data.change({b"key": b"value"})
        assert store._store.data.copy() == store._store.queue("a").data.copy() == {b"key": b"value"}


@on_a_loop
async def test_a_mapping_is_read_at_once_and_changed_by_what_is_awaited(tmp_path):
    async with aio.open(tmp_path, format=2) as store:
        data = (await store.queue("a")).data
        await data.change({b"1": b"one", b"2": b"two", b"3": b"three"}, confirm=True)
        assert (data[b"1"], b"2" in data, b"4" in data, len(data)) == (b"one", True, False, 3)
        assert (await data.get(b"1"), await data.get(b"4"), await data.get(b"4", b"no")) == (
            *(b"one", None, b"no"),
        )
        assert [key async for key in data] == list(await data.keys()) == [b"1", b"2", b"3"]
        assert list(await data.values()) == [b"one", b"two", b"three"]
        assert dict(await data.items()) == await data.copy()
        assert await data.pop(b"1") == b"one"
        assert await data.pop(b"1", None) is None
        with pytest.raises(KeyError):
            await data.pop(b"1")
        with pytest.raises(KeyError):
            data[b"1"]
        assert await data.setdefault(b"2", b"zwei") == b"two"
        assert await data.setdefault(b"5", b"five") == b"five"
        assert await data.popitem() == (b"2", b"two")
        await data.update([(b"6", b"six")])
        assert await data.copy() == {b"3": b"three", b"5": b"five", b"6": b"six"}
        for refused in (lambda: data.__setitem__(b"3", b"x"), lambda: data.__delitem__(b"3")):
            with pytest.raises(TypeError, match=r"await data\.change\(\{key: (value|None)\}\)"):
                refused()
        with pytest.raises(TypeError, match="a key is bytes"):
            await data.change({"text": b"x"})
        with pytest.raises(ValueError, match="store's own"):
            await data.change({b"\0x": b"x"})
        changes = {b"7": b"seven"}
        changing = data.change(changes)
        await data.clear()
        assert not len(data)
        await changing
        assert data[b"7"] == b"seven"
    async with aio.open(tmp_path) as store:
        assert (await store.queue("a")).data[b"7"] == b"seven"
        assert "qindex.aio.Data" in repr(store.data)


@pytest.mark.slow
def test_a_misspelt_option_is_found_by_mypy(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import qindex.aio\n"
        "async def main() -> None:\n"
        "    async with qindex.aio.open('data', sink='group') as store:\n"
        "        queue = await store.queue('a', max_message=5)\n"
        "        await queue.publish(b'1', prioritty=3)\n"
        "        await queue.publish(b'1', priority='3')\n"
        "        await store.publish(['a'], b'1', dely=3)\n"
        "        await queue.nack(1, delai=3)\n"
        "        await qindex.aio.DiskQueue('a', 'b', sync_evry=1)\n"
        "        store.data[b'key'] = b'value'\n"
        "        await store.data.chang({})\n"
        "        right: int = await queue.publish(b'1', priority=3, lease=30)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(qindex.__file__).parents[1]
    )
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    lines = list(dict.fromkeys(lines))  # of an overloaded function two are told
    assert lines == ["3", "4", "5", "6", "7", "8", "9", "10", "11"], done.stdout
