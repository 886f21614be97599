"""A request as the API's functions see it: who asks, about what, and what that user may do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from qindex.broker.errors import NotAllowed, NotFound
from qindex.broker.queues import Queue
from qindex.broker.users import Rights
from qindex.broker.vhost import VHost
from qindex.serve.http import shapes
from qindex.serve.http.door import NOTE, SERVER, USER, json_of
from qindex.serve.http.given import PAGE_MAX, PAGES_MAX, check_known, whole
from qindex.serve.http.sessions import TOKEN
from qindex.serve.server import Server
from qindex.serve.session import Session

SEES_ALL: Final = frozenset({"monitoring", "administrator"})
NAME_BYTES_MAX: Final = 255
_OWN: Final = "/api/qindex/"
_DOTS: Final = re.compile(r"~+\.{1,2}")
TRUE: Final = frozenset({"true", "1"})
FALSE: Final = frozenset({"false", "0"})


def check_name(name: str) -> None:
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"a name or routing key may have {NAME_BYTES_MAX} bytes")


def part_of(request: web.Request, name: str) -> str:
    """A part of the path. From the page, and below /api/qindex, "~." stands for the name ".".

    Browsers take "." and ".." out of a path, however they are encoded. "~~." is the name "~.".
    """
    found: str = request.match_info[name]
    is_guarded = request.path.startswith(_OWN) or TOKEN in request.headers
    return found[1:] if is_guarded and _DOTS.fullmatch(found) else found


class Asked:
    """A request with what it names: the user, the virtual host and what it may do there."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.server: Server = request.app[SERVER]
        self.user: str = request[USER]
        self.tags = frozenset(self.server.node.users.tags(self.user))

    def part(self, name: str) -> str:
        """A name in the path. ValueError: AMQP could not have it."""
        found = part_of(self.request, name)
        if name in ("name", "source"):
            check_name(found)
        return found

    def query(self, name: str, default: str = "") -> str:
        return self.request.query.get(name, default)

    def flag(self, name: str) -> bool:
        """What a change depends on: a spelling that is not known may mean the opposite."""
        value = self.query(name, "false")
        if value not in TRUE | FALSE:
            raise ValueError(f"{name} is true or false, or 1 or 0")
        return value in TRUE

    def check_query(self, known: Sequence[str]) -> None:
        """Of a request that changes something: each parameter is known, and given once."""
        query = self.request.query
        check_known(query, known, "query")
        for name in known:
            if len(query.getall(name, [])) > 1:
                raise ValueError(f"{name} is given more than once")

    def check_page(self) -> None:
        """Of any list: also one that has no pages does not take what cannot be one."""
        for name, most in (("page", PAGES_MAX), ("page_size", PAGE_MAX)):
            if name in self.request.query:
                whole(self.query(name), name, most, 1)

    def seen(self) -> list[str]:
        """The names of the virtual hosts that the user may see."""
        node = self.server.node
        seen = node.users.permissions(user=self.user)
        sees_all = SEES_ALL & self.tags
        return [name for name in node.vhosts if sees_all or name in seen]

    def vhosts(self) -> list[VHost]:
        """Those that the user may see, without those that are down."""
        return self.server.node.standing(self.seen())

    def down(self) -> dict[str, str]:
        """Which of those that the user may see are down, and why."""
        self.vhosts()
        node = self.server.node
        return {name: node.down[name] for name in self.seen() if name in node.down}

    def vhost(self) -> VHost:
        """The one that the path names. NotFound; VHostDown."""
        name = self.part("vhost")
        if name not in self.server.node.vhosts:
            raise NotFound("Not Found")
        found = self.server.node.vhost(name)
        if not SEES_ALL & self.tags:
            self.rights()
        return found

    def rights(self) -> Rights:
        """What the user may do in the virtual host of the path; NotAllowed."""
        return self.server.node.users.rights(self.user, self.part("vhost"))

    def queue(self) -> tuple[VHost, Queue]:
        vhost = self.vhost()
        found = vhost.queues.get(self.part("name"))
        if found is None:
            raise NotFound("Not Found")
        return vhost, found

    def must_administer(self) -> None:
        if "administrator" not in self.tags:
            raise NotAllowed("User not authorised to perform this action: needs administrator")

    def note(self, text: str) -> None:
        """For the audit log, what the path does not say: how many, from where to where."""
        self.request[NOTE] = text

    async def json(self) -> dict[str, Any]:
        return await json_of(self.request)

    def sessions(self) -> list[Session]:
        """The connections that the user may see."""
        sees_all = SEES_ALL & self.tags
        return [each for each in self.server.sessions if sees_all or each.user == self.user]

    def in_vhosts(self) -> list[VHost]:
        """The virtual host of the path, or all that the user may see."""
        return [self.vhost()] if "vhost" in self.request.match_info else self.vhosts()


def answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, text=shapes.to_json(value), content_type="application/json")
