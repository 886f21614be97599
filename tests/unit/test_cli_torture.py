"""qindex torture: what it says, what it leaves behind, and that it can fail."""

import json
import re

import pytest

from qindex.cli import main as cli
from qindex.cli.torture import command as torture
from qindex.cli.torture.ledger import Broken
from qindex.cli.torture.machine import mount_of

SHORT = ("--minutes", "0.01")
MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 22 0:25 / /mnt/big\\040disk rw,nosuid - xfs /dev/sdb1 rw,attr2
31 22 0:26 / /mnt rw - tmpfs none rw
"""


def run(*arguments):
    return cli.main(["torture", *map(str, arguments)])


@pytest.mark.slow
def test_all_trials_pass_here_and_nothing_but_the_report_is_left(tmp_path, capsys):
    assert run(tmp_path, *SHORT) == 0
    shown = capsys.readouterr().out
    text = (tmp_path / torture.REPORT).read_text()
    for trial in ["two openers", "fork", "no space", "readers", "kill -9"]:
        assert f"{trial}:" in text
        assert trial in shown
    assert re.search(r"kill -9: +passed: [1-9][0-9]* kills? survived", text)
    assert "FAILED" not in text
    for fact in ["file system", "mount options", "system", "appends", "sync"]:
        assert f"{fact}:" in text
    assert [file.name for file in tmp_path.iterdir()] == [torture.REPORT]


def test_a_failed_trial_is_told_and_its_store_is_kept(tmp_path, capsys, monkeypatch):
    def broken(_folder):
        raise Broken("a message was lost")

    monkeypatch.setattr(torture, "TRIALS", {"readers": broken})
    report = tmp_path / "report.txt"
    assert run(tmp_path, *SHORT, "--report", report, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] is False
    assert said["trials"][0] == {
        "trial": "readers",
        "outcome": "FAILED",
        "text": "Broken: a message was lost",
    }
    assert "FAILED: Broken: a message was lost" in report.read_text()
    assert said["kept_in"] in report.read_text()
    assert any(tmp_path.glob("qindex-torture-*/readers"))


@pytest.mark.parametrize("arguments", [("missing",), (".", "--minutes", "0")])
def test_what_cannot_be_used_is_refused(tmp_path, arguments, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    assert capsys.readouterr().err.startswith("qindex: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "kind", "options"),
    [
        ("/home/me", "ext4", "rw,relatime,discard"),
        ("/mnt/other", "tmpfs", "rw"),
        ("/mnt/big disk/data", "xfs", "rw,nosuid,attr2"),
    ],
)
def test_the_mount_is_the_one_that_the_directory_is_on(tmp_path, path, kind, options):
    mount = mount_of(type(tmp_path)(path), MOUNTS)
    assert (mount.kind, mount.options) == (kind, options)
