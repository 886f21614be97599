"""The documentation has a page for each command, and shows no option that does not exist."""

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path

import pytest

import qindex
import qindex.aio
import qindex.compat
import qindex.testing
from qindex.spark import options as spark_options

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.rst",
    *(file for file in sorted(ROOT.glob("docs/**/*.rst")) if file.parent.name != "commands"),
]
CALL = re.compile(r"(?:``|^ +(?:\$ )?)qindex ([a-z]+(?:-[a-z]+)*)\b([^\n`]*)", re.MULTILINE)
README_LINES_MAX = 120


@pytest.fixture(scope="module", autouse=True)
def docs_on_the_path():
    sys.path.insert(0, str(ROOT / "docs"))
    yield
    sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def command_pages():
    import command_pages

    return command_pages


def page_of(name):
    return (ROOT / "docs" / name).read_text("utf-8")


def shown(file):
    return str(file.relative_to(ROOT))


def test_each_command_has_a_page_that_has_each_of_its_options(command_pages, tmp_path, monkeypatch):
    from qindex.cli.main import COMMANDS
    from qindex.look.keys import MEANING

    monkeypatch.setattr(command_pages, "FOLDER", tmp_path / "commands")
    command_pages.write_pages()
    pages = {file.stem: file.read_text("utf-8") for file in (tmp_path / "commands").glob("*.rst")}
    assert set(pages) == {*COMMANDS, "json"}
    keys = pages.pop("json")
    assert all(f"``{key}``" in keys for key in MEANING)
    for name, page in pages.items():
        described = {
            spelling.split()[0]
            for line in re.findall(r"^\.\. option:: (.*)$", page, re.MULTILINE)
            for spelling in line.split(", ")
        }
        assert described == command_pages.options_of(name)
    listed = (tmp_path / "commands/list.inc").read_text("utf-8")
    assert all(f"</commands/{name}>" in listed for name in COMMANDS)


def calls_on(page):
    """(command, what stands behind it) of each call that is shown as code: in a block or a line."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    return CALL.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_shows_only_commands_and_options_that_exist(page, command_pages):
    for command, rest in calls_on(page):
        assert command in command_pages.commands()
        options = set(command_pages.LONG_OPTION.findall(rest))
        assert options <= command_pages.options_of(command), (command, rest)


def test_the_search_for_commands_finds_them():
    found = [call for page in PAGES for call in calls_on(page)]
    assert len([1 for _, rest in found if "--" in rest]) > 10


def test_the_readme_is_short_and_its_figures_are_those_of_the_last_benchmark():
    import figure_tables

    text = (ROOT / "README.rst").read_text("utf-8")
    assert len(text.splitlines()) <= README_LINES_MAX
    assert figure_tables.readme_table() in text, "python tools/docs.py --readme"


def test_the_page_of_options_has_each_of_them():
    page = page_of("reference/options.rst")
    named = set(re.findall(r"``(\w+)``", page))
    for function in (qindex.open, qindex.aio.open, qindex.Store.queue):
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                assert name in named


@pytest.mark.parametrize(
    ("page", "use"),
    [
        ("spark/reading.rst", spark_options.READ),
        ("spark/streams.rst", spark_options.STREAM),
        ("spark/sink.rst", spark_options.WRITE),
    ],
)
def test_the_pages_of_spark_have_each_option(page, use):
    named = set(re.findall(r"``(\w+)``", page_of(page)))
    assert set(use.names) - {"out", "day"} <= named | {"table"}  # these are the audit's own


def test_the_reference_has_each_public_name():
    text = "".join(file.read_text("utf-8") for file in ROOT.glob("docs/reference/*.rst"))
    described = set(re.findall(r"^\.\. auto\w+:: qindex\.(\w+)", text, re.MULTILINE))
    errors = {name for name in qindex.__all__ if name in vars(qindex.errors)}
    assert set(qindex.__all__) == described & set(qindex.__all__) | errors


@pytest.mark.parametrize("kind", [qindex.Queue, qindex.Store])
def test_the_reference_has_each_public_member(kind):
    page = page_of(f"reference/{kind.__name__.lower()}.rst")
    described = set(re.findall(r"^   \.\. auto\w+:: (\w+)", page, re.MULTILINE))
    members = {name for base in kind.__mro__[:-1] for name in vars(base) if name[0] != "_"}
    assert members <= described


def test_the_pages_on_internals_name_functions_and_files_that_exist():
    sources = [file for file in ROOT.glob("c_ext/**/*") if file.suffix in (".c", ".h")]
    core = "".join(file.read_text("utf-8") for file in sources)
    files = {
        file.name for file in [*sources, *ROOT.glob("qindex/**/*.py"), *ROOT.glob("tools/**/*")]
    }
    files |= {file.name for file in [*ROOT.glob("tests/**/*"), *ROOT.glob("*.py")]}
    pages = [ROOT / "ARCHITECTURE.rst", *ROOT.glob("docs/internals/*.rst")]
    for page in pages:
        if page.name in ("format.rst", "format-2.rst"):  # the latter is a plan
            continue
        text = page.read_text("utf-8")
        gone = {name for name in re.findall(r"\bqi_\w+[a-z]\b", text) if name not in core}
        assert not gone, page
        gone = set(re.findall(r"\b([a-z]\w*\.(?:c|h|py))\b", text)) - files
        assert not gone, page


def public_members():
    """(name, what it is) of each public class, and of each public method and property in it."""
    modules = (qindex, qindex.aio, qindex.compat, qindex.testing)
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            yield f"{module.__name__}.{name}", thing
            for base in inspect.getmro(thing) if inspect.isclass(thing) else ():
                if base.__module__.split(".")[0] in ("qindex", "qindex._calls"):
                    for member, value in vars(base).items():
                        if member[0] != "_" and (callable(value) or isinstance(value, property)):
                            yield f"{module.__name__}.{name}.{member}", value


def test_each_public_name_says_what_it_is():
    members = list(public_members())
    assert len(members) > 200
    silent = [name for name, thing in members if not inspect.getdoc(thing)]
    steps = [name for name in silent if name.startswith("qindex.testing.QueueMachine.")]
    assert set(silent) == set(steps)  # the machine's steps have the names of the queue's verbs


@pytest.mark.parametrize(
    "kind",
    [
        qindex.QueueStats,
        qindex.StoreStats,
        qindex.Finding,
        qindex.IndexEntry,
        qindex.testing.Promise,
    ],
    ids=lambda kind: kind.__name__,
)
def test_each_field_says_what_it_is(kind):
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body = node.body
    fields = [i for i, each in enumerate(body) if isinstance(each, ast.AnnAssign)]
    assert fields
    for i in fields:
        described = body[i + 1]
        assert isinstance(described, ast.Expr), ast.unparse(body[i])
        assert isinstance(described.value, ast.Constant), ast.unparse(body[i])


def test_the_readme_and_architecture_lead_to_files_that_exist():
    readme = (ROOT / "README.rst").read_text("utf-8")
    links = re.findall(r"<([^>:]+)>`_", readme)
    assert len(links) > 10
    named = re.findall(r"``((?:docs|tools|tests|c_ext|qindex)/[\w./]+)``", readme)
    named += re.findall(
        r"``((?:docs|tools|tests|c_ext|qindex)/[\w./]+)``",
        (ROOT / "ARCHITECTURE.rst").read_text("utf-8"),
    )
    assert [path for path in links + named if not (ROOT / path).exists()] == []
