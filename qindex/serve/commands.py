"""What an administrator can ask a node, with the words of rabbitmqctl.

Each command is a function of the administration and its arguments, and returns a Reply. Without a
server (the directory is not served) commands about users, virtual hosts and queues work, too.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import qindex
from qindex import strict_json
from qindex.broker.errors import Invalid
from qindex.broker.users import Permission
from qindex.serve import definitions
from qindex.serve.administration import Administration, Reply
from qindex.serve.listings import (
    list_bindings,
    list_channels,
    list_connections,
    list_consumers,
    list_exchanges,
    list_queues,
)


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


def _clear_password(admin: Administration, given: list[str]) -> Reply:
    admin.node.users.clear_password(*given)
    return Reply(f'Clearing password for user "{given[0]}" ...')


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
    """One that is there stays as it is, as in RabbitMQ."""
    if given[0] not in admin.node.vhosts:
        admin.node.add_vhost(*given)
    return Reply(f'Adding vhost "{given[0]}" ...')


def _delete_vhost(admin: Administration, given: list[str]) -> Reply:
    admin.node.check_vhost(*given)
    admin.end(f"vhost '{given[0]}' is deleted", vhost=given[0])
    admin.node.delete_vhost(*given)
    return Reply(f'Deleting vhost "{given[0]}" ...')


def _list_vhosts(admin: Administration, given: list[str]) -> Reply:
    columns = given or ["name"]
    if not {"name", "tracing"} >= set(columns):
        raise Invalid("the columns of virtual hosts are name and tracing")
    rows = [
        [name if column == "name" else False for column in columns] for name in admin.node.vhosts
    ]
    return Reply("Listing vhosts ...", columns, rows)


# --- queues, connections, the server --------------------------------------------------------------


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


def _close_connection(admin: Administration, given: list[str]) -> Reply:
    name, why = given
    for session in admin.sessions:
        if name in (f"<qindex.{session.number}>", str(session.number), session.peer):
            session.server.end(session, why)
            return Reply(f"Closing connection {name}, reason: {why} ...")
    raise Invalid(f"there is no connection {name}; list_connections has their pids")


def _close_all_connections(admin: Administration, given: list[str]) -> Reply:
    """Those to the virtual host; RabbitMQ closes all unless one is named."""
    count = 0
    for session in admin.sessions:
        if session.vhost_name == admin.vhost:
            session.server.end(session, given[0])
            count += 1
    return Reply(f"Closing {count} connections to vhost {admin.vhost}, reason: {given[0]} ...")


def _export_definitions(admin: Administration, given: list[str]) -> Reply:
    text = strict_json.dumps(definitions.exported(admin.node), ensure_ascii=False, indent=1)
    return Reply("Exporting definitions in JSON ...", ["definitions"], [[text]])


def _import_definitions(admin: Administration, given: list[str]) -> Reply:
    try:
        found = strict_json.loads(given[0])
    except ValueError as error:
        raise Invalid(f"the definitions are no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Invalid("definitions are a JSON object")
    definitions.take_in(admin.node, found)
    return Reply("Importing definitions in JSON ... Done")


def _ping(admin: Administration, given: list[str]) -> Reply:
    if admin.server is None:
        raise Invalid("the directory is not served")
    return Reply("Ping succeeded")


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


def _none(what: str) -> Callable[[Administration, list[str]], Reply]:
    """Lists things of which there are none."""

    def listed(admin: Administration, given: list[str]) -> Reply:
        admin.node.check_vhost(admin.vhost)
        return Reply(f'Listing {what} for vhost "{admin.vhost}" ...')

    return listed


def _not_there(admin: Administration, given: list[str]) -> Reply:
    raise Invalid("that is not there: give queues and exchanges their arguments instead")


@dataclass(frozen=True, slots=True)
class _Command:
    call: Callable[[Administration, list[str]], Reply]
    least: int  # arguments
    most: int
    usage: str
    logged: int = 100  # arguments that may be in a log: no passwords, no definitions

    def checked(self, name: str, arguments: list[str]) -> list[str]:
        if not self.least <= len(arguments) <= self.most:
            raise Invalid(f"usage: {name} {self.usage}".rstrip())
        return arguments


_ANY: Final = 100
COMMANDS: Final = {
    "add_user": _Command(_add_user, 2, 2, "USER PASSWORD", 1),
    "authenticate_user": _Command(_authenticate_user, 2, 2, "USER PASSWORD", 1),
    "change_password": _Command(_change_password, 2, 2, "USER PASSWORD", 1),
    "clear_password": _Command(_clear_password, 1, 1, "USER"),
    "delete_user": _Command(_delete_user, 1, 1, "USER"),
    "set_user_tags": _Command(_set_user_tags, 1, _ANY, "USER [TAG ...]"),
    "list_users": _Command(_list_users, 0, 0, ""),
    "set_permissions": _Command(_set_permissions, 4, 4, "[-p VHOST] USER CONFIGURE WRITE READ"),
    "clear_permissions": _Command(_clear_permissions, 1, 1, "[-p VHOST] USER"),
    "list_permissions": _Command(_list_permissions, 0, 0, "[-p VHOST]"),
    "list_user_permissions": _Command(_list_user_permissions, 1, 1, "USER"),
    "add_vhost": _Command(_add_vhost, 1, 1, "VHOST"),
    "delete_vhost": _Command(_delete_vhost, 1, 1, "VHOST"),
    "list_vhosts": _Command(_list_vhosts, 0, 2, "[name] [tracing]"),
    "list_queues": _Command(list_queues, 0, _ANY, "[-p VHOST] [COLUMN ...]"),
    "purge_queue": _Command(_purge_queue, 1, 1, "[-p VHOST] QUEUE"),
    "delete_queue": _Command(_delete_queue, 1, 1, "[-p VHOST] QUEUE"),
    "list_connections": _Command(list_connections, 0, _ANY, "[COLUMN ...]"),
    "list_exchanges": _Command(list_exchanges, 0, _ANY, "[-p VHOST] [COLUMN ...]"),
    "list_bindings": _Command(list_bindings, 0, _ANY, "[-p VHOST] [COLUMN ...]"),
    "list_consumers": _Command(list_consumers, 0, _ANY, "[-p VHOST] [COLUMN ...]"),
    "list_channels": _Command(list_channels, 0, _ANY, "[COLUMN ...]"),
    "close_all_connections": _Command(_close_all_connections, 1, 1, "[-p VHOST] WHY"),
    "export_definitions": _Command(_export_definitions, 0, 0, "FILE", 0),
    "import_definitions": _Command(_import_definitions, 1, 1, "FILE", 0),
    **{
        f"list_{what}": _Command(_none(text), 0, 0, "[-p VHOST]")
        for what, text in (
            ("policies", "policies"),
            ("operator_policies", "operator policy overrides"),
            ("parameters", "runtime parameters"),
        )
    },
    **{
        f"{verb}_{what}": _Command(_not_there, 0, _ANY, "")
        for verb in ("set", "clear")
        for what in ("policy", "operator_policy", "parameter")
    },
    "ping": _Command(_ping, 0, 0, ""),
    "await_startup": _Command(_ping, 0, 0, ""),
    "close_connection": _Command(_close_connection, 2, 2, "PID WHY"),
    "status": _Command(_status, 0, 0, ""),
    "reload": _Command(_reload, 0, 0, ""),
    "rotate_logs": _Command(_reload, 0, 0, ""),
}
WITH_PASSWORD: Final = frozenset({"add_user", "authenticate_user", "change_password"})
