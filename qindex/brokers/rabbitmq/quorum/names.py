"""Which queue a server of Ra is a member of: the best source first.

1. The server's file `config`: the machine's queue_resource, or whom it tells that it became leader.
2. The log itself: the settings that its second entry holds.
3. Its name, "VHOST_QUEUE", with "%2F" for the virtual host "/". Both may have a "_": only a queue
   that is defined can be told from it, by its own name made the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

from qindex.brokers.rabbitmq.erlang import ErlangError
from qindex.brokers.rabbitmq.quorum.entries import read_step
from qindex.brokers.rabbitmq.ra.system import Server

Name: TypeAlias = "tuple[bytes, bytes]"  # virtual host, queue
_ENTRIES: Final = 16


def name_of(server: Server, defined: Iterable[Name]) -> Name | None:
    """Virtual host and name; None if nothing tells them."""
    config = server.config or {}
    match config.get("machine"):
        case ("module", _, dict(settings)):
            found = in_settings(settings)
            if found is not None:
                return found
    match config.get("metrics_key"):
        case ("resource", bytes(vhost), "queue", bytes(name)):
            return vhost, name
    return _in_log(server) or _defined(server.name, defined)


def in_settings(settings: dict[Any, Any]) -> Name | None:
    """Of the settings of a machine."""
    match settings.get("queue_resource"):
        case ("resource", bytes(vhost), "queue", bytes(name)):
            return vhost, name
    match settings.get("become_leader_handler"):
        case (_, _, [("resource", bytes(vhost), "queue", bytes(name)), *_]):
            return vhost, name
    return None


def _in_log(server: Server) -> Name | None:
    for entry in islice(server.log.entries(), _ENTRIES):
        with contextlib.suppress(ErlangError):
            match read_step(entry).command:
                case ("update_config", dict(settings)):
                    found = in_settings(settings)
                    if found is not None:
                        return found
    return None


def _defined(server_name: str | None, defined: Iterable[Name]) -> Name | None:
    if server_name is None:
        return None
    fitting = [each for each in defined if server_name_of(*each) == server_name]
    return fitting[0] if len(fitting) == 1 else None


def server_name_of(vhost: bytes, name: bytes) -> str:
    """What RabbitMQ calls the servers of a queue, unless the name is too long for that."""
    shown = "%2F" if vhost == b"/" else vhost.decode("utf-8", "surrogateescape")
    return f"{shown}_{name.decode('utf-8', 'surrogateescape')}"
