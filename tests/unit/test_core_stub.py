"""qindex/_core.pyi says what qindex._core has: no name more, no name less, the same values."""

import ast
from pathlib import Path

import pytest

import qindex
from qindex._core import ffi, lib

STUB = ast.parse(Path(qindex.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def constants_of(node):
    return {
        statement.target.id: ast.literal_eval(statement.value)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and statement.value
    }


def functions_of(node):
    return {item.name: item.args for item in node.body if isinstance(item, ast.FunctionDef)}


def test_the_stub_names_exactly_what_the_core_has():
    node = CLASSES["_Lib"]
    assert sorted(constants_of(node) | functions_of(node)) == sorted(dir(lib))


@pytest.mark.parametrize(("name", "value"), constants_of(CLASSES["_Lib"]).items())
def test_a_constant_of_the_stub_has_the_value_of_the_header(name, value):
    assert getattr(lib, name) == value


@pytest.mark.parametrize("name", functions_of(CLASSES["_Lib"]))
def test_a_function_of_the_stub_takes_as_many_arguments_as_in_c(name):
    described = functions_of(CLASSES["_Lib"])[name]
    names = [argument.arg for argument in (*described.posonlyargs, *described.args)]
    assert names[0] == "self"
    assert described.args == [] or names == ["self"], "cffi's functions take no keywords"
    assert len(names) - 1 == len(ffi.typeof(getattr(lib, name)).args)


def test_the_stub_promises_only_what_ffi_has():
    node = CLASSES["_FFI"]
    names = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
    missing = [name for name in [*names, *functions_of(node)] if not hasattr(ffi, name)]
    assert missing == []
