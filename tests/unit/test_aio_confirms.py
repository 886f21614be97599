"""Confirms on an event loop: a thread of the core syncs for it, and says so when it is done.

A shim in front of fdatasync holds a sync up, or lets it fail, as long as a file is there.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import bodies, preloaded

import qindex

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the shim")

SHIM = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int is_there(const char *name) {
    char path[4096];
    strcat(strcat(strcpy(path, getenv("SYNCS")), "/"), name);
    return access(path, F_OK) == 0;
}
int fdatasync(int file) {
    while (is_there("hold"))
        usleep(500);
    if (!is_there("fail"))
        return (int)syscall(SYS_fdatasync, file);
    errno = EIO;
    return -1;
}
"""

BEGIN = """
import asyncio, os, sys
from pathlib import Path
import qindex
from qindex import aio
from qindex._core import ffi, lib

hold, fail = (Path(os.environ["SYNCS"], name) for name in ("hold", "fail"))

async def opened():
    store = await aio.open(sys.argv[1], sync="never", format=2)
    queues = [await store.queue(f"q{number}") for number in range(8)]
    await queues[0].publish(b"before", confirm=True)  # the thread has begun
    hold.touch()
    return store, queues

def confirmed(queues, count):
    return [
        asyncio.create_task(queue.publish(b"%d" % number, confirm=True))
        for number in range(count) for queue in queues
    ]

async def settle():
    for _ in range(100):
        await asyncio.sleep(0)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Run a script with the shim, and a store to open; return that store's path."""
    environment = preloaded(tmp_path, SHIM) | {"SYNCS": str(tmp_path)}

    def run(script: str, *, is_killed: bool = False) -> Path:
        command = [sys.executable, "-c", BEGIN + script, str(tmp_path / "store")]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            try:
                if is_killed:
                    assert child.stdout.readline() == "held\n", child.stderr.read()
                    child.kill()
                told, errors = child.communicate(timeout=120)
            finally:
                child.kill()
        assert (child.returncode, told) == (-signal.SIGKILL if is_killed else 0, ""), errors
        (tmp_path / "hold").unlink(missing_ok=True)
        return tmp_path / "store"

    return run


def test_the_loop_goes_on_and_all_who_wait_hear_of_it(run):
    path = run("""
async def main():
    store, queues = await opened()
    one = confirmed(queues[:1], 1)
    many = confirmed(queues, 20)
    await settle()  # the loop has its turns
    assert not any(task.done() for task in one + many)
    hold.unlink()
    assert await asyncio.gather(*one) == [1]
    assert len(await asyncio.gather(*many)) == 160
    assert [(await queue.stats()).unsynced_bytes for queue in queues] == [0] * 8
    await store.close()

asyncio.run(main())
""")
    with qindex.open(path) as store:
        assert sum(len(store.queue(name)) for name in store.queues()) == 162


def test_a_sync_that_fails_is_told_to_all_who_wait(run):
    run("""
async def main():
    store, queues = await opened()
    tasks = confirmed(queues[:1], 3) + confirmed(queues[1:3], 2)
    await settle()
    fail.touch()
    hold.unlink()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(error) for error in told[:3]} == {qindex.OutcomeUnknown}, told
    assert {type(error) for error in told} <= {qindex.OutcomeUnknown, qindex.StoreFailed}, told
    assert "Input/output error" in str(told[0]) and "nobody knows" in str(told[0]), told
    fail.unlink()
    for call in (queues[0].sync, store.sync, queues[4].sync):
        try:
            await call()
        except qindex.StoreFailed as error:
            assert "Input/output error" in str(error)
        else:
            raise SystemExit("a failed store went on")
    try:
        await store.close()
    except qindex.StoreFailed:
        return
    raise SystemExit("close said that all is well")

asyncio.run(main())
""")


def test_a_group_commit_that_fails_leaves_in_doubt_what_waits_for_it(run):
    run("""
async def main():
    store, queues = await opened()
    for queue in queues:
        await queue.publish(b"x")
    fail.touch()
    hold.unlink()
    try:
        await store.sync()
    except qindex.OutcomeUnknown as error:
        assert "cannot sync the commit log: Input/output error" in str(error), error
    else:
        raise SystemExit("a sync that failed was none")

asyncio.run(main())
""")


