"""_core.pyi and testing/_sim.pyi say what the modules in C have: the same names and values."""

import ast
from pathlib import Path

import pytest

from qindex import _core
from qindex.testing import _sim

MODULES = {"_core": _core, "_sim": _sim}


def classes_of(module):
    file = Path(module.__file__)
    stub = ast.parse(file.with_name(file.name.split(".")[0] + ".pyi").read_text("utf-8"))
    return {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}


CLASSES = {name: classes_of(module) for name, module in MODULES.items()}


def constants_of(node):
    return {
        statement.target.id: ast.literal_eval(statement.value)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and statement.value
    }


def functions_of(node):
    return {item.name: item.args for item in node.body if isinstance(item, ast.FunctionDef)}


def listed(of):
    return [(name, entry) for name in MODULES for entry in of(CLASSES[name]["_Lib"]).items()]


@pytest.mark.parametrize("module", MODULES)
def test_the_stub_names_exactly_what_the_core_has(module):
    node = CLASSES[module]["_Lib"]
    assert sorted(constants_of(node) | functions_of(node)) == sorted(dir(MODULES[module].lib))


@pytest.mark.parametrize(("module", "constant"), listed(constants_of))
def test_a_constant_of_the_stub_has_the_value_of_the_header(module, constant):
    name, value = constant
    assert getattr(MODULES[module].lib, name) == value


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, (name, _) in listed(functions_of)]
)
def test_a_function_of_the_stub_takes_as_many_arguments_as_in_c(module, name):
    described = functions_of(CLASSES[module]["_Lib"])[name]
    names = [argument.arg for argument in (*described.posonlyargs, *described.args)]
    assert names[0] == "self"
    assert described.args == [] or names == ["self"], "cffi's functions take no keywords"
    assert len(names) - 1 == len(
        MODULES[module].ffi.typeof(getattr(MODULES[module].lib, name)).args
    )


@pytest.mark.parametrize("module", MODULES)
def test_the_stub_promises_only_what_ffi_has(module):
    node, ffi = CLASSES[module]["_FFI"], MODULES[module].ffi
    names = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
    missing = [name for name in [*names, *functions_of(node)] if not hasattr(ffi, name)]
    assert missing == []
