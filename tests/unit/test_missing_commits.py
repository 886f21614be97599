"""The commit log and the catalog of a clean end are there, or their loss is damage."""

import shutil

import pytest

import qindex
from qindex.cli.main import main


def made(path):
    with qindex.open(path, format=2) as store:
        store.queue("q", max_deliveries=3, dead_letters=True).publish(b"precious")
        store.data[b"binding"] = b"x"
    return path


def gone(path):
    shutil.rmtree(path / "commits")


def emptied(path):
    shutil.rmtree(path / "commits")
    (path / "commits").mkdir()


def zeroed(path):
    file = path / "commits/1.log"
    file.write_bytes(bytes(file.stat().st_size))


def cut(path):
    file = path / "commits/1.log"
    file.write_bytes(file.read_bytes()[:4096])


@pytest.mark.parametrize("harm", [gone, emptied, zeroed, cut], ids=lambda harm: harm.__name__)
def test_what_is_missing_is_damage(tmp_path, harm, capsys):
    harm(made(tmp_path / "s"))
    assert main(["check", str(tmp_path / "s")]) == 1
    assert main(["backup", str(tmp_path / "s"), str(tmp_path / "copy")]) == 1
    capsys.readouterr()
    shutil.rmtree(tmp_path / "s")
    harm(made(tmp_path / "s"))
    with qindex.open(tmp_path / "s") as store:
        assert [f.severity for f in store.findings if "data and settings" in f.text] == ["damage"]


def test_a_clean_end_and_an_upgrade_are_no_damage(tmp_path):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish(b"x")
    for options in ({"upgrade": True}, {}, {}, {"read_only": True}):
        with qindex.open(tmp_path / "s", **options) as store:
            assert not store.findings


def test_a_backup_of_a_damaged_store_says_so(tmp_path, capsys):
    with qindex.open(tmp_path / "s") as store:
        store.queue("q").publish_many([b"x" * 9000] * 5)
    (tmp_path / "s/messages/0.qms").unlink()
    assert main(["backup", str(tmp_path / "s"), str(tmp_path / "copy")]) == 1
    assert "qindex check" in capsys.readouterr().err
