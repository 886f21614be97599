"""The log of a server: one line for each event, as text or as JSON, to stderr or to a file.

What clients send may be in it (names of users, queues, hosts), so that everything that could steer
a terminal, or look like another line, is escaped; in a text log, lines of a traceback begin with
"  | ". Bodies and passwords are never logged.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Final

from qindex.look.text import printable
from qindex.private import FILE_MODE
from qindex.serve.settings import Settings

AUDITED: Final = ("qindex.audit", "qindex.control")
"""Loggers that say what administrators have done: over HTTP, and by `qindex ctl`."""
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.message = printable(record.getMessage())
        record.asctime = self.formatTime(record)
        parts = [self.formatMessage(record)]
        if record.exc_info:
            parts.append(_behind(self.formatException(record.exc_info)))
        if record.stack_info:
            parts.append(_behind(record.stack_info))
        return "\n".join(parts)


def _behind(text: str) -> str:
    """Lines with foreign text in them, so that they look like no event of their own."""
    return "\n".join(f"  | {printable(line)}" for line in text.splitlines())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        told = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told)


class Logs:
    """The handlers of the process. reopen() is for logrotate, which has moved the file."""

    def __init__(self) -> None:
        self._handler: logging.Handler | None = None
        self._audit: logging.Handler | None = None

    def reopen(self, settings: Settings) -> None:
        """Log as the settings say from now on. OSError: as before."""
        audit = _file(settings.audit_file) if settings.audit_file else None
        try:
            is_file = settings.log_file
            handler = _file(settings.log_file) if is_file else logging.StreamHandler(sys.stderr)
        except OSError:
            if audit is not None:
                audit.close()
            raise
        handler.setLevel(settings.log.upper())
        self.close()
        for each in (handler, audit):
            if each is not None:
                each.setFormatter(_Json() if settings.log_format == "json" else _Text())
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(settings.log.upper())
        for name in AUDITED:
            logger = logging.getLogger(name)
            logger.setLevel(logging.NOTSET if audit is None else logging.INFO)
            if audit is not None:
                logger.addHandler(audit)
        self._handler, self._audit = handler, audit

    def close(self) -> None:
        """Take the handler away again."""
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
            self._handler = None
        if self._audit is not None:
            for name in AUDITED:
                logging.getLogger(name).removeHandler(self._audit)
                logging.getLogger(name).setLevel(logging.NOTSET)
            self._audit.close()
            self._audit = None


def _file(path: str) -> logging.Handler:
    # A new file is for its owner only. One that somebody has made keeps its mode.
    os.close(os.open(path, _MAKE, FILE_MODE))
    return logging.FileHandler(path, encoding="utf-8", errors="replace")
