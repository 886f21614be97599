"""Users, permissions, virtual hosts and definitions over HTTP: for administrators."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from qindex.broker.errors import NotFound, NotThere
from qindex.broker.users import EVERYTHING, Permission
from qindex.serve import definitions
from qindex.serve.administration import Administration
from qindex.serve.commands import carry_out
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked
from qindex.serve.http.given import text


def _do(asked: Asked, command: str, *arguments: str, vhost: str = "/") -> None:
    """As `qindex ctl` does it."""
    carry_out(Administration(asked.server.node, asked.server, vhost), command, list(arguments))


# --- virtual hosts ------------------------------------------------------------------------------


def _vhost(asked: Asked, part: str = "vhost") -> str:
    asked.must_administer()
    name = asked.part(part)
    if name not in asked.server.node.vhosts:
        raise NotFound("Not Found")
    return name


async def put_vhost(asked: Asked) -> web.Response:
    """Whoever makes one may do everything in it, as in RabbitMQ."""
    asked.must_administer()
    name = asked.part("vhost")
    if (await asked.json()).get("tracing") in (True, "true"):
        raise NotThere("tracing is not there")
    if name in asked.server.node.vhosts:
        return web.Response(status=204)
    _do(asked, "add_vhost", name)
    asked.server.node.users.set_permissions(name, asked.user, EVERYTHING)
    return web.Response(status=201)


async def delete_vhost(asked: Asked) -> web.Response:
    _do(asked, "delete_vhost", _vhost(asked))
    return web.Response(status=204)


# --- users --------------------------------------------------------------------------------------


def _user(asked: Asked) -> str:
    asked.must_administer()
    name = asked.part("user")
    if name not in asked.server.node.users:
        raise NotFound("Not Found")
    return name


async def users(asked: Asked) -> Any:
    asked.must_administer()
    found = asked.server.node.users
    return [definitions.user(found, name) for name in found.names()]


async def user(asked: Asked) -> Any:
    return definitions.user(asked.server.node.users, _user(asked))


async def put_user(asked: Asked) -> web.Response:
    asked.must_administer()
    node, name, given = asked.server.node, asked.part("user"), await asked.json()
    is_new = name not in node.users
    node.change(definitions.user_entry(node.users, name, given))
    return web.Response(status=201 if is_new else 204)


async def delete_user(asked: Asked) -> web.Response:
    _do(asked, "delete_user", _user(asked))
    return web.Response(status=204)


# --- permissions --------------------------------------------------------------------------------


def _permissions(asked: Asked, *, user: str | None = None, vhost: str | None = None) -> Any:
    found = asked.server.node.users.permissions(user=user, vhost=vhost)
    return [
        {"user": user or name, "vhost": vhost or name, **permission._asdict()}
        for name, permission in found.items()
    ]


async def permissions(asked: Asked) -> Any:
    asked.must_administer()
    names = asked.server.node.users.names()
    return [row for name in names for row in _permissions(asked, user=name)]


async def permissions_of_user(asked: Asked) -> Any:
    return _permissions(asked, user=_user(asked))


async def permissions_in_vhost(asked: Asked) -> Any:
    return _permissions(asked, vhost=_vhost(asked))


async def permission(asked: Asked) -> Any:
    vhost = _vhost(asked)
    for row in _permissions(asked, user=_user(asked)):
        if row["vhost"] == vhost:
            return row
    raise NotFound("Not Found")


async def put_permission(asked: Asked) -> web.Response:
    vhost, name, given = _vhost(asked), _user(asked), await asked.json()
    patterns = [text(given, verb) for verb in Permission._fields]
    users = asked.server.node.users
    is_new = vhost not in users.permissions(user=name)
    users.set_permissions(vhost, name, Permission(*patterns))
    return web.Response(status=201 if is_new else 204)


async def delete_permission(asked: Asked) -> web.Response:
    await permission(asked)
    _do(asked, "clear_permissions", asked.part("user"), vhost=asked.part("vhost"))
    return web.Response(status=204)


# --- definitions --------------------------------------------------------------------------------


async def export(asked: Asked) -> Any:
    asked.must_administer()
    return definitions.exported(asked.server.node)


async def export_vhost(asked: Asked) -> Any:
    return definitions.exported_vhost(asked.server.node.vhost(_vhost(asked)))


async def take_in(asked: Asked) -> web.Response:
    asked.must_administer()
    definitions.take_in(asked.server.node, await asked.json())
    return web.Response(status=204)


async def take_in_vhost(asked: Asked) -> web.Response:
    vhost = _vhost(asked)
    definitions.take_in(asked.server.node, await asked.json(), vhost)
    return web.Response(status=204)


# --- what is not there --------------------------------------------------------------------------


async def none(asked: Asked) -> Any:
    """Of these there are none: their lists are empty."""
    shape: list[shapes.Shape] = []
    return shape


async def no_such(asked: Asked) -> Any:
    raise NotFound("Not Found")


async def none_left(asked: Asked) -> Any:
    """Taken away is what nobody can have set."""
    asked.must_administer()
    return web.Response(status=204)


_INSTEAD = {
    "policies": "give queues and exchanges their arguments instead",
    "operator-policies": "give queues their arguments instead",
    "topic-permissions": "permissions for exchanges and queues are",
    "queues": "there is one node, and no mirror",
    "federation-upstream": "let a program consume there and publish here",
    "shovel": "let a program consume there and publish here",
}


async def not_there(asked: Asked) -> Any:
    """Refused in words, which rabbitmqadmin prints."""
    what, part = [*asked.request.path.split("/"), ""][2:4]
    named = "a queue's actions" if what == "queues" else what
    if what == "parameters" and part in _INSTEAD:
        what, named = part, f"parameters {part}"
    hint = _INSTEAD.get(what)
    raise NotThere(f"{named} are not there{f': {hint}' if hint else ''}")
