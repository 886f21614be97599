"""qindex recover --report: a page that says what the command says, and loads nothing."""

import re
import shutil
from html.parser import HTMLParser

import pytest
from helpers import files_of

import qindex

ROOT_VHOST = "628WB79CIFDYO9LJI6DKMI09L"  # the directory of the virtual host "/"
LOADS = {"src", "href", "srcset", "data", "poster", "action", "background"}


class Page(HTMLParser):
    """Its tags, attributes, texts, and rows of cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.rows, self.open = [], [], [], []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


@pytest.fixture
def reported(run, tmp_path):
    """`reported(dir, "--out", store)`: what the command returned, and the page."""

    def reported(*arguments):
        done = run("recover", *arguments, "--report", tmp_path / "report.html")
        return done, Page((tmp_path / "report.html").read_text("utf-8"))

    return reported


def test_the_page_says_what_the_command_says(reported, dead_node, tmp_path):
    done, page = reported(dead_node, "--out", tmp_path / "store")
    assert (done.code, done.err) == (0, "")
    assert page.open == []
    account = re.search(r"^[\d,]+ live = .* unreadable$", done.out, re.MULTILINE)[0]
    assert account in page.text
    with qindex.open(tmp_path / "store", read_only=True) as store:
        held = {name: f"{len(store.queue(name)):,}" for name in store.queues()}
    rows = {row[0]: row for row in page.rows}
    assert {name: rows[name][2] for name in held} == held
    assert f"qindex check {tmp_path / 'store'}" in page.text


def test_the_page_of_a_directory_that_was_only_read(reported, dead_node):
    done, page = reported(dead_node)
    assert done.code == 0
    assert "can be recovered" in page.text
    found = re.search(r"^([\d,]+ messages) in the files", done.out, re.MULTILINE)[1]
    assert f"{found} in the files = " in page.text


def test_the_page_loads_nothing_and_runs_nothing(reported, dead_node):
    _, page = reported(dead_node)
    assert not LOADS & {name for name, _ in page.attributes}
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    assert dict(page.attributes)["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_foreign_names_are_text_and_nothing_else(reported, tmp_path):
    (tmp_path / "nsq").mkdir()
    queue = qindex.DiskQueue("<script>alert(1)", tmp_path / "nsq", format="nsq")
    queue.put(b"x")
    queue.close()
    done, page = reported(tmp_path / "nsq")
    assert done.code == 0
    assert "script" not in page.tags
    assert "<script>alert(1)" in page.text


def test_damage_is_told_with_its_place(reported, dead_node, tmp_path):
    copy = shutil.copytree(dead_node, tmp_path / "copy")
    next(copy.glob(f"**/{ROOT_VHOST}/msg_store_persistent/*.rdq")).unlink()
    done, page = reported(copy)
    assert done.code == 1
    lost = int(re.search(r"(\d+) without a body", done.out)[1])
    assert f"{lost} messages lost" in page.text
    damaged = [row for row in page.rows if row[0] == "damage"]
    assert "messages of /: msg_stores" in damaged[0][1]
    assert "bodies that queues name are in no message file" in damaged[0][-1]
    assert all("queue q." in row[1] and "/queues/" in row[1] for row in damaged[1:])


def test_a_report_is_not_written_where_nothing_is_changed(run, dead_node, tmp_path):
    before = files_of(dead_node)
    into = tmp_path / "store"
    for place in (dead_node / "report.html", tmp_path / "no" / "folder.html", tmp_path):
        code, out, err = run("recover", dead_node, "--out", into, "--report", place)
        assert (code, out) == (2, "")
        assert "nothing is changed" in err or "name one in a directory" in err
    assert files_of(dead_node) == before
    assert not into.exists()
