"""More queues than descriptors: files are given back, opened again, and nothing is lost by it."""

import os
import resource
import socket
from pathlib import Path

import pytest
from helpers import count_syncs, run_with_limit

import qindex
from qindex.testing.simulated import SimulatedDisk

QUEUES = 300


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number


def test_three_hundred_queues_are_in_use_with_64_descriptors(tmp_path: Path) -> None:
    run_with_limit(
        64,
        """
        import os, socket, sys, qindex
        store = qindex.open(sys.argv[1])
        queues = [store.queue(f"queue {i}") for i in range(300)]
        for turn in range(3):
            for i, queue in enumerate(queues):
                queue.publish(b"%d in turn %d" % (i, turn))
            assert len(os.listdir("/proc/self/fd")) < 48
        sockets = [socket.socket() for _ in range(8)]  # the program's own
        for i, queue in enumerate(queues):
            message = queue.get()
            assert message.body == b"%d in turn 0" % i
            queue.ack(message)
        for queue in queues[::7]:
            queue.flush()
        store.sync()
        store.close()
        """,
        str(tmp_path / "store"),
    )
    with qindex.open(tmp_path / "store") as store:
        assert len(store.queues()) == QUEUES
        for i in range(QUEUES):
            bodies = [message.body for message in store.queue(f"queue {i}").browse()]
            assert bodies == [b"%d in turn 1" % i, b"%d in turn 2" % i]
        assert not store.findings


def test_a_killed_process_loses_nothing_of_parked_queues(tmp_path: Path) -> None:
    run_with_limit(
        64,
        """
        import os, sys, qindex
        store = qindex.open(sys.argv[1], sync="never")
        store.create_queues(f"queue {i}" for i in range(100))
        for turn in range(2):
            for i in range(100):
                store.queue(f"queue {i}").publish(b"%d %d" % (i, turn))
        sys.stdout.flush()
        os._exit(0)
        """,
        str(tmp_path / "store"),
    )
    with qindex.open(tmp_path / "store") as store:
        for i in range(100):
            bodies = [message.body for message in store.queue(f"queue {i}").browse()]
            assert bodies == [b"%d 0" % i, b"%d 1" % i]


def test_a_program_that_takes_the_last_descriptor_stops_no_queue(tmp_path: Path) -> None:
    """Queues that are asleep, not read yet, or not there yet get theirs from those in use."""
    with qindex.open(tmp_path / "store") as store:
        store.create_queues(["asleep", "unread", "seen", "listed", *(f"{i}" for i in range(4))])
        store.queue("unread").publish(b"kept")
    run_with_limit(
        64,
        """
        import os, sys, time, qindex
        store = qindex.open(sys.argv[1], idle=0.1)
        asleep = store.queue("asleep")
        directory = os.path.join(sys.argv[1], store.queue_directory("asleep"))
        own = f"/proc/{os.getpid()}/fd"
        def sleeps():
            links = (f"{own}/{fd}" for fd in os.listdir(own))
            return not any(os.path.realpath(link).startswith(directory) for link in links)
        end = time.monotonic() + 20
        while not sleeps():
            assert time.monotonic() < end
            time.sleep(0.05)
        def take_all():
            held = []
            for i in range(4):  # in use, and far from the bound
                store.queue(f"{i}").publish(b"x")
            try:
                while True:
                    held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                return held
        def crowded(call, spare=0):
            held = take_all()
            for _ in range(spare):
                os.close(held.pop())
            try:
                result = call()
            finally:
                for descriptor in held:
                    os.close(descriptor)
            return result
        crowded(lambda: asleep.publish(b"woken"))
        assert crowded(lambda: "seen" in store)
        assert not crowded(lambda: "missing" in store)
        assert crowded(lambda: store.queue("unread").get().body) == b"kept"
        crowded(lambda: store.queue("new").publish(b"x"))
        assert crowded(lambda: store.create_queues(["many", "more"])) == 2
        assert crowded(lambda: store.create_queues(["one", "left"]), spare=1) == 2
        assert len(crowded(store.queues)) == 13
        store.close()
        store = qindex.open(sys.argv[1])
        assert len(crowded(store.queues, spare=1)) == 13
        store.close()
        """,
        str(tmp_path / "store"),
    )
    with qindex.open(tmp_path / "store") as store:
        assert [m.body for m in store.queue("asleep").browse()] == [b"woken"]
        assert len(store.queue("new")) == 1
        assert not store.findings


