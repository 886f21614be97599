"""The process that a queue under test lives in: ``python -m qindex.testing.child SOCKET``.

It imports the adapter once and waits. For each life it forks; the fork talks to the harness, one
JSON line for a call and one for its answer, until it is told to go or is killed. So a life costs a
fork, not a start of Python. The recorder (c_ext/proof/record/record.c) is preloaded.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import socket
import sys
from typing import Any

from qindex.testing.adapter import Adapter, Stand


class Line:
    """JSON lines, one way and the other."""

    def __init__(self, ours: socket.socket) -> None:
        self.stream = ours.makefile("rwb")

    def say(self, **message: Any) -> None:
        self.stream.write(json.dumps(message).encode() + b"\n")
        self.stream.flush()

    def hear(self) -> dict[str, Any] | None:
        line = self.stream.readline()
        if not line:
            return None
        message: dict[str, Any] = json.loads(line)
        return message


def load(name: str, file: str, qualified: str) -> type[Adapter]:
    """The adapter's class, from the module that has this name, or else from its file."""
    try:
        spec = importlib.util.find_spec(name) if name != "__main__" else None
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin is not None and os.path.realpath(spec.origin) == file:
        module = importlib.import_module(name)
    else:
        spec = importlib.util.spec_from_file_location("queue_under_test", file)
        assert spec is not None  # noqa: S101
        assert spec.loader is not None  # noqa: S101
        module = sys.modules["queue_under_test"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Any = module
    for part in qualified.split("."):
        found = getattr(found, part)
    adapter: type[Adapter] = found
    return adapter


def live(line: Line, adapter: type[Adapter], root: str, record: str | None) -> None:
    """One life: answer calls until there are no more."""
    recorder = ctypes.CDLL(None)
    if record is not None:
        code = recorder.qi_record_begin(os.fsencode(root), os.fsencode(record))
        if code:
            raise OSError(-code, "the recorder cannot begin", root)
    stand = Stand(adapter)
    line.say(pid=os.getpid())
    while (message := line.hear()) is not None:
        verb, arguments = message["verb"], message["arguments"]
        if verb == "exit":
            return
        if verb == "hold":  # nothing more is written from here on, also not by threads
            recorder.qi_record_hold()
            line.say(answer=None)
            continue
        try:
            answer = stand.call(verb, *arguments)
        except Exception as error:
            line.say(error=f"{type(error).__name__}: {error}")
        else:
            line.say(answer=answer)


def main() -> None:
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    begin = line.hear()
    if begin is None:
        return
    sys.path[:] = begin["path"]
    try:
        adapter = load(begin["module"], begin["file"], begin["name"])
    except Exception as error:
        line.say(error=f"{type(error).__name__}: {error}")
        return
    line.say(ready=True)
    while (message := line.hear()) is not None:
        pid = os.fork()
        if pid == 0:
            try:
                live(line, adapter, message["root"], message["record"])
            finally:
                os._exit(0)  # no exit handlers: a queue that needs them was not closed
        line.say(ended=os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
