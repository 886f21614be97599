"""Which format a store and its files have, who opens it, and what is refused."""

import contextlib
import struct

import pytest
from helpers import SMALL, queue_directory

import qindex
from qindex.brokers.tree import Findings, Tree
from qindex.cli.main import main
from qindex.native.frames import CannotReplay
from qindex.native.journals import NativeJournals
from qindex.native.log import NativeLog

JOURNALS = ("journal.jif", "journal.alt")
VERSION = slice(8, 12)


def version_of(file):
    return int.from_bytes(file.read_bytes()[VERSION])


def put_version(file, version, *starts):
    """Another version in the headers that begin there, with checksums that fit."""
    data = bytearray(file.read_bytes())
    for start in starts:
        data[start + 8 : start + 12] = struct.pack(">I", version)
        sealed = bytes(data[start : start + 60])
        data[start + 60 : start + 64] = struct.pack(">I", qindex._core.lib.qi_crc32c(0, sealed, 60))
    file.write_bytes(data)


def fill(path, **options):
    """A store with segments and a journal: messages 0 to 29, of which the first 5 are acked."""
    with qindex.open(path, **{**SMALL, **options}) as store:
        queue = store.queue("orders")
        for number in range(30):
            queue.publish(b"%d" % number)
        for message in queue.get_many(5):
            queue.ack(message)
        store.sync()
    return path


def bodies(path, **options):
    with qindex.open(path, **{**SMALL, **options}) as store:
        return [int(message.body) for message in store.queue("orders").browse()]


def journals_in(path):
    folder = queue_directory(path, "orders")
    return [folder / name for name in JOURNALS if (folder / name).exists()]


def current_journal(path):
    """The one with a header and the higher epoch."""
    return max(journals_in(path), key=lambda file: file.read_bytes()[:48])


def segments_in(path):
    return sorted(queue_directory(path, "orders").glob("[0-9]*.*"))


@pytest.fixture(params=[1, 2])
def made(request, tmp_path):
    return request.param, fill(tmp_path / "data", format=request.param)


def test_the_files_of_a_store_say_its_format(made):
    version, path = made
    assert version_of(path / "store.meta") == version
    written = [*segments_in(path), *(f for f in journals_in(path) if f.read_bytes()[:1] != b"\0")]
    assert len(written) >= 2
    assert [version_of(file) for file in written] == [version] * len(written)
    # These are as they were in format 1.
    assert version_of(queue_directory(path, "orders") / "queue.meta") == 1


def test_an_existing_store_keeps_its_format(made):
    version, path = made
    assert bodies(path) == list(range(5, 30))
    with qindex.open(path) as store:
        assert store.stats().format == version
    assert version_of(path / "store.meta") == version
    assert bodies(path, format=version) == list(range(5, 30))


def test_a_store_of_another_format_than_was_named_is_refused(made):
    version, path = made
    before = (path / "store.meta").read_bytes()
    text = "format 1, not 2: .* upgrade" if version == 1 else "format 2, not 1, and no way leads"
    for read_only in (False, True):
        with pytest.raises(qindex.FormatError, match=text):
            qindex.open(path, format=3 - version, read_only=read_only)
    assert (path / "store.meta").read_bytes() == before


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [(0, ValueError, " from 1 to 2"), (3, ValueError, " from 1 to 2"), ("2", TypeError, "")],
)
def test_a_format_that_there_is_not_is_refused(tmp_path, wanted, error, text):
    with pytest.raises(error, match=f"format must be a whole number{text}, not"):
        qindex.open(tmp_path / "data", format=wanted)
    assert not (tmp_path / "data").exists()


def test_an_upgraded_store_has_files_of_both_formats(tmp_path):
    path = fill(tmp_path / "data", format=1)
    old = len(segments_in(path))
    assert bodies(path, upgrade=True) == list(range(5, 30))
    assert version_of(path / "store.meta") == 2
    with qindex.open(path, **SMALL) as store:
        queue = store.queue("orders")
        for number in range(30, 60):
            queue.publish(b"%d" % number)
    assert bodies(path) == list(range(5, 60))
    assert {version_of(file) for file in segments_in(path)} == {1, 2}
    assert len(segments_in(path)) > old
    assert version_of(current_journal(path)) == 2
    assert bodies(path, upgrade=True) == list(range(5, 60)), "a second upgrade changes nothing"


def test_reading_and_upgrading_at_once_is_refused(tmp_path):
    path = fill(tmp_path / "data", format=1)
    with pytest.raises(ValueError, match="read-only cannot be upgraded"):
        qindex.open(path, upgrade=True, read_only=True)
    assert version_of(path / "store.meta") == 1


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["journal", "segment"])
@pytest.mark.parametrize(("store_has", "file_has"), [(1, 2), (1, 3), (2, 3)])
def test_a_file_of_a_newer_format_than_its_store_is_refused(
    tmp_path, kind, read_only, store_has, file_has
):
    path = fill(tmp_path / "data", format=store_has)
    if kind == "journal":
        put_version(current_journal(path), file_has, 0, 4096)
    else:
        put_version(segments_in(path)[-1], file_has, 0)
    folder = queue_directory(path, "orders")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    newer = "matching release" if file_has == 3 else f"but the store has format {store_has}"
    with qindex.open(path, read_only=read_only, **SMALL) as store:
        with pytest.raises(qindex.FormatError, match=f"version {file_has}.*{newer}"):
            list(store.queue("orders", create=False).browse())
        assert store.findings == []
    if kind == "journal":
        assert before == {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_reader_learns_that_its_store_was_upgraded_meanwhile(tmp_path):
    path = fill(tmp_path / "data", format=1)
    with qindex.open(path, read_only=True) as reader:
        assert reader.stats().format == 1
        with qindex.open(path, upgrade=True, **SMALL) as store:
            queue = store.queue("orders")
            for number in range(30, 60):
                queue.publish(b"%d" % number)
            store.sync()
            seen = [int(message.body) for message in reader.queue("orders").browse()]
        assert seen == list(range(5, 60))
        assert reader.findings == []


def test_the_reader_in_python_takes_both_formats_and_no_newer_one(made):
    _, path = made
    folder = f"queues/{queue_directory(path, 'orders').name}"
    with contextlib.closing(Tree(path, Findings())) as tree:
        assert NativeLog(tree, folder, 16).journals.all
        put_version(current_journal(path), 3, 0, 4096)
        with pytest.raises(CannotReplay, match="format version 3, this qindex reads versions 1 to"):
            NativeJournals(tree, folder)


@pytest.mark.parametrize("kind", ["journal", "segment"])
def test_dump_names_the_version_that_it_does_not_know(tmp_path, capsys, kind):
    path = fill(tmp_path / "data", format=2)
    file = current_journal(path) if kind == "journal" else segments_in(path)[-1]
    assert main(["dump", str(file)]) == 0
    put_version(file, 3, 0, *([4096] if kind == "journal" else []))
    assert main(["dump", str(file)]) == 2
    assert f"{file.name}: the file has format version 3" in capsys.readouterr().err