def test_all_stores_of_a_process_share_the_bound(tmp_path: Path) -> None:
    before = descriptors()
    first = qindex.open(tmp_path / "first", max_open_files=40)
    for i in range(30):
        first.queue(f"{i}").publish(b"one")
    second = qindex.open(tmp_path / "second")
    for i in range(30):
        second.queue(f"{i}").publish(b"two")
    for i in range(30):
        assert first.queue(f"{i}").peek().body == b"one"  # type: ignore[union-attr]
    assert descriptors() - before <= 40
    first.close()
    second.close()
    assert descriptors() == before


def test_a_message_goes_to_more_queues_than_may_have_their_files_open(tmp_path: Path) -> None:
    names = [f"{i}" for i in range(60)]
    with qindex.open(tmp_path / "store", max_open_files=24) as store:
        store.create_queues(names)
        store.publish(names, b"to all", confirm=True)
        store.publish(names, b"x" * 10_000)
        for name in names:
            assert [m.body for m in store.queue(name).browse()] == [b"to all", b"x" * 10_000]


def test_a_reader_of_many_queues_gives_descriptors_back(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.create_queues(f"{i}" for i in range(50))
        for i in range(50):
            store.queue(f"{i}").publish(b"%d" % i)
    before = descriptors()
    with qindex.open(tmp_path / "store", read_only=True, max_open_files=24) as reader:
        for _ in range(2):
            for i in range(50):
                assert reader.queue(f"{i}").peek().body == b"%d" % i  # type: ignore[union-attr]
        assert descriptors() - before <= 24
        assert not reader.check()


@pytest.mark.parametrize("io", ["mmap", "pwrite"])
def test_messages_are_read_from_journals_that_were_opened_again(tmp_path: Path, io: str) -> None:
    with qindex.open(tmp_path / "store", max_open_files=24, io=io) as store:  # type: ignore[arg-type]
        queues = [store.queue(f"{i}") for i in range(20)]
        for turn in range(5):
            for i, queue in enumerate(queues):
                queue.publish(b"%d %d" % (i, turn))
        for i, queue in enumerate(queues):
            queue.sync()
            queue.nack(queue.get())  # type: ignore[arg-type]
            assert [m.body for m in queue.get_many(9)] == [b"%d %d" % (i, t) for t in range(5)]
        assert queues[0].oldest_age_min is not None
        assert not store.check()


def test_a_bound_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_open_files must be a whole number from 24"):
        qindex.open(tmp_path / "store", max_open_files=3)


def test_the_program_can_open_a_socket_beside_500_queues(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.create_queues(f"{i}" for i in range(500))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 200, limit[1]))
        try:
            with qindex.open(tmp_path / "other"):  # the bound is looked up when a store is opened
                for i in range(500):
                    store.queue(f"{i}").publish(b"x")
                with socket.socket():
                    pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)


# --- which queues there are ------------------------------------------------------------------


