"""Sphinx's settings. `python tools/docs.py` builds the pages, with each warning as an error."""

import builtins
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import column_tables
import command_pages
import figure_tables
import stub_signatures
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import qindex

project = "qindex"
author = "The qindex authors"
copyright = author
version = release = qindex.__version__

extensions = ["sphinx.ext.autodoc"]  # and not intersphinx: a build fetches nothing
exclude_patterns = ["_build", "conftest.py"]
nitpicky = True
default_role = "code"  # docstrings set code in single backticks
smartquotes = False
highlight_language = "none"
templates_path: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_use_type_comments = False
python_maximum_signature_line_length = 80
python_display_short_literal_types = True

html_theme = "furo"
html_title = f"qindex {release}"
html_static_path = ["_static"]
html_css_files = ["qindex.css"]
html_show_sphinx = False
html_copy_source = False

column_tables.write_columns()
command_pages.write_pages()
figure_tables.write_comparison()


def leave_builtins(_app: Sphinx, page: nodes.document) -> None:
    """No links for bytes, int ... in signatures: QueueStats.bytes would be found for `bytes`."""
    for link in list(page.findall(addnodes.pending_xref)):
        if link.get("refdomain") == "py" and link.get("reftarget") in vars(builtins):
            link.replace_self(link.children)


def leave_types(
    _app: Sphinx, _env: BuildEnvironment, link: addnodes.pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """A type in a signature need not have a page; a link that an author has written must."""
    return None if "refexplicit" in link else text


def setup(app: Sphinx) -> None:
    """Sphinx calls this once."""
    app.connect("autodoc-process-signature", stub_signatures.of)
    app.connect("doctree-read", leave_builtins)
    app.connect("missing-reference", leave_types)
