"""The API's smaller questions: one node, connection or channel, and bindings between two ends."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from qindex.broker.errors import NotFound, NotThere
from qindex.broker.exchanges import EXCHANGE, QUEUE
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.session import Session


async def node(asked: Asked) -> Any:
    if asked.part("name") != shapes.node_name(asked.server):
        raise NotFound("Not Found")
    return shapes.node(asked.server)


async def cluster_name(asked: Asked) -> Any:
    return {"name": asked.server.properties()["cluster_name"]}


async def put_cluster_name(asked: Asked) -> Any:
    raise NotThere("the cluster's name is the machine's, and cannot be set: there is one node")


# --- connections and channels -------------------------------------------------------------------


async def connection(asked: Asked) -> Any:
    return shapes.connection(asked.server, _session(asked))


def _session(asked: Asked) -> Session:
    name = asked.part("name")
    for session in asked.sessions():
        if session.peer == name:
            return session
    raise NotFound("Not Found")


async def channel(asked: Asked) -> Any:
    for row in _channels(asked, asked.sessions()):
        if row["name"] == asked.part("name"):
            return row
    raise NotFound("Not Found")


async def channels_of_connection(asked: Asked) -> Any:
    return _channels(asked, [_session(asked)])


async def connections_in_vhost(asked: Asked) -> Any:
    return [shapes.connection(asked.server, each) for each in _in_vhost(asked)]


async def channels_in_vhost(asked: Asked) -> Any:
    return _channels(asked, _in_vhost(asked))


def _in_vhost(asked: Asked) -> list[Session]:
    name = asked.vhost().name
    return [session for session in asked.sessions() if session.vhost_name == name]


def _channels(asked: Asked, sessions: list[Session]) -> list[shapes.Shape]:
    return [
        shapes.channel(asked.server, session, channel)
        for session in sessions
        for channel in session.channels
    ]


# --- bindings -----------------------------------------------------------------------------------


def _bindings(asked: Asked, **wanted: str) -> list[shapes.Shape]:
    """Those of the path's virtual host that have these values."""
    vhost = asked.vhost()
    rows = (shapes.binding(vhost, *each) for each in shapes.bindings(vhost))
    wanted = {name: shapes.plain(value) for name, value in wanted.items()}
    return [row for row in rows if wanted.items() <= row.items()]


async def bindings_between(asked: Asked) -> Any:
    kind = QUEUE if asked.part("kind") == "q" else EXCHANGE
    source, name = asked.part("source"), asked.part("name")
    source = "" if source == "amq.default" else source
    asked.vhost().exchange(source)
    return _bindings(asked, source=source, destination=name, destination_type=kind)


async def binding(asked: Asked) -> Any:
    for row in await bindings_between(asked):
        if unquote(row["properties_key"]) == unquote(asked.part("key")):
            return row
    raise NotFound("Not Found")


async def bindings_of_exchange(asked: Asked) -> Any:
    """From it (/source), or to it (/destination)."""
    name = asked.part("name")
    asked.vhost().exchange(name)
    if asked.part("end") == "source":
        return _bindings(asked, source=name)
    return _bindings(asked, destination=name, destination_type=EXCHANGE)
