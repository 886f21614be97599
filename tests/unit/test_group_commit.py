"""Who waits for a sync of the broker hears of it, whatever happens to the others."""

from qindex.broker.durable import GroupCommit


class Syncer:
    """Ends its syncs when the test says so."""

    def __init__(self):
        self.begun = []

    def sync(self, ended):
        self.begun.append(ended)

    def close(self):
        pass


def test_a_confirm_that_raises_keeps_no_other_waiting(caplog):
    syncer, heard = Syncer(), []
    commit = GroupCommit(syncer)

    def broken():
        raise RuntimeError("the connection is gone")

    commit.join(lambda: heard.append("alone"))
    commit.join(broken)
    commit.join(lambda: heard.append("behind it"))
    syncer.begun[0](None)
    assert heard == ["alone"]
    commit.join(lambda: heard.append("later"))
    syncer.begun[1](None)
    assert heard == ["alone", "behind it"]
    assert "the connection is gone" in caplog.text
    syncer.begun[2](None)
    assert heard == ["alone", "behind it", "later"]
    assert len(syncer.begun) == 3
