"""How a client comes in over AMQP: it says who it is, then which virtual host it wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from qindex.amqp.events import Login, Open
from qindex.broker.errors import NotAllowed, VHostDown
from qindex.serve.logins import TOO_MANY, Verdict, credentials

if TYPE_CHECKING:
    from qindex.serve.session import Session

_REFUSED: Final = (
    "Login was refused using authentication mechanism {}. For details see the broker logfile."
)


def login(session: Session, event: Login) -> None:
    """Let the client in, or not; if that takes a digest, what it sends behind it waits."""
    found = credentials(event.mechanism, event.response)
    if found is None:
        text = f"unknown authentication mechanism '{event.mechanism}'"
        session.all(session.connection.fail(503, text))
        return
    verdict = session.server.logins.at_once(found, session.address)
    if verdict is not None:
        _answer(session, event, found.user, verdict)
        return
    session.wait_for(event)

    def checked(answer: asyncio.Future[Verdict]) -> None:
        if session.connection.waits_for_owner and not session.closed and not answer.cancelled():
            _answer(session, event, found.user, answer.result())
            session.go_on()

    session.server.logins.check(found, session.address).add_done_callback(checked)


def _answer(session: Session, event: Login, user: str, verdict: Verdict) -> None:
    if verdict is Verdict.RIGHT:
        session.user = user
        session.connection.accept_login()
        return
    text = TOO_MANY if verdict is Verdict.WAIT else _REFUSED.format(event.mechanism)
    session.all(session.connection.refuse_login(text))


def open_vhost(session: Session, event: Open) -> None:
    """The virtual host, if the user may enter it."""
    node = session.server.node
    try:
        vhost = node.vhost(event.vhost)
        node.users.rights(session.user, event.vhost)
    except NotAllowed as error:
        session.all(session.connection.fail(530, str(error)))
    except VHostDown as error:
        session.all(session.connection.fail(541, str(error)))
    else:
        session.vhost = vhost
        session.connection.accept_open()
        session.server.negotiated(session)
