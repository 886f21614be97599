"""Who makes the sync that a confirm waits for: the store's thread, or the event loop itself."""

import asyncio

import pytest

import qindex
from qindex.errors import OutcomeUnknown
from qindex.serve.syncs import ALONE_BYTES_MAX, Alone, LoopSyncer, Reads

ROUNDS = 4  # of a client alone that the thread makes


def read(reads, size=200, count=1):
    reads.count += count
    reads.size += size


def rounds(alone, reads, times, **a_read):
    answers = []
    for _ in range(times):
        read(reads, **a_read)
        answers.append(alone.begins())
        alone.took(0.0001)
    return answers


def test_a_client_that_waits_for_each_confirm_gets_syncs_of_the_loop():
    reads = Reads()
    assert rounds(Alone(reads), reads, 8) == [False] * ROUNDS + [True] * 4


@pytest.mark.parametrize(
    "other",
    [{"count": 2}, {"count": 0, "size": 0}, {"size": ALONE_BYTES_MAX + 1}],
    ids=["another one sends", "nobody sends: HTTP or a move", "much at once"],
)
def test_the_first_round_with_others_goes_to_the_thread(other):
    reads = Reads()
    alone = Alone(reads)
    rounds(alone, reads, 6)
    assert rounds(alone, reads, 1, **other) == [False]
    assert rounds(alone, reads, 6) == [False] * ROUNDS + [True] * 2


@pytest.mark.parametrize(("seconds", "of_the_thread"), [(0.005, 0), (0.008, 1), (0.030, 11)])
def test_the_slower_a_sync_was_the_more_of_the_next_ones_go_to_the_thread(seconds, of_the_thread):
    reads = Reads()
    alone = Alone(reads)
    assert rounds(alone, reads, 6)[-1]
    alone.took(seconds)
    assert rounds(alone, reads, 20) == [False] * of_the_thread + [True] * (20 - of_the_thread)


def test_a_disk_that_is_slow_throughout_gets_the_thread():
    reads = Reads()
    alone = Alone(reads)
    for _ in range(100):
        read(reads)
        answer = alone.begins()
        alone.took(0.0011)
    assert not answer


class Alternation:
    """A store whose syncs are listed, and a client that waits for each of its confirms."""

    def __init__(self, store, monkeypatch):
        self.store, self.events, self.reads = store, [], Reads()
        self.syncer = LoopSyncer(asyncio.get_running_loop(), self.reads, store)
        monkeypatch.setattr("qindex.serve.syncs._ALONE_SECONDS", 60)  # however slow this disk is
        sync = store.sync
        monkeypatch.setattr(store, "sync", lambda: (self.events.append("sync"), sync()))

    async def round(self):
        ended = asyncio.get_running_loop().create_future()

        def hear(error):
            self.events.append("ended")
            ended.set_result(error)

        self.store.queue("q").publish(b"x")
        read(self.reads)
        self.syncer.sync(hear)
        self.events.append("went on")
        error = await ended
        events, self.events[:] = list(self.events), []
        return events, error


def with_alternation(tmp_path, monkeypatch, use):
    async def main():
        with qindex.open(tmp_path / "s") as store:
            alternation = Alternation(store, monkeypatch)
            try:
                await use(alternation)
            finally:
                alternation.syncer.close()

    asyncio.run(main())


def test_the_loop_hears_of_its_own_sync_in_the_same_turn(tmp_path, monkeypatch):
    async def use(alternation):
        for _ in range(ROUNDS):
            assert await alternation.round() == (["went on", "ended"], None)
        for _ in range(3):
            count = alternation.store.stats().syncs.count
            assert await alternation.round() == (["sync", "ended", "went on"], None)
            assert alternation.store.stats().syncs.count > count

    with_alternation(tmp_path, monkeypatch, use)


def test_an_error_of_the_loops_own_sync_is_told_in_a_turn_of_its_own(tmp_path, monkeypatch):
    async def use(alternation):
        for _ in range(ROUNDS):
            await alternation.round()

        def fail():
            raise OutcomeUnknown("the disk failed a sync")

        monkeypatch.setattr(alternation.store, "sync", fail)
        events, error = await alternation.round()
        assert events == ["went on", "ended"]
        assert isinstance(error, OutcomeUnknown)

    with_alternation(tmp_path, monkeypatch, use)
