"""Damage every file of a small store, byte by byte: never wrong bytes, never a silent loss."""

import pytest
from helpers import crash, damage, files_of, put_files

import qindex

STEP = 7  # every 7th byte; another start in each file


def make(root, ending):
    """A small store with something in each kind of file; its messages and its files."""
    store = qindex.open(
        root, segment_entries=16, embed_below=64, message_file_size=4096, idle=3600, sync="never"
    )
    a, b = store.queue("a"), store.queue("b")
    a.publish_many([b"%d" % i * (3 if i % 2 else 60) for i in range(24)])
    a.flush()
    a.ack_many(a.get_many(4))
    a.publish_many([b"later %d" % i for i in range(4)], headers={"k": "v"})
    b.publish(b"only one")
    store.publish(["a", "b"], b"F" * 200, create=True)
    store.sync()
    a.publish(b"behind the mark")
    a.ack(a.get())
    store.sync()
    known = {name: {m.req_id: m.body for m in store.queue(name).browse()} for name in "ab"}
    store.close() if ending == "close" else crash(store)
    return known, files_of(root)


def look(root, read_only):
    """(what is shown, whether something was reported) - or None if the store says it is broken."""
    shown, told = {}, False
    try:
        store = qindex.open(root, read_only=read_only)
    except qindex.QindexError:
        return None
    try:
        for name in "ab":
            shown[name] = {}
            start = 0
            try:
                queue = store.queue(name, create=False)
            except qindex.QindexError:
                told = True
                continue
            while True:
                try:
                    for message in queue.browse(start):
                        shown[name][message.req_id] = message.body
                        start = message.req_id + 1
                    break
                except qindex.QindexError:
                    told = True
                    start += 1
                    if start > 200:
                        break
        torn = any("torn tail" in finding.text for finding in store.findings)
        told = told or torn or bool(damage(store))
        store.check()
        told = told or bool(damage(store))
    except qindex.QindexError:
        told = True
    finally:
        crash(store)
    return shown, told


def judge(where, known, answer):
    if answer is None:
        return
    shown, told = answer
    for name in "ab":
        wrong = {i: b for i, b in shown[name].items() if known[name].get(i, b) != b}
        assert not wrong, f"{where}: wrong bytes {wrong}"
        lost = set(known[name]) - set(shown[name])
        extra = set(shown[name]) - set(known[name])
        assert told or not (lost or extra), f"{where}: silently lost {lost}, extra {extra}"


def kind_of(name):
    return name.rpartition("/")[2]


# The places of each file are tried in parts: the first with each run of the tests, all in CI.
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3, 4))]
KINDS = ["store.meta", "queue.meta", "journal.jif", "journal.alt", "0.idx", "1.idx", "0.qms"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("ending", ["close", "crash"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_a_flipped_byte_is_never_wrong_bytes_nor_a_silent_loss(tmp_path, part, kind, ending):
    known, files = make(tmp_path / "made", ending)
    for name in [name for name in files if kind_of(name) == kind]:
        data = files[name]
        used = len(data.rstrip(b"\0")) + 8
        places = [i for i in range(0, min(len(data), used), STEP) if any(data[i - 64 : i + 64])]
        for number, at in list(enumerate(places))[part :: len(PARTS)]:
            root = tmp_path / f"flip-{kind}-{len(name)}-{at}"
            flipped = bytearray(data)
            flipped[at] ^= 1 << (at % 8)
            put_files(root, {**files, name: bytes(flipped)})
            answer = look(root, read_only=number % 2 == 0)
            judge(f"{name} bit {at % 8} of byte {at}", known, answer)


@pytest.mark.parametrize("ending", ["close", "crash"])
@pytest.mark.parametrize("kind", KINDS)
def test_zeros_are_never_wrong_bytes_nor_a_silent_loss(tmp_path, kind, ending):
    known, files = make(tmp_path / "made", ending)
    for name in [name for name in files if kind_of(name) == kind]:
        data = files[name]
        for at in range(0, len(data.rstrip(b"\0")), 200):
            zeroed = data[:at] + bytes(len(data[at : at + 200])) + data[at + 200 :]
            if zeroed != data:
                root = tmp_path / f"zero-{kind}-{len(name)}-{at}"
                put_files(root, {**files, name: zeroed})
                answer = look(root, read_only=at % 400 == 0)
                judge(f"{name} zeros at {at}", known, answer)


@pytest.mark.parametrize("ending", ["close", "crash"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_short_is_never_wrong_bytes_nor_a_silent_loss(tmp_path, kind, ending):
    known, files = make(tmp_path / "made", ending)
    for name in [name for name in files if kind_of(name) == kind]:
        used = len(files[name].rstrip(b"\0"))
        for length in sorted({0, 1, 8, 64, used // 2, used - 20, used - 1} & set(range(used))):
            root = tmp_path / f"cut-{kind}-{len(name)}-{length}"
            put_files(root, {**files, name: files[name][:length]})
            judge(f"{name} cut to {length}", known, look(root, read_only=False))


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_never_a_silent_loss(tmp_path, kind):
    known, files = make(tmp_path / "made", "close")
    for number, name in enumerate(name for name in files if kind_of(name) == kind):
        root = tmp_path / f"missing-{number}"
        put_files(root, {n: data for n, data in files.items() if n != name})
        judge(f"{name} missing", known, look(root, read_only=False))


@pytest.mark.parametrize("more", [0, 1, 7])
def test_a_journal_cut_on_or_right_behind_a_frame_is_noted(tmp_path, more):
    """Eight zero bytes follow the last frame, so that this end is told apart from a clean one."""
    store = qindex.open(tmp_path / "data", sync="never", idle=3600)
    store.queue("a").publish(b"kept")
    end = store.queue("a").stats().journal_bytes
    store.queue("a").publish(b"lost")
    crash(store)
    journal = next((tmp_path / "data").rglob("journal.jif"))
    journal.write_bytes(journal.read_bytes()[: end + more])
    store = qindex.open(tmp_path / "data")
    assert [m.body for m in store.queue("a").browse()] == [b"kept"]
    notes = [finding.text for finding in store.findings]
    crash(store)
    assert any("torn" in text for text in notes)
