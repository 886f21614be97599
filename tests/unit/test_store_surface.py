"""qindex.open and Store: queues and their names, settings, figures, closing."""

import gc
import os
import time
from pathlib import Path

import pytest
from helpers import SMALL, content, crash, files_of, ids, queue_directory, twice

import qindex

NAMES = [
    "",
    " ",
    "plain",
    "with/slash",
    "../escape",
    "..",
    ".",
    "/etc/passwd",
    "nul\0inside",
    "new\nline",
    "größe",
    "\U0001f407\U0001f407",
    "e\u0301",  # the same to the eye as the next one, but another name
    "\u00e9",
    "\udcff lone surrogate",
    "CON",
    "queue.meta",
    "x" * 5000,
]


def test_queues_lists_every_name_sorted_and_exact(store, open_store, tmp_path):
    for name in NAMES:
        store.queue(name).publish(name.encode("utf-8", "surrogatepass"))
    assert store.queues() == sorted(NAMES)
    store.close()
    again = open_store()
    assert again.queues() == sorted(NAMES)
    for name in NAMES:
        assert again.queue(name).peek().body == name.encode("utf-8", "surrogatepass")
    assert {entry.name for entry in tmp_path.iterdir()} == {"data"}


@pytest.mark.parametrize("name", [b"bytes", 7, None, ("a",)], ids=repr)
def test_a_queue_name_that_is_no_text_is_refused(store, name):
    with pytest.raises(TypeError, match="str"):
        store.queue(name)
    assert store.queues() == []


def test_a_name_too_long_to_be_stored_is_refused_without_a_trace(store, tmp_path):
    before = set(files_of(tmp_path))
    with pytest.raises(ValueError):
        store.queue("x" * 70_000)
    assert store.queues() == []
    assert set(files_of(tmp_path)) == before


def test_the_same_name_gives_the_same_queue(store):
    assert store.queue("a") is store.queue("a")
    assert "a" in store
    assert "b" not in store


def test_a_missing_queue_is_not_created_when_it_may_not_be(store):
    with pytest.raises(qindex.QueueMissing, match="nobody"):
        store.queue("nobody", create=False)
    with pytest.raises(qindex.QueueMissing):
        store.delete_queue("nobody")
    assert store.queues() == []


def test_delete_queue_removes_it_with_its_files_and_bodies(store, tmp_path):
    queue = store.queue("gone")
    store.queue("kept").publish(b"kept")
    queue.publish_many([b"B" * 3000] * 5)
    store.delete_queue("gone")
    assert store.queues() == ["kept"]
    assert not queue_directory(store.path, "gone").exists()
    for use in (queue.get, lambda: queue.publish(b""), queue.sync, lambda: len(queue)):
        with pytest.raises(qindex.StoreClosed):
            use()
    store.compact()
    assert store.stats().live_references == 0
    assert store.stats().message_files <= 1


@pytest.mark.parametrize("clean", [False, True], ids=["crash", "close"])
def test_a_deleted_queue_does_not_come_back(open_store, clean):
    store = open_store()
    store.queue("gone").publish_many([b"B" * 300] * 50)
    store.delete_queue("gone")
    store.close() if clean else crash(store)
    store = open_store()
    assert store.queues() == []
    assert len(store.queue("gone")) == 0


def test_a_queue_made_anew_under_a_deleted_name_is_empty(store):
    store.queue("a").publish_many([b"old"] * 40)
    store.delete_queue("a")
    queue = store.queue("a")
    assert queue.get() is None
    queue.publish(b"new")
    assert queue.get().body == b"new"


def test_deleting_a_fan_out_target_keeps_the_body_for_the_others(store):
    store.publish(["a", "b"], b"F" * 3000, create=True)
    store.delete_queue("a")
    store.compact()
    assert store.queue("b").get().body == b"F" * 3000


