"""Writes methods.py and layouts.py of qindex/amqp from RabbitMQ's description of AMQP 0-9-1.

    python tools/amqp_methods.py amqp-rabbitmq-0.9.1.json

The description is in RabbitMQ's repository, deps/rabbitmq_codegen. The result is kept in git, so
that nobody needs the description to build or to run qindex. The transaction class is left out: the
server refuses what it does not know.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "qindex" / "amqp"
CODES = {
    "shortstr": ("s", "str", '""'),
    "longstr": ("S", "bytes", 'b""'),
    "octet": ("B", "int", "0"),
    "short": ("H", "int", "0"),
    "long": ("I", "int", "0"),
    "longlong": ("Q", "int", "0"),
    "bit": ("b", "bool", "False"),
    "table": ("F", "dict[str, Any]", "{}"),
}
METHODS_HEAD = '''"""The methods of AMQP 0-9-1 with RabbitMQ's extensions, as tuples.

tools/amqp_methods.py wrote this file.
"""

from __future__ import annotations

from typing import Any, NamedTuple

'''
LAYOUTS_HEAD = '''"""How the methods are laid out as bytes. tools/amqp_methods.py wrote this file.

LAYOUTS has one letter for each field of a method: s short string, S long string, B H I Q unsigned
numbers of 1, 2, 4 and 8 bytes, b a bit, F a table.
"""

from __future__ import annotations

from typing import Any, Final

from qindex.amqp import methods as m

'''


def name_of(text: str) -> str:
    return "".join(part.capitalize() for part in text.split("-"))


def default_of(kind: str, argument: dict[str, Any]) -> str:
    value = argument.get("default-value")
    if value is None or value == {}:
        return CODES[kind][2]
    if isinstance(value, str):
        text = '"' + value + '"'
        return "b" + text if kind == "longstr" else text
    return repr(value)


def main() -> None:
    description = json.loads(Path(sys.argv[1]).read_text())
    domains = dict(description["domains"])
    classes, layouts = [], []
    for group in description["classes"]:
        for method in group["methods"] if group["name"] != "tx" else ():
            name = name_of(group["name"]) + name_of(method["name"])
            lines, letters = [], ""
            for argument in method["arguments"]:
                kind = domains[argument.get("domain", argument.get("type"))]
                kind = kind if kind in CODES else argument["type"]
                field = argument["name"].replace("-", "_") + (
                    "_" if argument["name"] == "global" else ""
                )
                lines.append(f"    {field}: {CODES[kind][1]} = {default_of(kind, argument)}")
                letters += CODES[kind][0]
            body = "\n".join(lines) or "    pass"
            classes.append(f"class {name}(NamedTuple):\n{body}\n\n\n")
            layouts.append((group["id"] << 16 | method["id"], name, letters))

    rows = "".join(
        f'    0x{code:08X}: (m.{name}, "{letters}"),\n' for code, name, letters in layouts
    )
    (FOLDER / "methods.py").write_text(METHODS_HEAD + "\n" + "".join(classes).rstrip() + "\n")
    (FOLDER / "layouts.py").write_text(
        LAYOUTS_HEAD
        + "# By (number of the class) << 16 | (number of the method).\n"
        + f"LAYOUTS: Final[dict[int, tuple[type[Any], str]]] = {{\n{rows}}}\n"
        + "CODES: Final[dict[type[Any], int]] = "
        + "{kind: code for code, (kind, _) in LAYOUTS.items()}\n"
    )
    ruff = [sys.executable, "-m", "ruff", "format", "-q", str(FOLDER)]
    subprocess.run(ruff, check=True)


if __name__ == "__main__":
    main()
