"""The stub of qindex._calls has the texts and the parameters of what was built."""

import ast
import inspect
from pathlib import Path

import pytest

import qindex
from qindex.calls import MessageFields, QueueCalls

STUB = ast.parse(Path(qindex.__file__).with_name("calls.pyi").read_text(encoding="utf-8"))
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
BUILT = {"QueueCalls": QueueCalls, "MessageFields": MessageFields}
PUBLIC = [
    (name, node)
    for name in BUILT
    for node in CLASSES[name].body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


def test_what_users_call_is_among_them():
    assert {node.name for _, node in PUBLIC} == {
        "publish",
        "get",
        "get_many",
        "ack",
        "nack",
        "touch",
        "req_id",
        "body",
    }


@pytest.mark.parametrize(("name", "node"), PUBLIC, ids=lambda value: getattr(value, "name", value))
def test_a_text_of_the_stub_is_that_of_the_core(name, node):
    text = inspect.getdoc(getattr(BUILT[name], node.name))
    assert text
    assert ast.get_docstring(node) == text


@pytest.mark.parametrize("name", BUILT)
def test_a_class_of_the_stub_has_the_text_of_the_core(name):
    assert ast.get_docstring(CLASSES[name]) == inspect.getdoc(BUILT[name])


@pytest.mark.parametrize("verb", ["publish", "get", "get_many", "ack", "nack", "touch"])
def test_a_verb_of_the_stub_has_the_parameters_of_the_core(verb):
    (node,) = [node for _, node in PUBLIC if node.name == verb]
    stub = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    assert stub == list(inspect.signature(getattr(QueueCalls, verb)).parameters)
