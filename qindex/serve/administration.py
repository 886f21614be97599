"""What a command of an administrator works on, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qindex.broker.errors import Invalid
from qindex.broker.node import Node
from qindex.broker.vhost import VHost

if TYPE_CHECKING:
    from qindex.serve.server import Server
    from qindex.serve.session import Session


@dataclass(slots=True)
class Reply:
    """One line of text, and rows under columns if the command lists something."""

    text: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)


@dataclass(slots=True)
class Administration:
    """What a command works on."""

    node: Node
    server: Server | None = None
    vhost: str = "/"

    @property
    def sessions(self) -> list[Session]:
        if self.server is None:
            raise Invalid("the directory is not served")
        return self.server.sessions

    def open_vhost(self) -> VHost:
        self.node.check_vhost(self.vhost)
        return self.node.vhost(self.vhost)

    def end(self, why: str, *, user: str | None = None, vhost: str | None = None) -> None:
        """Close the connections of this user, or those to this virtual host."""
        for session in self.server.sessions if self.server is not None else ():
            if session.user == user or (vhost is not None and session.vhost_name == vhost):
                session.server.end(session, why)
