"""The commit log and the catalog of a clean end are there, or their loss is damage."""

import shutil
import time

import pytest

import qindex
from qindex.cli.main import main
from qindex.testing import abandon


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


def losses(path, **options):
    with qindex.open(path, **options) as store:
        return [found for found in store.findings if found.severity == "damage"]


@pytest.mark.parametrize("harm", [gone, emptied, zeroed, cut], ids=lambda harm: harm.__name__)
def test_a_loss_stays_reported_until_somebody_accepts_it(tmp_path, harm, capsys):
    harm(made(tmp_path / "s"))
    for _ in range(3):  # each writes, and ends cleanly
        assert losses(tmp_path / "s")
        with qindex.open(tmp_path / "s") as store:
            store.queue("q").publish(b"more")
            store.data[b"new"] = b"y"
    store = qindex.open(tmp_path / "s")
    abandon(store)
    path, copy = str(tmp_path / "s"), str(tmp_path / "copy")
    for line in (["check", path], ["backup", path, copy], ["check", copy]):
        assert main(line) == 1, line
    assert main(["export", path, "--out", str(tmp_path / "out.jsonl")]) == 1
    assert "--accept-losses" in capsys.readouterr().out
    assert main(["check", path, "--accept-losses"]) == 0
    assert main(["check", path]) == 0
    with qindex.open(tmp_path / "s") as store:
        assert store.accept_losses() is False
        assert not store.findings
        assert store.data.copy() == {b"new": b"y"}


def spoiled(path, name):
    """A byte of a key's value in that file is another one."""
    file = path / name
    text = file.read_bytes()
    at = text.index(b"precious key") + 3
    file.write_bytes(text[:at] + b"?" + text[at + 1 :])


def rolled(path):
    """A store whose catalog has keys, and whose log has others."""
    with qindex.open(path, format=2) as store:
        store.queue("q").publish(b"x")
        store.data[b"precious key 1"] = b"1"
        for number in range(140):  # of 512 KiB: the log is full at 64 MiB
            store.data.change({b"big": bytes([number]) * 500_000})
        store.data[b"precious key 2"] = b"2"
        while len(logs := list((path / "commits").glob("*.log"))) > 1:  # until there is a catalog
            time.sleep(0.01)
    return logs[0]


def test_damage_of_the_catalog_and_of_a_log_stays_told_until_it_is_accepted(tmp_path):
    log = rolled(tmp_path)
    spoiled(tmp_path, "catalog")
    spoiled(tmp_path, log)
    wheres = {found.where for found in losses(tmp_path)}
    assert wheres == {"catalog", f"commits/{log.name}"}
    assert losses(tmp_path)  # whatever the first writer has replaced
    with qindex.open(tmp_path) as store:
        store.data[b"precious key 2"] = b"again"
        assert store.accept_losses() is True
        names = [each.name for each in (tmp_path / "commits").iterdir()]
    assert log.name not in names
    assert not losses(tmp_path)
    with qindex.open(tmp_path, read_only=True) as store:
        assert store.data.copy().keys() == {b"big", b"precious key 2"}


def test_a_catalog_that_is_gone_stays_told(tmp_path):
    rolled(tmp_path)
    (tmp_path / "catalog").unlink()
    assert losses(tmp_path)
    assert losses(tmp_path)
    with qindex.open(tmp_path) as store:
        store.accept_losses()
    assert not losses(tmp_path)
    assert not losses(tmp_path, read_only=True)


def test_only_a_writer_accepts(tmp_path):
    gone(made(tmp_path))
    with (
        qindex.open(tmp_path, read_only=True) as store,
        pytest.raises(qindex.ReadOnly),
    ):
        store.accept_losses()
    assert losses(tmp_path, read_only=True)


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


# --- what store.meta says of the logs -------------------------------------------------------------


def later(path):
    """A catalog with the counts of an earlier session; what the last one changed is in the log."""
    with qindex.open(path, format=2) as store:
        store.queue("q", max_messages=50).publish(b"x")
        store.data[b"a"] = b"1"
    log = rolled(path)
    with qindex.open(path) as store:
        store.data[b"after"] = b"x"
        store.queue("q").configure(max_messages=7)
    return log


def removed(file):
    file.unlink()


