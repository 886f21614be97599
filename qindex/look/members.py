"""The option --member of all commands that read a dead node: other nodes of its cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from qindex.look.screen import CommandError


def add_members(
    parser: argparse.ArgumentParser, option: str = "--member", cluster: str = "the same RabbitMQ"
) -> None:
    parser.add_argument(
        option,
        metavar="DIR",
        action="append",
        default=[],
        help=f"also read this directory of another node of {cluster} cluster; of each quorum "
        "queue the most complete log is taken. May be given several times",
    )


def refuse_members(members: Sequence[str], path: str) -> None:
    """CommandError: what is at `path` is no node of a cluster, and `members` would say nothing."""
    if members:
        raise CommandError(f"--member is for RabbitMQ nodes: {path!r} is none")
