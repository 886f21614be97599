"""The layers of the C core (c_ext/layers.toml): which files there are, what breaks them, a picture.

    python tools/layers.py                 the picture as text: who calls whom
    python tools/layers.py --counts        the same with the number of functions
    python tools/layers.py --dot           the same for graphviz
    python tools/layers.py --svg FILE      the same, drawn by graphviz (dot)

The picture is made from the table and from the symbols of the object files, which this compiles.
Exit code 0: calls and includes go down only; 1: one does not, and is printed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CORE = Path(__file__).resolve().parents[1] / "c_ext"
_TABLE = tomllib.loads((CORE / "layers.toml").read_text("utf-8"))
LAYERS: list[list[str]] = _TABLE["layers"]
BESIDE: dict[str, list[str]] = _TABLE["beside"]
ENGINE = [folder for layer in LAYERS for folder in layer if folder != "python"]
_RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}


# ---- files ----


def engine(core: Path = CORE) -> list[Path]:
    """The sources of the engine: all layers but the binding to Python."""
    return sorted(file for folder in ENGINE for file in core.glob(f"{folder}/*.c"))


def headers(core: Path = CORE) -> list[Path]:
    return sorted(core.glob("**/*.h"))


def folder(path: Path) -> str:
    """The folder of the core in which a file is, wherever a copy of the core is; "" for none."""
    parts = path.parts[:-1]
    if "c_ext" not in parts:
        return ""
    below = parts[len(parts) - parts[::-1].index("c_ext") :]
    return below[0] if below else "."


# ---- what breaks the layers ----


def may_see(upper: str, lower: str) -> bool:
    """A folder sees itself, the layers below it, and what the table names for one beside them."""
    if upper == lower:
        return True
    if upper in BESIDE:
        return lower in BESIDE[upper]
    return lower in _RANK and _RANK[lower] < _RANK[upper]


def wrong_includes(texts: Mapping[str, str]) -> list[str]:
    """What is wrong with the includes of these files, by their paths below c_ext."""
    wrong: list[str] = []
    for name, text in texts.items():
        own = name.partition("/")[0]
        for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
            other = included.partition("/")[0]
            if included == "qindex.h" or "/" not in name:
                continue
            if included not in texts:
                why = "not a path from c_ext"
            elif not may_see(own, other):
                why = f"{own} may not include {other}"
            elif own != other and other not in BESIDE and included != f"{other}/{other}.h":
                why = f"only {other} may include it"
            else:
                continue
            wrong.append(f"{name} includes {included}: {why}")
    return wrong


class Symbols(NamedTuple):
    """Of an object file: the names that others can use, and those that it uses of others."""

    defined: frozenset[str]
    used: frozenset[str]


def symbols(file: Path) -> Symbols:
    said = subprocess.run(["nm", "-P", "-g", file], check=True, capture_output=True, text=True)
    kinds = [line.split()[:2] for line in said.stdout.splitlines()]
    used = frozenset(name for name, kind in kinds if kind in "Uvw")
    return Symbols(frozenset(name for name, _ in kinds) - used, used)


def calls(objects: Mapping[str, Symbols]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """(folder, folder that it uses) -> (file, symbol), by the files' paths below c_ext."""
    home = {name: file for file, found in objects.items() for name in found.defined}
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for file, names in objects.items():
        for name in names.used & home.keys():
            pair = file.partition("/")[0], home[name].partition("/")[0]
            found.setdefault(pair, set()).add((file, name))
    return found


def wrong_calls(objects: Mapping[str, Symbols]) -> list[str]:
    """The symbols that a file uses although it may not see the folder that defines them."""
    return [
        f"{file} uses {name}: {upper} may not use {lower}"
        for (upper, lower), uses in sorted(calls(objects).items())
        if not may_see(upper, lower)
        for file, name in sorted(uses)
    ]


# ---- the picture ----


def compiled(compiler: str) -> dict[str, Symbols]:
    """The symbols of each source, with the bugs on purpose."""
    sources = [*engine(), *sorted(CORE.glob("foreign/*.c"))]
    command = [compiler, "-std=c11", "-D_DEFAULT_SOURCE", "-DQI_BUGS", f"-I{CORE}", "-c"]
    with tempfile.TemporaryDirectory(prefix="qindex-layers-") as made:
        for file in sources:  # one at a time: ccache keeps what one call compiles
            subprocess.run([*command, str(file)], cwd=made, check=True)
        return {
            str(file.relative_to(CORE)): symbols(Path(made, f"{file.stem}.o")) for file in sources
        }


def uses(objects: Mapping[str, Symbols]) -> dict[str, Counter[str]]:
    """For each folder, how many functions of each other folder it uses."""
    found: dict[str, Counter[str]] = {name: Counter() for name in [*ENGINE, "foreign"]}
    for (upper, lower), of in calls(objects).items():
        if upper != lower:
            found[upper][lower] = len({name for _, name in of})
    return found


def as_text(objects: Mapping[str, Symbols], *, counts: bool = False) -> str:
    """A row for each folder, the highest first, and a column for each that it may use.

    A cell is marked where the row calls the column. So nothing stands below the diagonal as long as
    calls go down only. `counts` puts the number of functions there.
    """
    rows, by_folder = [*reversed(ENGINE), "foreign"], uses(objects)
    columns = [*reversed(ENGINE)][1:]
    text = " " * 10 + " ".join(f"{name:>7}" for name in columns) + "\n"
    for upper in rows:
        cells = [by_folder[upper][lower] for lower in columns]
        marks = [(str(cell) if counts else "x") if cell else "." for cell in cells]
        if upper in columns:  # from the diagonal on; a mark before it would be a call that goes up
            own = columns.index(upper)
            marks = [mark if mark != "." else " " for mark in marks[:own]] + [
                "-",
                *marks[own + 1 :],
            ]
        text += (f"{upper:<10}" + " ".join(f"{mark:>7}" for mark in marks)).rstrip() + "\n"
    return text


def as_dot(objects: Mapping[str, Symbols]) -> str:
    """The same for graphviz: a row for each layer; thicker lines for more functions."""
    lines = ["digraph layers {", "  rankdir=TB; node [shape=box, fontname=sans];"]
    lines += [f"  {{rank=same; {'; '.join(layer)};}}" for layer in LAYERS if layer != ["python"]]
    for upper, lowers in uses(objects).items():
        for lower, count in sorted(lowers.items()):
            width = 0.5 + min(count, 40) / 10
            lines.append(f'  {upper} -> {lower} [penwidth={width:.1f}, tooltip="{count}"];')
    return "\n".join([*lines, "}"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", action="store_true", help="say how many functions are called")
    parser.add_argument("--dot", action="store_true", help="print it for graphviz")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="let graphviz draw it")
    options = parser.parse_args()
    compiler, drawer = shutil.which("cc"), shutil.which("dot")
    if compiler is None or shutil.which("nm") is None:
        parser.error("needs cc and nm")
    if options.svg and drawer is None:
        parser.error("needs graphviz for --svg: --dot prints what it draws")
    objects = compiled(compiler)
    if options.svg and drawer:
        drawn = [drawer, "-Tsvg", "-o", str(options.svg)]
        subprocess.run(drawn, input=as_dot(objects), check=True, text=True)
    else:
        print(as_dot(objects) if options.dot else as_text(objects, counts=options.counts), end="")
    texts = {
        str(file.relative_to(CORE)): file.read_text("utf-8") for file in CORE.glob("**/*.[ch]")
    }
    wrong = [*wrong_includes(texts), *wrong_calls(objects)]
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
