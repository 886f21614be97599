"""Signatures of the methods that are written in C, from the stub that editors read."""

import ast
import re
from pathlib import Path

import qindex
from qindex import arguments as types

STUB = ast.parse(Path(qindex.__file__).with_name("calls.pyi").read_text("utf-8"))
SIGNATURES = {
    method.name: (f"({ast.unparse(method.args)})", ast.unparse(method.returns))
    for kind in STUB.body
    if isinstance(kind, ast.ClassDef) and kind.name == "QueueCalls"
    for method in kind.body
    if isinstance(method, ast.FunctionDef) and method.returns is not None
}


def of(
    _app: object, what: str, name: str, found: object, _options: object, _given: str, _returns: str
) -> tuple[str, str] | None:
    """The signature of Queue.publish(), get() and ack(); None for all that Python can tell."""
    verb = name.removeprefix("qindex.Queue.")
    if what != "method" or verb not in ("publish", "get", "ack"):
        return None
    arguments, returns = SIGNATURES[verb]
    arguments = arguments.replace("(self, ", "(")
    return re.sub(r"(?<=: )(Buffer|Seconds|Moment)\b", _written_out, arguments), returns


def _written_out(name: re.Match[str]) -> str:
    """What an alias of a type stands for."""
    return str(getattr(types, name[0])).replace("datetime.", "")
