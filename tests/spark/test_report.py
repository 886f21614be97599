"""The report as a browser shows it: no label is cut or covered by its bar."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

import qindex
from qindex.cli.main import main

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'qindex[spark]'")

NAMES = [
    "orders.created.eu-central-1.retry.after-a-day",
    "W" * 80,
    "<b>bold</b> & more",
    "äöü " * 20,
    "x" * 3000,
]
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
MEASURE = """<script>
document.title = [...document.querySelectorAll('.row')].filter(row => {
  const [label, bar] = row.children, text = document.createRange();
  text.selectNodeContents(label);
  const a = text.getBoundingClientRect(), b = bar.getBoundingClientRect();
  return a.right > b.left || a.left < row.getBoundingClientRect().left - 1 ||
         a.bottom > row.getBoundingClientRect().bottom + 1;
}).map(row => row.innerText).join('; ') || 'none of ' + document.querySelectorAll('.row').length;
</script>"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    for broker in ("one", "a-broker.with-a-long-name.in.a-datacentre.example.org"):
        (tmp_path / "fleet" / broker).mkdir(parents=True)
        with qindex.open(tmp_path / "fleet" / broker / "store") as store:
            for count, name in enumerate(NAMES, start=1):
                store.queue(name).publish_many([b"x"] * count)
    assert main(["audit", str(tmp_path / "fleet"), "--out", str(tmp_path / "out")]) == 0
    return tmp_path / "out/report.html"


def test_labels_have_whole_names(page: Path) -> None:
    labels = {
        unescape(each) for each in re.findall("<span title=[^>]*>([^<]*)</span>", page.read_text())
    }
    for name in NAMES[:4]:
        assert f"one/store: {name}" in labels
    assert all(len(label) <= 100 for label in labels)
    assert any("…" in label for label in labels)


@pytest.mark.interop
@pytest.mark.skipif(not BROWSER, reason="needs a browser: chromium")
@pytest.mark.parametrize("width", [1250, 500])
def test_no_label_is_covered(page: Path, tmp_path: Path, width: int) -> None:
    policy = '<meta http-equiv="Content-Security-Policy"[^>]*>'
    allowed, count = re.subn(policy, "", page.read_text())  # which lets no script run
    assert count == 1
    page.write_text(allowed + MEASURE)
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},2000",
    ]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    told = subprocess.run(
        [*command, profile, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    (title,) = re.findall("<title>(.*?)</title>", told.stdout, re.DOTALL)
    assert re.fullmatch("none of [1-9][0-9]*", title)
