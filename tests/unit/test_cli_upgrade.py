"""upgrade: a store becomes one of the newest format, and stays as it was if that is refused."""

import pytest

import qindex


@pytest.fixture
def old(tmp_path):
    with qindex.open(tmp_path / "data", format=1) as store:
        store.queue("orders").publish(b"one")
    return tmp_path / "data"


def files_of(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_dry_run_changes_nothing(run, old):
    before = files_of(old)
    ran = run("upgrade", old, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "the store has format 1 and 1 queue; it would become one of format 2\n"
    assert files_of(old) == before


def test_an_upgrade_changes_the_format_and_no_message(run, old):
    ran = run("upgrade", old)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "the store had format 1, and now has format 2\n"
    with qindex.open(old) as store:
        assert store.stats().format == 2
        assert [message.body for message in store.queue("orders").browse()] == [b"one"]
    before = files_of(old)
    ran = run("upgrade", old)
    assert (ran.code, "there is nothing to do" in ran.out) == (0, True)
    assert files_of(old) == before


def test_a_store_that_is_open_is_not_upgraded(run, old):
    with qindex.open(old):
        ran = run("upgrade", old)
        assert ran.code == 2
        assert "another writer has this store open" in ran.err
    with qindex.open(old, read_only=True) as store:
        assert store.stats().format == 1


def test_nothing_is_made_where_no_store_is(run, tmp_path):
    ran = run("upgrade", tmp_path)
    assert ran.code == 2
    assert "there is no store" in ran.err
    assert list(tmp_path.iterdir()) == []
