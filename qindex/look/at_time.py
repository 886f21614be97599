"""The option --at-time of all commands that say what has expired, or leave it out."""

from __future__ import annotations

import argparse
import time

from qindex.look.text import moment


def add_at_time(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-time",
        metavar="WHEN",
        type=moment,
        help="decide as of this time, not as of now, what has expired: 2026-11-23T05:00Z, or "
        "seconds since 1970",
    )


def now_us(at_time: float | None) -> float:
    """Microseconds since 1970: of the moment that counts as now."""
    return (time.time() if at_time is None else at_time) * 1e6