CLOSE_BESIDE = """
async def main():
    store, queues = await opened()
    running, waiting = confirmed(queues[:1], 2)
    syncing = asyncio.create_task(queues[0].sync())
    await settle()
    {before}
    closing = asyncio.create_task(store.close())
    handle, queue = store._store._handle, queues[0]._queue._handle
    while lib.qi_sync_ask(handle, queue) == lib.QI_BUSY:  # until the close waits for the thread
        await asyncio.sleep(0.001)
    assert not any(task.done() for task in (running, waiting, syncing, closing))
    hold.unlink()
    ended = await asyncio.gather(closing, return_exceptions=True)
    told = await asyncio.gather(running, waiting, syncing, return_exceptions=True)
    {after}
    assert lib.qi_sync_ask(handle, ffi.NULL) == lib.QI_E_CLOSED
    for call in (queues[0].sync, lambda: queues[0].publish(b"late", confirm=True)):
        try:
            await call()
        except qindex.StoreClosed:
            continue
        raise SystemExit("a closed store went on")

asyncio.run(main())
"""


def test_a_close_confirms_what_waits_for_a_sync(run):
    path = run(
        CLOSE_BESIDE.format(before="", after="assert (ended, told) == ([None], [1, 2, None]), told")
    )
    with qindex.open(path) as store:
        assert bodies(store.queue("q0").get_many(9)) == [b"before", b"0", b"1"]


def test_a_close_that_fails_leaves_in_doubt_what_waits_for_a_sync(run):
    run(
        CLOSE_BESIDE.format(
            before="""
    def fails(close=store._store.close):
        close()
        raise qindex.StoreFailed("its last sync failed")

    store._store.close = fails
""",
            after="""
    assert type(ended[0]) is qindex.StoreFailed, ended
    assert told[0] == 1, told  # its own sync had ended before
    assert {type(error) for error in told[1:]} == {qindex.OutcomeUnknown}, told
    assert "its last sync failed" in str(told[1]), told""",
        )
    )


def test_the_interpreter_ends_while_a_confirm_waits(run):
    path = run("""
import threading, time

async def main():
    global store
    store, queues = await opened()
    confirmed(queues, 1)
    await settle()
    threading.Timer(0.2, hold.unlink).start()

asyncio.run(main())
""")
    with qindex.open(path) as store:
        assert len(store.queue("q0")) == 2


def test_a_process_that_is_killed_in_a_sync_has_confirmed_nothing(run):
    path = run(
        """
async def main():
    store, queues = await opened()
    tasks = confirmed(queues, 3)
    await settle()
    assert not any(task.done() for task in tasks)
    print("held", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
""",
        is_killed=True,
    )
    with qindex.open(path) as store:
        assert store.findings == []
        assert [len(store.queue(f"q{number}")) for number in range(8)] == [4] + [3] * 7


def test_a_forked_child_asks_in_vain(run):
    run("""
async def main():
    store, queues = await opened()
    [task] = confirmed(queues[:1], 1)
    await settle()
    child = os.fork()
    if child == 0:
        handle, came = store._store._handle, ffi.new("qi_queue **")
        said = lib.qi_sync_ask(handle, queues[1]._queue._handle)
        heard = lib.qi_sync_came(handle, came, ffi.new("int *"))
        os._exit(0 if (said, heard) == (lib.QI_E_FORKED, False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hold.unlink()
    assert await task == 1
    await store.close()

asyncio.run(main())
""")


def test_one_sync_of_a_queue_is_under_way_at_a_time(run):
    run("""
async def main():
    store, queues = await opened()
    handle, queue = store._store._handle, queues[0]._queue._handle
    [task] = confirmed(queues[:1], 1)
    await settle()
    assert lib.qi_sync_ask(handle, queue) == lib.QI_BUSY
    hold.unlink()
    await task
    await queues[0].sync()
    await store.close()

asyncio.run(main())
""")


def test_who_waits_hears_of_the_end_also_if_the_task_that_closes_is_cancelled(run):
    path = run("""
async def main():
    store, queues = await opened()
    [task] = confirmed(queues[:1], 1)
    await settle()
    closing = asyncio.create_task(store.close())
    await settle()
    closing.cancel()
    await asyncio.wait([closing])
    hold.unlink()
    assert await asyncio.wait_for(task, 60) == 1

asyncio.run(main())
""")
    with qindex.open(path) as store:
        assert len(store.queue("q0")) == 2
