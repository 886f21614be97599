"""Definitions as RabbitMQ 3.10 exports them: users, virtual hosts, exchanges, queues, bindings.

What is taken in is looked at as a whole first: if a part of it cannot be, or is there already with
other properties, or a binding has no end, nothing is changed. Users, virtual hosts and permissions
are one change of the catalog then; exchanges, queues and bindings come one by one. If one of these
is refused all the same (an argument that its kind does not take, a full disk), the error says how
many were imported before it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import qindex
from qindex.broker.errors import Invalid, Refused
from qindex.broker.exchanges import EXCHANGE, QUEUE
from qindex.broker.node import Node
from qindex.broker.users import Changes, Permission, Users, check_patterns
from qindex.broker.vhost import VHost
from qindex.errors import QindexError
from qindex.serve.plain import plain

# Clients look at this for what they may ask, and what is in definitions.
RABBITMQ_VERSION: Final = "3.10.8"
Part = dict[str, Any]
_OF_RABBITMQ: Final = "rabbit_password_hashing_"
_NOT_THERE: Final = ("policies", "parameters", "topic_permissions", "operator_policies")


# --- out ----------------------------------------------------------------------------------------


def exported(node: Node) -> Part:
    """All of a node. Left out is what is not durable, as in RabbitMQ, and what nobody can declare:
    names that begin with amq., also those that the server has given to queues.
    """
    users = node.users
    vhosts = [node.vhost(name) for name in node.vhosts]
    own = [(vhost.name, exported_vhost(vhost)) for vhost in vhosts]
    return {
        **_head(),
        "users": [user(users, name) for name in users.names()],
        "vhosts": [{"name": name} for name in node.vhosts],
        "permissions": [
            {"user": name, "vhost": vhost, **permission._asdict()}
            for name in users.names()
            for vhost, permission in users.permissions(user=name).items()
        ],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [],
        "policies": [],
        **{
            part: [{**each, "vhost": name} for name, found in own for each in found[part]]
            for part in ("queues", "exchanges", "bindings")
        },
    }


def exported_vhost(vhost: VHost) -> Part:
    """What can be declared in one virtual host."""
    return {
        **_head(),
        "parameters": [],
        "policies": [],
        "queues": [
            {
                "name": plain(queue.name),
                "durable": True,
                "auto_delete": queue.auto_delete,
                "arguments": plain(queue.arguments),
            }
            for queue in vhost.queues.values()
            if queue.durable and not queue.name.startswith("amq.")
        ],
        "exchanges": [
            {
                "name": plain(found.name),
                "type": found.kind,
                "durable": True,
                "auto_delete": found.auto_delete,
                "internal": found.internal,
                "arguments": plain(found.arguments),
            }
            for found in vhost.exchanges.values()
            if found.durable and found.name and not found.name.startswith("amq.")
        ],
        "bindings": [
            {
                "source": plain(found.name),
                "destination": plain(binding.destination.name),
                "destination_type": binding.destination.kind,
                "routing_key": plain(binding.routing_key),
                "arguments": plain(arguments),
            }
            for found in vhost.exchanges.values()
            if found.durable
            for binding, arguments in found.bindings.items()
            if _is_durable(vhost, *binding.destination)
        ],
    }


def _head() -> Part:
    return {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "qindex",
        "product_version": qindex.__version__,
    }


def user(users: Users, name: str) -> Part:
    """A user with the digest of its password, as RabbitMQ shows it."""
    digest, algorithm = users.digest(name)
    return {
        "name": name,
        "password_hash": base64.b64encode(digest).decode(),
        "hashing_algorithm": _OF_RABBITMQ + algorithm,
        "tags": users.tags(name),
    }


def _is_durable(vhost: VHost, kind: str, name: str) -> bool:
    found: Any = (vhost.queues if kind == QUEUE else vhost.exchanges).get(name)
    return found is not None and bool(found.durable)


# --- in -----------------------------------------------------------------------------------------


class _Declare(NamedTuple):
    """An exchange, a queue or a binding that is to be: in which virtual host, and what it is."""

    vhost: str
    part: str
    name: str
    ends: list[tuple[str, str]]  # what a binding has to find: (kind, name)
    run: Callable[[VHost], None]


class _Steps(NamedTuple):
    """What an import does, when all of it was looked at."""

    of_node: Changes
    vhosts: set[str]  # that are there then
    declares: list[_Declare]


def take_in(node: Node, given: Part, into: str | None = None) -> None:
    """Take definitions in: all of them, or those of one virtual host, `into`. Invalid, Refused."""
    steps = _Steps({}, set(node.vhosts), [])
    for part in _NOT_THERE:
        if _list(given, part):
            raise Invalid(f"definitions have {part}, which are not there: take them out first")
    if into is None:
        _vhosts(node, given, steps)
        _users(node, given, steps)
        _permissions(node, given, steps)
    for part, make in (("exchanges", _exchange), ("queues", _queue), ("bindings", _binding)):
        for each in _list(given, part):
            vhost = into if into is not None else _text(each, "vhost")
            if vhost not in steps.vhosts:
                raise Invalid(f'{part}: virtual host "{vhost}" does not exist')
            steps.declares.append(_Declare(vhost, part, *make(each)))
    _check_declares(node, steps.declares)
    if steps.of_node:
        node.change(steps.of_node)
    _declare_all(node, steps.declares)


def _check_declares(node: Node, declares: list[_Declare]) -> None:
    """Refused: one of them is there with other properties, or a binding has no end."""
    new = {(each.vhost, kind, name) for each in declares for kind, name in _makes(each)}
    for each in declares:
        vhost = node.vhost(each.vhost) if each.vhost in node.vhosts else None
        there: dict[str, Any] = {QUEUE: {}, EXCHANGE: {}}
        if vhost is not None:
            there = {QUEUE: vhost.queues, EXCHANGE: vhost.exchanges}
        for kind, name in each.ends:
            is_everywhere = kind == EXCHANGE and (not name or name.startswith("amq."))
            is_new = (each.vhost, kind, name) in new
            if not (name in there[kind] or is_new or is_everywhere):
                raise Invalid(f"{each.part}: no {kind} '{name}' in vhost '{each.vhost}'")
        for kind, name in _makes(each):
            if vhost is not None and name in there[kind]:
                each.run(vhost)  # it makes nothing, but compares


def _makes(each: _Declare) -> list[tuple[str, str]]:
    kinds = {"queues": QUEUE, "exchanges": EXCHANGE}
    return [(kinds[each.part], each.name)] if each.part in kinds else []


def _declare_all(node: Node, declares: list[_Declare]) -> None:
    for at, each in enumerate(declares):
        try:
            each.run(node.vhost(each.vhost))
        except (Refused, QindexError) as error:
            left = f"{at} of {len(declares)} exchanges, queues and bindings were imported before it"
            what = f"{each.part}: '{each.name}' in vhost '{each.vhost}'"
            raise type(error)(f"{what}: {error}; {left}") from None


def _vhosts(node: Node, given: Part, steps: _Steps) -> None:
    new: dict[str, None] = {}
    for each in _list(given, "vhosts"):
        name = _text(each, "name")
        if not name:
            raise Invalid("a virtual host needs a name")
        if name not in steps.vhosts:
            steps.vhosts.add(name)
            new[name] = None
    if new:
        steps.of_node.update(node.new_vhosts(new))


def _users(node: Node, given: Part, steps: _Steps) -> None:
    for each in _list(given, "users"):
        steps.of_node.update(user_entry(node.users, _text(each, "name"), each))


def user_entry(users: Users, name: str, given: Part) -> Changes:
    """The entry of a user: {password | password_hash, hashing_algorithm, tags}; Invalid."""
    if not name:
        raise Invalid("a user needs a name")
    found = given.get("tags", [])
    tags = [tag.strip() for tag in found.split(",")] if isinstance(found, str) else found
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise Invalid(f"the tags of user {name!r} are a list of texts")
    tags = [tag for tag in tags if tag]
    if "password" in given:
        password = _text(given, "password")
        if not password:
            raise Invalid("a user needs a password")
        return Users.entry(name, password, tags)
    if "password_hash" not in given:
        raise Invalid(f"user {name!r} needs a password or a password_hash")
    algorithm = str(given.get("hashing_algorithm") or f"{_OF_RABBITMQ}sha256")
    try:
        digest = base64.b64decode(_text(given, "password_hash"), validate=True)
        return Users.entry_of_digest(name, digest, algorithm.removeprefix(_OF_RABBITMQ), tags)
    except (binascii.Error, ValueError) as error:
        raise Invalid(f"the password_hash of user {name!r} is none: {error}") from None


def _permissions(node: Node, given: Part, steps: _Steps) -> None:
    names = {*node.users.names(), *(_text(each, "name") for each in _list(given, "users"))}
    for each in _list(given, "permissions"):
        user, vhost = _text(each, "user"), _text(each, "vhost")
        if user not in names or vhost not in steps.vhosts:
            raise Invalid(f'permissions of "{user}" in "{vhost}": one of them does not exist')
        permission = Permission(*(_text(each, verb) for verb in Permission._fields))
        check_patterns(permission)
        steps.of_node.update(Users.permission_entry(vhost, user, permission))


_Made = tuple[str, list[tuple[str, str]], Callable[[VHost], None]]


def _exchange(given: Part) -> _Made:
    name, kind = _text(given, "name"), _text(given, "type")
    options: dict[str, Any] = {
        "durable": _flag(given, "durable", True),
        "auto_delete": _flag(given, "auto_delete", False),
        "internal": _flag(given, "internal", False),
        "arguments": _table(given),
    }

    def declare(vhost: VHost) -> None:
        vhost.declare_exchange(name, kind, **options)

    return name, [], declare


def _queue(given: Part) -> _Made:
    name = _text(given, "name")
    if not name:
        raise Invalid("a queue needs a name")
    options: dict[str, Any] = {
        "durable": _flag(given, "durable", True),
        "auto_delete": _flag(given, "auto_delete", False),
        "arguments": _table(given),
    }

    def declare(vhost: VHost) -> None:
        vhost.declare_queue(name, owner=None, user=None, **options)

    return name, [], declare


def _binding(given: Part) -> _Made:
    source, name = _text(given, "source"), _text(given, "destination")
    key, kind = _text(given, "routing_key"), _text(given, "destination_type")
    arguments = _table(given)
    if kind not in (QUEUE, EXCHANGE):
        raise Invalid(f"destination_type is {QUEUE} or {EXCHANGE}, not {kind!r}")

    def bind(vhost: VHost) -> None:
        vhost.bind(source, kind, name, key, arguments, None)

    return f"{source} -> {name}", [(EXCHANGE, source), (kind, name)], bind


def _list(given: Part, part: str) -> list[Part]:
    found = given.get(part) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Invalid(f"{part} is a list of objects")
    return found


def _text(given: Part, name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str):
        raise Invalid(f"{name} is a text")
    return found


def _flag(given: Part, name: str, default: bool) -> bool:
    found = given.get(name, default)
    if not isinstance(found, bool):
        raise Invalid(f"{name} is true or false")
    return found


def _table(given: Part) -> Part:
    found = given.get("arguments") or {}
    if not isinstance(found, dict):
        raise Invalid("arguments is an object")
    return found