def test_open_creates_the_directory_but_not_its_parents(tmp_path):
    with pytest.raises((qindex.QindexError, OSError)):
        qindex.open(tmp_path / "no" / "such" / "parent")
    qindex.open(tmp_path / "new").close()
    assert (tmp_path / "new" / "store.meta").is_file()


def test_open_without_create_needs_a_store(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(qindex.StoreMissing):
            qindex.open(path, create=False)
        with pytest.raises(qindex.StoreMissing):
            qindex.open(path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_open_takes_text_and_path_objects(tmp_path):
    with qindex.open(str(tmp_path / "data")) as store:
        assert store.path == str(tmp_path / "data")
    with qindex.open(tmp_path / "data", create=False) as store:
        assert store.path == str(tmp_path / "data")


@pytest.mark.parametrize(
    "options",
    [
        {"sync": "sometimes"},
        {"sync_interval": 0},
        {"sync_interval": -1},
        {"sync_interval": float("nan")},
        {"embed_below": -1},
        {"embed_below": 1 << 20},
        {"message_file_size": 100},
        {"max_journal_entries": 0},
        {"max_journal_bytes": 5},
        {"segment_entries": 7},
        {"segment_entries": 16385},
        {"idle": 0},
        {"io": "magic"},
        {"embed_below": 1.5},
    ],
    ids=lambda options: "-".join(f"{key}={value}" for key, value in options.items()),
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path, options):
    with pytest.raises(
        TypeError if options == {"embed_below": 1.5} else ValueError, match=next(iter(options))
    ):
        qindex.open(tmp_path / "data", **options)


def test_another_segment_size_than_at_creation_is_a_format_error(open_store):
    open_store(segment_entries=16).close()
    with pytest.raises(qindex.FormatError, match="segment_entries=16, not 32"):
        open_store(segment_entries=32)
    assert open_store(segment_entries=0).stats().segment_entries == 16


@pytest.mark.parametrize("version", [0, 3, 255])
def test_another_format_version_is_a_format_error(open_store, tmp_path, version):
    open_store().close()
    meta = tmp_path / "data" / "store.meta"
    data = bytearray(meta.read_bytes()[:64])
    data[8:12] = version.to_bytes(4)
    meta.write_bytes(twice(data))
    with pytest.raises(qindex.FormatError, match=f"version {version}"):
        open_store()


def test_settings_that_are_not_fixed_may_change_at_each_open(open_store):
    everything = {}
    knobs = [
        {"embed_below": 0, "io": "mmap"},
        {"embed_below": 65536, "io": "pwrite", "message_file_size": 1 << 20},
        {"embed_below": 64, "max_journal_entries": 1},
        {"max_journal_bytes": 4096, "io": "mmap", "sync": "never"},
    ]
    for knob in knobs:
        store = open_store(**knob)
        queue = store.queue("a")
        for size in (0, 1, 63, 64, 65, 5000):
            body = os.urandom(size)
            everything[queue.publish(body)] = body
        assert {m.req_id: m.body for m in queue.browse()} == everything
        assert store.check() == []
        store.close()
    assert dict(content(open_store(read_only=True))["a"]) == everything


@pytest.mark.parametrize("embed_below", [0, 64, 65536])
def test_embed_below_decides_where_a_body_lives(open_store, embed_below):
    store = open_store(embed_below=embed_below)
    queue = store.queue("a")
    for size in range(0, 200, 7):
        queue.publish(b"x" * size)
    stored = sum(1 for size in range(0, 200, 7) if size >= embed_below)
    assert store.stats().live_references == stored
    assert [len(m.body) for m in queue.get_many(100)] == list(range(0, 200, 7))


def test_a_closed_store_refuses_everything_and_closes_twice(store, queue):
    queue.publish(b"kept")
    store.close()
    store.close()
    uses = [
        lambda: store.queue("orders"),
        store.queues,
        store.sync,
        store.check,
        store.stats,
        store.compact,
        lambda: store.publish(["orders"], b"", create=True),
        lambda: store.delete_queue("orders"),
        lambda: queue.publish(b""),
        lambda: queue.publish_many([b""]),
        queue.get,
        lambda: queue.get_many(2),
        queue.peek,
        lambda: list(queue.browse()),
        lambda: queue.ack(0),
        lambda: queue.nack(0),
        queue.purge,
        queue.flush,
        queue.sync,
        queue.stats,
        lambda: len(queue),
    ]
    for use in uses:
        with pytest.raises(qindex.StoreClosed):
            use()


def test_leaving_the_with_block_closes_even_after_an_error(tmp_path):
    def fails():
        with qindex.open(tmp_path / "data") as store:
            store.queue("a").publish(b"kept")
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    with qindex.open(tmp_path / "data") as again:
        assert again.stats().unclean_session == 0
        assert again.queue("a").get().body == b"kept"


def test_a_store_that_nobody_closed_is_closed_with_its_last_reference(tmp_path):
    queue = qindex.open(tmp_path / "data").queue("a")  # the queue keeps its store alive
    gc.collect()
    queue.publish(b"kept")
    del queue
    gc.collect()
    with qindex.open(tmp_path / "data") as store:
        assert store.stats().unclean_session == 0
        assert store.queue("a").get().body == b"kept"


def test_stats_agree_with_what_was_done(store, queue):
    queue.publish_many([b"x" * 10, b"y" * 1000, b"z" * 1000])
    store.queue("other")
    figures = store.stats()
    assert (figures.queues, figures.live_references) == (2, 2)
    assert figures.live_bytes >= 2000
    assert figures.segment_entries == SMALL["segment_entries"]
    assert figures.embed_below == SMALL["embed_below"]
    queue.ack(queue.get().req_id)
    own = queue.stats()
    assert (own.name, own.ready, own.unacked, own.next_req_id) == ("orders", 2, 0, 3)
    assert own.dirty_count == queue.dirty_count == 5


def test_an_idle_queue_holds_no_file_and_wakes_up_when_it_is_used(open_store):
    store = open_store(idle=0.01)
    queue = store.queue("a")
    queue.publish_many([b"%d" % i * 40 for i in range(40)])
    message = queue.get()
    for _ in range(1000):
        if not queue.stats().loaded:
            break
        time.sleep(0.01)
    assert not queue.stats().loaded
    queue.ack(message)
    assert queue.publish(b"awake") == 40
    assert ids(queue.get_many(100)) == list(range(1, 41))


def test_mmap_and_pwrite_write_the_same_messages(tmp_path):
    for io in ("mmap", "pwrite"):
        with qindex.open(tmp_path / io, io=io, **SMALL) as store:
            assert store.stats().mapped is (io == "mmap")
            for i in range(100):
                store.queue("a").publish(b"%d" % i * (i % 40))
            store.queue("a").ack_many(store.queue("a").get_many(33))
    stores = [qindex.open(tmp_path / io, read_only=True) for io in ("mmap", "pwrite")]
    assert content(stores[0]) == content(stores[1])
    assert len(content(stores[0])["a"]) == 67
    for store in stores:
        store.close()


def test_a_finding_can_be_traced_to_its_queue(store):
    store.queue("orders").publish(b"x")
    folder = store.queue_directory("orders")
    assert (Path(store.path) / folder / "queue.meta").is_file()
    assert folder == f"queues/{queue_directory(store.path, 'orders').name}"


@pytest.mark.parametrize("form", [1, 2])
def test_the_message_file_that_is_appended_to_is_counted(tmp_path, form):
    """It was not among the files, and so nothing was known of the first 16 MB of bodies."""
    with qindex.open(tmp_path / "store", format=form) as store:
        assert store.stats().counted
        store.queue("a").publish(b"x" * 100_000)
        figures = store.stats()
        assert (figures.message_files, figures.live_references, figures.counted) == (1, 1, True)
        assert 100_000 < figures.live_bytes < figures.message_bytes < 100_200
    [file] = (tmp_path / "store" / "messages").iterdir()
    assert file.stat().st_size == figures.message_bytes
