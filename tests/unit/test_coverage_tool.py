"""tools/coverage_c.py holds its list of branches that nothing takes to what it measures."""

from collections import Counter

import coverage_c as tool
import coverage_means
import pytest

LISTED = """\
# a comment

batch.c: write: 1: if (size > LIMIT)
batch.c: write: 0: if (a || b)
    Would need a terabyte.
"""
SOURCE = ["int write(void) {", "    if (size >  LIMIT)", "    if (a || b)", "}"]


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(tool, "sources", lambda: {"batch.c": SOURCE})

    def files(first, second, more=10_000):
        lines = {
            2: tool.Line("write", 5, first),
            3: tool.Line("write", 5, second),
            1: tool.Line("write", 5, [1] * more),
        }
        return {"batch.c": lines}

    return files


def test_a_list_that_says_what_was_measured_is_right(measured):
    listed = tool.read_exceptions(LISTED)
    assert listed.total() == 2
    assert tool.compare(measured([7, 0], [0, 1, 1, 1]), listed) == []


def test_a_branch_that_is_not_taken_and_not_listed_is_told_with_its_line(measured):
    (wrong,) = tool.compare(measured([7, 0], [0, 1, 1, 0]), tool.read_exceptions(LISTED))
    assert wrong.startswith("batch.c:3: branch 3 was not taken")


def test_a_listed_branch_that_was_taken_or_is_no_more_is_told(measured):
    (taken,) = tool.compare(measured([7, 1], [0, 1, 1, 1]), tool.read_exceptions(LISTED))
    assert "if (size > LIMIT)" in taken
    gone = tool.read_exceptions(LISTED.replace("LIMIT", "OTHER"))
    assert len(tool.compare(measured([7, 0], [0, 1, 1, 1]), gone)) == 2


def test_two_lines_with_one_text_are_two_branches(measured):
    twice = LISTED.replace("    Would", "batch.c: write: 1: if (size > LIMIT)\n    Would")
    assert tool.compare(measured([7, 0], [0, 1, 1, 1]), tool.read_exceptions(twice))


def test_the_list_has_an_end(measured):
    listed = tool.read_exceptions(LISTED)
    assert any("too many" in text for text in tool.compare(measured([7, 0], [0, 1], 10), listed))


def test_a_list_without_reasons_or_places_is_refused():
    with pytest.raises(SystemExit, match="no reason"):
        tool.read_exceptions("batch.c: write: 1: if (size > LIMIT)\n")
    with pytest.raises(SystemExit, match="not 'file"):
        tool.read_exceptions("batch.c: if (size > LIMIT)\n    because\n")


def test_the_list_in_the_repository_can_be_read():
    listed = tool.read_exceptions(tool.EXCEPTIONS.read_text(encoding="utf-8"))
    assert isinstance(listed, Counter)
    names = {path.name for path in tool.CORE.glob("**/*.[ch]")}
    assert {place.file for place in listed} <= names


def test_what_two_means_reached_is_added_up(measured):
    files, more = measured([0, 0], [0, 0, 0, 1]), measured([3, 0], [0, 2, 0, 0])
    tool.merge(files, more)
    assert files["batch.c"][3].branches == [0, 2, 0, 1]
    lines, branches = tool.total(files)
    assert lines.covered == lines.of == 3
    assert branches.of - branches.covered == 3


def test_what_was_kept_of_another_core_is_measured_again(measured, monkeypatch, tmp_path):
    ran = []

    def means():
        ran.append("c")
        return coverage_means.Ran(tmp_path / "objects")

    monkeypatch.setitem(coverage_means.MEANS, "c", means)
    monkeypatch.setattr(tool, "measure", lambda folders: measured([7, 0], [0, 1, 1, 1], 1))
    first = tool.run_means("c", tmp_path / "kept")
    assert tool.run_means("c", tmp_path / "kept") == first
    assert ran == ["c"]
    monkeypatch.setattr(tool, "sources", lambda: {"batch.c": [*SOURCE, "/* new */"]})
    tool.run_means("c", tmp_path / "kept")
    assert ran == ["c", "c"]
