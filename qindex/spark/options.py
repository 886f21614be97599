"""The options of a read, as text, in the words of qindex. Needs no PySpark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from qindex.cli.messages import REQ_ID_MAX, STATES
from qindex.spark.examine import Limits
from qindex.spark.schema import columns_of
from qindex.spark.tables import LOST, Choice, default_names


def column_names(options: Mapping[str, str]) -> list[str]:
    """Of the option `columns`; ValueError if there is no such column."""
    table = options.get("table", "messages")
    told = options.get("columns")
    if told is None:
        columns_of(table)
        return default_names(table)
    if told.strip() == "*":
        return [column.name for column in columns_of(table)]
    return _words(told)


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Of the options path and paths, in lower case. ValueError: there is neither."""
    paths = [str(path) for path in json.loads(options.get("paths", "[]"))]
    if path := options.get("path"):
        paths.append(path)
    if not paths:
        raise ValueError('where to read from is not told: .load("/brokers/*")')
    return paths


def choice_of(options: Mapping[str, str]) -> Choice:
    """Of options in lower case; ValueError says which of them makes no sense."""
    states = frozenset(_words(options.get("states", ",".join(STATES))))
    if unknown := states - {*STATES, LOST}:
        raise ValueError(f"states: {', '.join(unknown)} is none of {', '.join(STATES)}, {LOST}")
    return Choice(
        queues=tuple(_words(options.get("queues", ""))),
        vhosts=tuple(_words(options.get("vhosts", ""))),
        states=states,
        first=int(options.get("minreqid", 0)),
        last=int(options.get("maxreqid", REQ_ID_MAX)),
        expires_after_us=_time_us(options.get("expiresafter")),
        expires_before_us=_time_us(options.get("expiresbefore")),
    )


def limits_of(options: Mapping[str, str]) -> Limits:
    """Of options in lower case."""
    usual = Limits()
    return Limits(
        stuck_behind=int(options.get("stuckbehind", usual.stuck_behind)),
        poison_deliveries=int(options.get("poisondeliveries", usual.poison_deliveries)),
        check_bodies=options.get("checkbodies", "true").lower() != "false",
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _time_us(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(float(text) * 1e6)
    except ValueError:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1e6)
