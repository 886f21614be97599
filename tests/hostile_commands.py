"""Hostile names, and every command with directories that have them: for test_cli_hostile."""

import io
import os
import pty
import sys
import threading

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[35m"  # clears, sets the title, a colour that is not ours
HOSTILE = [
    ESCAPES,
    "a\nqindex: b\rc\td\x7f\x9b31m\x85",
    "\u202egnp.exe\u2066\u200b\ufeff\u2028",
    "\udcff\udc80",
    "\\x{fe}\\x{80}",
    "\ud800",
    "",
    "<script>alert('&amp;')</script>",
    "$\\frac$ [x] %s {0} 'q' \"",
    "\0",
    "x" * 250,
]
AS_FILES = [name for name in HOSTILE if name and not set(name) & set("/\0") and name != "\ud800"]
OUR_COLOURS = [f"\x1b[{code}m" for code in (0, 1, 2, 31, 32, 33)]

# Each command, with all kinds of directories; {out} is a folder in which outputs are made.
BASE = {
    "demo": [["--dir", "{out}/demo"]],
    "recover": [["{nsq}", "--out", "{out}/i", "--report", "{out}/r.html"], ["{node}"], ["{nsq}"]],
    "salvage": [["{store}", "--out", "{out}/salvaged"]],
    "ls": [["{store}"], ["{nsq}"], ["{node}"]],
    "stats": [["{store}"], ["{nsq}"], ["{node}"]],
    "top": [["{store}", "--once", "--interval", "0.1"]],
    "check": [["{store}"], ["{nsq}"], ["{node}"]],
    "peek": [["{store}"], ["{nsq}"], ["{node}"], ["{store}", "--bodies", "hex"]],
    "cat": [["{store}", "--jsonl"], ["{nsq}", "--jsonl"], ["{store}"]],
    "export": [
        [folder, "--form", form, "--out", "{out}/" + folder[1] + form]
        for form in ("jsonl", "parquet", "files")
        for folder in ("{store}", "{nsq}", "{node}")
    ],
    "trace": [["{store}", "{queue}:0"], ["{nsq}", "{file}:0"]],
    "replay": [
        ["{store}", "{queue}"],
        ["{store}", "{queue}", "--at", "1", "--messages"],
        ["{store}", "--verify"],
        ["{store}", "{queue}", "--at", "1", "--out", "{out}/replayed"],
    ],
    "bisect": [
        [
            "{store}",
            "{queue}",
            "--cmd",
            "grep . && (printf '\\033[35m') && exit 3; true",
            "--seconds",
            "9",
        ]
    ],
    "du": [["{store}", "--explain"], ["{nsq}", "--explain"], ["{node}", "--explain"]],
    "republish": [["{store}", "--amqp", "amqp://h", "--checkpoint", "{out}/note", "--declare"]],
    "plot": [
        ["slots", "{store}", "{queue}", "--out", "{out}/slots.svg"],
        ["depth", "{store}", "{queue}", "--out", "{out}/depth.svg"],
        ["files", "{store}", "--out", "{out}/files.svg"],
        ["recovery", "{store}", "{nsq}", "--out", "{out}/recovery.svg"],
    ],
    "write-rabbitmq": [["{store}", "{queue}", "{plain}", "--out", "{out}/new"]],
    "diff": [["{store}", "{nsq}"], ["{store}", "{store}"], ["{nsq}", "{store}", "--jsonl"]],
    "audit": [["{store}", "{nsq}", "{node}", "--master", "none", "--out", "{out}/audit"]],
    "spark-export": [["{store}", "{nsq}", "--master", "none", "--out", "{out}/export"]],
    "spark-recover": [["{nsq}", "{node}", "--master", "none", "--out", "{out}/recovered"]],
    "dump": [["{store}"], ["{node}"]],
    "torture": [["{out}", "--minutes", "0.01"]],
    "upgrade": [["{store}", "--dry-run"]],
    "backup": [["{store}", "{out}/copy"]],
    "redrive": [["{store}", "--dry-run"]],
    "move": [["{store}", "{queue}", "--to", "{plain}", "--dry-run"]],
    "purge": [["{store}", "{queue}", "--state", "ready,delayed,dead", "--dry-run"]],
    "delete": [["{store}", "{queue}", "--dry-run"]],
    "rename": [["{store}", "{queue}", "--to", "other", "--dry-run"]],
    "configure": [["{store}", "{queue}", "ttl=5", "--dry-run"]],
    "compact": [["{store}", "--dry-run"]],
}
# They are about a directory that is served: test_serve.py and test_serve_control.py have them.
ABOUT_A_SERVER = {"serve", "ctl"}
NEEDS = {
    "plot": "matplotlib", "republish": "pika", "audit": "pyarrow", "spark-export": "pyarrow",
    "spark-recover": "pyarrow",
}  # fmt: skip


class Broker:
    """All that republish asks of pika's connection."""

    queue_declare = lambda *_, **__: None  # noqa: E731
    confirm_delivery = close = queue_declare
    sent: list[tuple[bytes, bytes]] = []

    def __init__(self, *_):
        self.sent.clear()

    def channel(self):
        return self

    def basic_publish(self, exchange, key, body, properties, mandatory):
        self.sent.append((key.encode("UTF-8"), body))


class Terminal:
    """stdout and stderr of this process are a terminal of 200 columns; what it got."""

    def __init__(self, monkeypatch):
        ours, theirs = pty.openpty()
        self._got = b""
        self._ours = ours
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._stream = io.TextIOWrapper(os.fdopen(theirs, "wb", buffering=0), "utf-8")
        monkeypatch.setattr(sys, "stdout", self._stream)
        monkeypatch.setattr(sys, "stderr", self._stream)

    def _read(self):
        try:
            while chunk := os.read(self._ours, 65536):
                self._got += chunk
        except OSError:
            pass

    def end(self):
        self._stream.flush()
        self._stream.close()
        self._reader.join()
        os.close(self._ours)
        return self._got.decode()
