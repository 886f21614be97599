"""What an administrator can ask a node, with the words of rabbitmqctl.

Each command is a function of the administration and its arguments, and returns a Reply. Without a
server (the directory is not served) commands about users, virtual hosts and queues work, too.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import qindex
from qindex.broker.errors import Invalid
from qindex.broker.node import Node
from qindex.broker.users import Permission
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


def carry_out(admin: Administration, command: str, arguments: list[str]) -> Reply:
    """Invalid: what is asked for cannot be, and nothing was changed."""
    found = COMMANDS.get(command)
    if found is None:
        raise Invalid(f"there is no command {command!r}; there are {', '.join(sorted(COMMANDS))}")
    return found.call(admin, found.checked(command, arguments))


# --- users --------------------------------------------------------------------------------------


def _add_user(admin: Administration, given: list[str]) -> Reply:
    admin.node.users.add(*given)
    return Reply(
        f'Adding user "{given[0]}" ... Done. Don\'t forget to grant the user permissions to some '
        "virtual hosts! See set_permissions."
    )


def _change_password(admin: Administration, given: list[str]) -> Reply:
    admin.node.users.change_password(*given)
    return Reply(f'Changing password for user "{given[0]}" ...')


def _authenticate_user(admin: Administration, given: list[str]) -> Reply:
    if not admin.node.users.may_enter(*given, is_local=True):
        raise Invalid(f'Failed to authenticate user "{given[0]}"')
    return Reply(f'Authenticating user "{given[0]}" ... Success')


def _delete_user(admin: Administration, given: list[str]) -> Reply:
    admin.node.users.delete(*given)
    admin.end(f"user '{given[0]}' was deleted", user=given[0])
    return Reply(f'Deleting user "{given[0]}" ...')


def _set_user_tags(admin: Administration, given: list[str]) -> Reply:
    admin.node.users.set_tags(given[0], given[1:])
    return Reply(f'Setting tags for user "{given[0]}" to [{", ".join(given[1:])}] ...')


def _list_users(admin: Administration, given: list[str]) -> Reply:
    users = admin.node.users
    rows = [[name, users.tags(name)] for name in users.names()]
    return Reply("Listing users ...", ["user", "tags"], rows)


# --- permissions --------------------------------------------------------------------------------


def _set_permissions(admin: Administration, given: list[str]) -> Reply:
    admin.node.check_vhost(admin.vhost)
    user, *patterns = given
    admin.node.users.set_permissions(admin.vhost, user, Permission(*patterns))
    return Reply(f'Setting permissions for user "{user}" in vhost "{admin.vhost}" ...')


def _clear_permissions(admin: Administration, given: list[str]) -> Reply:
    admin.node.check_vhost(admin.vhost)
    admin.node.users.clear_permissions(admin.vhost, *given)
    return Reply(f'Clearing permissions for user "{given[0]}" in vhost "{admin.vhost}" ...')


def _list_permissions(admin: Administration, given: list[str]) -> Reply:
    admin.node.check_vhost(admin.vhost)
    found = admin.node.users.permissions(vhost=admin.vhost)
    rows: list[list[Any]] = [[user, *permission] for user, permission in found.items()]
    text = f'Listing permissions for vhost "{admin.vhost}" ...'
    return Reply(text, ["user", "configure", "write", "read"], rows)


def _list_user_permissions(admin: Administration, given: list[str]) -> Reply:
    admin.node.users.tags(*given)
    found = admin.node.users.permissions(user=given[0])
    rows: list[list[Any]] = [[vhost, *permission] for vhost, permission in found.items()]
    text = f'Listing permissions for user "{given[0]}" ...'
    return Reply(text, ["vhost", "configure", "write", "read"], rows)


# --- virtual hosts ------------------------------------------------------------------------------


def _add_vhost(admin: Administration, given: list[str]) -> Reply:
    admin.node.add_vhost(*given)
    return Reply(f'Adding vhost "{given[0]}" ...')


def _delete_vhost(admin: Administration, given: list[str]) -> Reply:
    admin.node.check_vhost(*given)
    admin.end(f"vhost '{given[0]}' is deleted", vhost=given[0])
    admin.node.delete_vhost(*given)
    return Reply(f'Deleting vhost "{given[0]}" ...')


def _list_vhosts(admin: Administration, given: list[str]) -> Reply:
    return Reply("Listing vhosts ...", ["name"], [[name] for name in admin.node.vhosts])


# --- queues, connections ------------------------------------------------------------------------

_QUEUE_COLUMNS: Final[dict[str, Callable[[VHost, Any], Any]]] = {
    "name": lambda vhost, queue: queue.name,
    "messages": lambda vhost, queue: len(queue) + queue.unacked,
    "messages_ready": lambda vhost, queue: len(queue),
    "messages_unacknowledged": lambda vhost, queue: queue.unacked,
    "consumers": lambda vhost, queue: len(queue.consumers),
    "durable": lambda vhost, queue: queue.durable,
    "auto_delete": lambda vhost, queue: queue.auto_delete,
    "exclusive": lambda vhost, queue: queue.owner is not None,
    "arguments": lambda vhost, queue: queue.arguments,
    "type": lambda vhost, queue: "quorum" if queue.limits.is_quorum else "classic",
    "state": lambda vhost, queue: "arriving" if queue.name in vhost.arriving else "running",
}
_CONNECTION_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "pid": lambda session: f"<qindex.{session.number}>",
    "name": lambda session: session.peer,
    "user": lambda session: session.user,
    "peer_host": lambda session: session.peer.rpartition(":")[0],
    "peer_port": lambda session: session.peer.rpartition(":")[2],
    "vhost": lambda session: session.vhost_name,
    "state": lambda session: session.state,
    "channels": lambda session: session.channel_count,
    "recv_oct": lambda session: session.received,
    "send_oct": lambda session: session.sent,
    "timeout": lambda session: session.connection.heartbeat,
    "client_properties": lambda session: session.connection.client,
}


def _columns(given: list[str], default: list[str], known: dict[str, Any]) -> list[str]:
    for name in given:
        if name not in known:
            raise Invalid(f"there is no column {name!r}; there are {', '.join(known)}")
    return given or default


def _list_queues(admin: Administration, given: list[str]) -> Reply:
    columns = _columns(given, ["name", "messages"], _QUEUE_COLUMNS)
    vhost = admin.open_vhost()
    rows = [
        [_QUEUE_COLUMNS[column](vhost, queue) for column in columns]
        for _, queue in sorted(vhost.queues.items())
    ]
    return Reply(f"Listing queues for vhost {admin.vhost} ...", columns, rows)


def _purge_queue(admin: Administration, given: list[str]) -> Reply:
    vhost = admin.open_vhost()
    queue = vhost.queues.get(given[0])
    if queue is None or given[0] in vhost.arriving:
        raise Invalid(f"queue {given[0]!r} is not there, or not in yet")
    count = queue.purge()
    return Reply(f"Purging queue '{given[0]}' in vhost '{admin.vhost}' ... {count} messages")


def _delete_queue(admin: Administration, given: list[str]) -> Reply:
    vhost = admin.open_vhost()
    queue = vhost.queues.get(given[0])
    if queue is None or given[0] in vhost.arriving:
        raise Invalid(f"queue {given[0]!r} is not there, or not in yet")
    count = vhost.delete_queue(given[0], queue.owner)
    return Reply(f"Deleting queue '{given[0]}' on vhost '{admin.vhost}' ... {count} messages")


def _list_connections(admin: Administration, given: list[str]) -> Reply:
    default = ["pid", "user", "peer_host", "peer_port", "state"]
    columns = _columns(given, default, _CONNECTION_COLUMNS)
    rows = [
        [_CONNECTION_COLUMNS[column](session) for column in columns]
        for session in sorted(admin.sessions, key=lambda each: each.number)
    ]
    return Reply("Listing connections ...", columns, rows)


def _close_connection(admin: Administration, given: list[str]) -> Reply:
    name, why = given
    for session in admin.sessions:
        if name in (f"<qindex.{session.number}>", str(session.number), session.peer):
            session.server.end(session, why)
            return Reply(f"Closing connection {name}, reason: {why} ...")
    raise Invalid(f"there is no connection {name}; list_connections has their pids")


def _status(admin: Administration, given: list[str]) -> Reply:
    node = admin.node
    rows: list[list[Any]] = [
        ["version", qindex.__version__],
        ["python", platform.python_version()],
        ["directory", str(node.directory or "memory")],
        ["vhosts", len(node.vhosts)],
        ["served", admin.server is not None],
    ]
    if admin.server is not None:
        rows += [["os_pid", os.getpid()], *admin.server.status()]
    return Reply("Status of node ...", ["key", "value"], rows)


def _reload(admin: Administration, given: list[str]) -> Reply:
    if admin.server is None:
        raise Invalid("the directory is not served")
    admin.server.on_reload()
    return Reply("Reopening logs and reading the configuration again ...")


@dataclass(frozen=True, slots=True)
class _Command:
    call: Callable[[Administration, list[str]], Reply]
    least: int  # arguments
    most: int
    usage: str

    def checked(self, name: str, arguments: list[str]) -> list[str]:
        if not self.least <= len(arguments) <= self.most:
            raise Invalid(f"usage: {name} {self.usage}".rstrip())
        return arguments


_ANY: Final = 100
COMMANDS: Final = {
    "add_user": _Command(_add_user, 2, 2, "USER PASSWORD"),
    "authenticate_user": _Command(_authenticate_user, 2, 2, "USER PASSWORD"),
    "change_password": _Command(_change_password, 2, 2, "USER PASSWORD"),
    "delete_user": _Command(_delete_user, 1, 1, "USER"),
    "set_user_tags": _Command(_set_user_tags, 1, _ANY, "USER [TAG ...]"),
    "list_users": _Command(_list_users, 0, 0, ""),
    "set_permissions": _Command(_set_permissions, 4, 4, "[-p VHOST] USER CONFIGURE WRITE READ"),
    "clear_permissions": _Command(_clear_permissions, 1, 1, "[-p VHOST] USER"),
    "list_permissions": _Command(_list_permissions, 0, 0, "[-p VHOST]"),
    "list_user_permissions": _Command(_list_user_permissions, 1, 1, "USER"),
    "add_vhost": _Command(_add_vhost, 1, 1, "VHOST"),
    "delete_vhost": _Command(_delete_vhost, 1, 1, "VHOST"),
    "list_vhosts": _Command(_list_vhosts, 0, 0, ""),
    "list_queues": _Command(_list_queues, 0, _ANY, "[-p VHOST] [COLUMN ...]"),
    "purge_queue": _Command(_purge_queue, 1, 1, "[-p VHOST] QUEUE"),
    "delete_queue": _Command(_delete_queue, 1, 1, "[-p VHOST] QUEUE"),
    "list_connections": _Command(_list_connections, 0, _ANY, "[COLUMN ...]"),
    "close_connection": _Command(_close_connection, 2, 2, "PID WHY"),
    "status": _Command(_status, 0, 0, ""),
    "reload": _Command(_reload, 0, 0, ""),
}
WITH_PASSWORD: Final = frozenset({"add_user", "authenticate_user", "change_password"})
