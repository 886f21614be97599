"""A node's virtual hosts, users and permissions, out of Mnesia's tables or out of Khepri."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from qindex.brokers.rabbitmq.khepri.metadata import Metadata
from qindex.brokers.rabbitmq.message import text
from qindex.brokers.rabbitmq.topology_files import mnesia_rows
from qindex.brokers.tree import Findings, Tree

_TABLES: Final = {  # table: the tag of its records
    "rabbit_vhost": "vhost",
    "rabbit_user": "internal_user",
    "rabbit_user_permission": "user_permission",
}
_HASHING: Final = "rabbit_password_hashing_"
_FIRST_HASHING: Final = "md5"  # of the records before 3.6, which name none


@dataclass(slots=True)
class User:
    """`digest`: four bytes of salt, and the hash of salt and password; empty: no password."""

    name: str
    digest: bytes
    algorithm: str  # sha256, sha512, md5
    tags: list[str]


@dataclass(slots=True)
class Permission:
    """Three regular expressions."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(slots=True)
class Accounts:
    vhosts: list[str] = field(default_factory=list)
    users: list[User] = field(default_factory=list)
    permissions: list[Permission] = field(default_factory=list)


def read_accounts(tree: Tree, metadata: Metadata | None, findings: Findings) -> Accounts | None:
    """`metadata` is what Khepri holds, if it is in force. None: the tables are not there."""
    if metadata is not None:
        vhosts = [("vhost", name) for name in metadata.vhosts]
        return _accounts(vhosts, metadata.users.values(), metadata.permissions)
    rows = mnesia_rows(tree, findings, _TABLES)
    return None if rows is None else _accounts(*(rows[table].values() for table in _TABLES))


def _accounts(vhosts: Iterable[Any], users: Iterable[Any], permissions: Iterable[Any]) -> Accounts:
    accounts = Accounts()
    for record in vhosts:
        match record:
            case (_, bytes(name), *_):
                accounts.vhosts.append(text(name))
    for record in users:
        match record:
            case (_, bytes(name), digest, tags, *rest):
                algorithm = str(rest[0]) if rest else _HASHING + _FIRST_HASHING
                accounts.users.append(
                    User(
                        text(name),
                        digest if isinstance(digest, bytes) else b"",
                        algorithm.removeprefix(_HASHING),
                        [str(tag) for tag in tags] if isinstance(tags, list) else [],
                    )
                )
    for record in permissions:
        match record:
            case ("user_permission", ("user_vhost", bytes(user), bytes(vhost)),
                  ("permission", bytes(configure), bytes(write), bytes(read))):  # fmt: skip
                patterns = [each.decode("utf-8", "replace") for each in (configure, write, read)]
                accounts.permissions.append(Permission(text(user), text(vhost), *patterns))
    return accounts
