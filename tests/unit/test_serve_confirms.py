"""What a client hears of a confirm whose sync waits, or fails."""

import shutil

import pika
import pika.exceptions
import pytest
from broker_process import BrokerProcess, connect
from helpers import preloaded

import qindex

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the shim"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

SHIM = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int fdatasync(int file) {
    if (access(getenv("FAIL_SYNC"), F_OK) != 0)
        return (int)syscall(SYS_fdatasync, file);
    errno = EIO;
    return -1;
}
"""


@pytest.mark.parametrize("rounds", [1, 20], ids=["of the thread", "of the loop, on a quick disk"])
def test_no_confirm_is_sent_for_a_sync_that_fails_and_the_server_ends(
    tmp_path, monkeypatch, rounds
):
    fail, directory = tmp_path / "fail", tmp_path / "d"
    for name, value in (preloaded(tmp_path, SHIM) | {"FAIL_SYNC": str(fail)}).items():
        monkeypatch.setenv(name, value)
    with BrokerProcess(str(directory)) as broker:
        connection, other = connect(broker.url), connect(broker.url)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        for _ in range(rounds):
            channel.basic_publish("", "q", b"confirmed", persistent)
        fail.touch()
        with pytest.raises(pika.exceptions.AMQPError):
            channel.basic_publish("", "q", b"in doubt", persistent)
        with pytest.raises(pika.exceptions.AMQPError):  # every client is disconnected
            other.process_data_events(time_limit=60)
        _, told = broker.process.communicate(timeout=60)
        assert broker.process.returncode == 1, told
        assert "Input/output error" in told
    fail.unlink()
    with qindex.open(directory / "vhosts" / "0") as store:
        bodies = [message.body for message in store.queue("q").get_many(rounds)]
        assert bodies == [b"confirmed"] * rounds
