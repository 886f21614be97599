"""Which bodies stand in the index itself, and which in message files."""

import pytest
from helpers import on_a_loop

import qindex
from qindex import aio


def is_embedded(store, publish, size):
    """Whether that publish of so many bytes leaves the message files as they are."""
    before = store.stats().live_references
    publish(bytes(size))
    return store.stats().live_references == before


@pytest.fixture
def store(tmp_path):
    with qindex.open(tmp_path / "store", sync="never") as opened:
        yield opened


def test_from_1_kib_on_a_body_is_written_once(store):
    queue = store.queue("q")
    for publish in (queue.publish, lambda body: queue.publish_many([body])):
        assert is_embedded(store, publish, 1023)
        assert not is_embedded(store, publish, 1024)


def test_what_somebody_waits_for_is_embedded_up_to_4_kib_so_that_it_costs_one_sync(store):
    queue = store.queue("q")
    for publish in (
        lambda body: queue.publish(body, confirm=True),
        lambda body: queue.publish(bytearray(body), confirm=True),
        lambda body: queue.publish(body, confirm=True, timeout=1),
        lambda body: queue.publish_many([body], confirm=True),
    ):
        assert is_embedded(store, publish, 4095)
        assert not is_embedded(store, publish, 4096)


def test_in_a_store_that_always_syncs_everybody_waits(tmp_path):
    with qindex.open(tmp_path / "always", sync="always") as store:
        queue = store.queue("q")
        for publish in (queue.publish, lambda body: queue.publish_many([body])):
            assert is_embedded(store, publish, 4095)
            assert not is_embedded(store, publish, 4096)


@pytest.mark.parametrize("sync", ["never", "always"])
@on_a_loop
async def test_so_is_what_a_task_waits_for(tmp_path, sync):
    async with aio.open(tmp_path, sync=sync) as store:
        queue = await store.queue("q")
        for size, stored in ((4095, 0), (4096, 1)):
            await queue.publish(bytes(size), confirm=True)
            assert (await store.stats()).live_references == stored
        await queue.publish(bytes(1024))
        assert (await store.stats()).live_references == (1 if sync == "always" else 2)


def test_the_option_moves_both_bounds(tmp_path):
    with qindex.open(tmp_path / "own", embed_below=100, sync="never") as store:
        queue = store.queue("q")

        def confirmed(body):
            queue.publish(body, confirm=True)

        assert is_embedded(store, queue.publish, 99)
        assert not is_embedded(store, queue.publish, 100)
        assert is_embedded(store, confirmed, 399)
        assert not is_embedded(store, confirmed, 400)
    with qindex.open(tmp_path / "none", embed_below=0, sync="never") as store:
        assert not is_embedded(store, store.queue("q").publish, 0)
        assert not is_embedded(store, lambda body: store.queue("q").publish(body, confirm=True), 1)


def test_headers_count(store):
    queue = store.queue("q")
    headers = {"name": "v" * 500}
    assert is_embedded(store, lambda body: queue.publish(body, headers=headers), 400)
    assert not is_embedded(store, lambda body: queue.publish(body, headers=headers), 600)