def halved(file):
    with file.open("r+b") as log:
        log.truncate(file.stat().st_size // 2 // 4096 * 4096)  # as long as a power cut leaves it


def wiped(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("harm", [removed, halved, wiped], ids=lambda harm: harm.__name__)
def test_the_newest_log_of_a_clean_end_is_missed_behind_a_catalog_too(tmp_path, harm, capsys):
    harm(later(tmp_path / "s"))
    path, copy = str(tmp_path / "s"), str(tmp_path / "copy")
    found = losses(path, read_only=True)
    assert any(each.where == "commits/2.log" for each in found)
    assert not any("never" in each.text for each in found)
    for line in (["check", path], ["backup", path, copy], ["check", copy], ["check", path]):
        assert main(line) == 1, line
    assert main(["check", path, "--accept-losses"]) == 0
    assert main(["check", path]) == 0


def killed(path):
    store = qindex.open(path, format=2)
    store.queue("dead")
    store.queue("q", dead_letters="dead").publish(b"x")
    store.data[b"a"] = b"1"
    store.sync()
    abandon(store)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("harm", [gone, emptied], ids=lambda harm: harm.__name__)
def test_the_logs_are_missed_behind_a_kill(tmp_path, harm, again, capsys):
    killed(tmp_path / "s")
    if again:
        abandon(qindex.open(tmp_path / "s"))
    harm(tmp_path / "s")
    path = str(tmp_path / "s")
    assert main(["check", path]) == 1
    assert main(["export", path, "--out", str(tmp_path / "out.jsonl")]) == 1
    assert main(["salvage", path, "--out", str(tmp_path / "salvaged")]) == 1
    assert main(["backup", path, str(tmp_path / "copy")]) == 1
    assert main(["check", str(tmp_path / "copy")]) == 1


def test_a_catalog_is_missed_behind_the_kill_of_the_session_that_wrote_it(tmp_path):
    store = qindex.open(tmp_path, format=2)
    for number in range(140):
        store.data.change({b"big": bytes([number]) * 500_000})
    while len(list((tmp_path / "commits").glob("*.log"))) > 1:
        time.sleep(0.01)
    store.sync()
    abandon(store)
    assert not losses(tmp_path, read_only=True)
    (tmp_path / "catalog").unlink()
    assert losses(tmp_path, read_only=True)


def unnamed(path):
    """What code of format 2 writes that says nothing of the logs."""
    meta = bytearray((path / "store.meta").read_bytes())
    for copy in (0, 4096):
        assert any(meta[copy + 64 : copy + 112])
        meta[copy + 64 : copy + 112] = bytes(48)
    (path / "store.meta").write_bytes(meta)


def test_a_store_that_earlier_code_has_written_is_no_damage(tmp_path):
    log = later(tmp_path)
    unnamed(tmp_path)
    assert not losses(tmp_path, read_only=True)
    assert not losses(tmp_path)
    unnamed(tmp_path)
    log.write_bytes(b"")  # nothing tells of it there
    assert not losses(tmp_path, read_only=True)


def test_an_older_log_that_is_put_back_is_damage(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        store.data[b"a"] = b"1"
    old = (tmp_path / "commits/1.log").read_bytes()
    with qindex.open(tmp_path) as store:
        store.data[b"b"] = b"2"
    (tmp_path / "commits/1.log").write_bytes(old)
    assert [each.where for each in losses(tmp_path, read_only=True)] == ["commits/1.log"]


def test_damage_of_what_store_meta_says_of_the_logs_is_damage_of_a_copy(tmp_path):
    made(tmp_path)
    for at in range(64, 112):
        meta = bytearray((tmp_path / "store.meta").read_bytes())
        meta[at] ^= 1
        (tmp_path / "store.meta").write_bytes(meta)
        assert [each.where for each in losses(tmp_path, read_only=True)] == ["store.meta"], at
        meta[at] ^= 1
        (tmp_path / "store.meta").write_bytes(meta)


def test_a_number_of_a_log_that_is_gone_is_not_used_again(tmp_path):
    gone(made(tmp_path))
    with qindex.open(tmp_path) as store:
        store.data[b"new"] = b"y"
    assert [each.name for each in (tmp_path / "commits").iterdir()] == ["2.log"]


@pytest.mark.slow
def test_readers_beside_a_writer_miss_no_log_that_it_has_given_up(tmp_path):
    with qindex.open(tmp_path, format=2) as store:
        for number in range(150):
            store.data.change({b"big": bytes([number]) * 500_000})
            if number % 10 == 0:
                assert not losses(tmp_path, read_only=True)
        store.sync()
        assert not losses(tmp_path, read_only=True)