def test_create_queues_makes_those_that_are_not_there(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.queue("b").publish(b"kept")
        assert store.create_queues(["a", "b", "c", "a"]) == 2
        assert store.create_queues(iter(["a", "c"])) == 0
        assert store.create_queues([]) == 0
        assert store.queues() == ["a", "b", "c"]
        assert len(store.queue("b")) == 1
        with pytest.raises(TypeError, match="names must be a list of names"):
            store.create_queues("abc")
        with pytest.raises(ValueError, match="65535"):
            store.create_queues(["d", "x" * 65536])
    with qindex.open(tmp_path / "store", read_only=True) as reader:
        assert "a" in reader
        with pytest.raises(qindex.ReadOnly):
            reader.create_queues(["e"])


def test_in_knows_queues_that_nobody_opened_and_not_the_deleted(tmp_path: Path) -> None:
    with qindex.open(tmp_path / "store") as store:
        store.create_queues(["a", "b", ""])
        assert "a" in store
        assert "" in store
        assert "c" not in store
        store.delete_queue("a")
        assert "a" not in store
        store.queue("a")
        assert "a" in store
    with qindex.open(tmp_path / "store") as store:
        assert "b" in store
        assert "c" not in store
        assert 7 not in store  # type: ignore[comparison-overlap]
        folder = tmp_path / "store" / store.queue_directory("b")
        (folder / "queue.meta").write_bytes(b"")
        assert "b" not in store  # as queues() has it


def test_many_creations_cost_a_few_syncs() -> None:
    def calls(count: int) -> int:
        disk = SimulatedDisk(1)
        with qindex.open("/", disk=disk) as store:
            before = disk.changes
            store.create_queues(f"{i}" for i in range(count))
            return disk.changes - before

    assert calls(40) - calls(20) <= 20 * 8  # changes of files and names: one by one there are 11


def test_a_store_closes_many_queues_with_two_syncs_of_the_disk(tmp_path: Path) -> None:
    program = """
        import sys, qindex
        store = qindex.open(sys.argv[1], sync="never")
        store.create_queues(f"{i}" for i in range(50))
        for i in range(50):
            store.queue(f"{i}").publish(b"x")
        store.close()
        """
    of_everything, of_files = count_syncs(program, tmp_path)
    assert of_everything <= 4
    assert of_files < 25


@pytest.mark.parametrize("form", [1, 2])
def test_queues_that_ended_cleanly_are_used_again_without_a_sync_for_each(
    tmp_path: Path, form: int
) -> None:
    with qindex.open(tmp_path / "store", format=form) as store:
        store.create_queues(f"{i}" for i in range(100))
        for i in range(100):
            store.queue(f"{i}").publish(b"x")
        store.sync()  # in format 2 by the commit log
    program = """
        import os, sys, qindex
        store = qindex.open(sys.argv[1], sync="never", idle=3600)
        store.create_queues(f"new {i}" for i in range(20))  # two syncs of everything
        for i in range(100):
            queue = store.queue(f"{i}")
            assert queue.peek().body == b"x"
            queue.ack(queue.get())
            assert queue.publish(b"y") == 1
        os._exit(0)
        """
    of_everything, of_files = count_syncs(program, tmp_path)
    assert of_everything <= 2
    assert of_files < 20
    with qindex.open(tmp_path / "store") as store:  # after a kill
        for i in range(100):
            assert [m.body for m in store.queue(f"{i}").browse()] == [b"y"]


@pytest.mark.parametrize("form", [1, 2])
def test_reading_a_queue_that_ended_cleanly_changes_no_file(tmp_path: Path, form: int) -> None:
    with qindex.open(tmp_path / "store", format=form) as store:
        queue = store.queue("a")
        for i in range(50):
            queue.publish(b"%d" % i)
        folder = tmp_path / "store" / store.queue_directory("a")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with qindex.open(tmp_path / "store", idle=0.02) as store:
        queue = store.queue("a")
        assert len(queue) == len(list(queue.browse())) == 50
        assert not store.check()
        store.sync()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_power_cut_behind_a_clean_end_gives_no_reqid_twice() -> None:
    """A session's first publishes need no sync; what a power cut takes of them leaves a gap."""
    full = 16384  # entries of a segment: an unclean end rounds up to whole ones
    for seed in range(8):
        disk = SimulatedDisk(seed)
        with qindex.open("/", disk=disk) as store:
            store.queue("a").publish_many([b""] * (full - 2))
        store = qindex.open("/", disk=disk, sync="never")
        given = [store.queue("a").publish(b"x") for _ in range(5)]
        assert given == list(range(full - 2, full + 3))
        with qindex.open("/", disk=disk.power_cut(seed)) as after:
            assert full - 2 <= len(after.queue("a")) <= full + 3
            assert after.queue("a").publish(b"new") > full + 2
        store.close()


@pytest.mark.parametrize("form", [1, 2])
def test_a_store_goes_on_when_a_program_has_every_descriptor(tmp_path: Path, form: int) -> None:
    run_with_limit(
        64,
        """
        import os, sys, qindex
        store = qindex.open(sys.argv[1], format=int(sys.argv[2]))
        queue = store.queue("alone")
        def publish():
            for priority in range(20):  # a segment for each
                queue.publish(b"%d" % priority, priority=priority)
            queue.publish(b"x" * 10_000)
        publish()
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        queue.flush()
        publish()
        store.sync()
        assert len(list(queue.browse())) == 42
        assert not store.check()
        queue.ack_many(queue.get_many(30))
        store.compact()
        assert store.queues() == ["alone"]
        publish()
        store.close()
        """,
        str(tmp_path / "store"),
        str(form),
    )
    with qindex.open(tmp_path / "store") as store:
        assert len(store.queue("alone")) == 33
        assert not store.findings
