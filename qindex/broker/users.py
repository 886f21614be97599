"""Who may log in, and what each user may do where.

A user has a password's digest and tags; for each virtual host that it may enter it has three
regular expressions, as RabbitMQ has them: which names it may configure, write to and read from.
They are entries of the node's catalog::

    user/<name>                  salt and sha256 (PBKDF2), or rabbitmq and its algorithm; tags
    permission/[vhost, user]     configure, write, read
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from qindex.broker.errors import AccessRefused, Invalid, NotAllowed
from qindex.field_table import decode_table, encode_table

GUEST: Final = "guest"
Verb = Literal["configure", "write", "read"]
Changes = dict[str, bytes | None]
_REMEMBERED_MAX: Final = 4096
_ROUNDS: Final = 10_000
_OWN_SALT_BYTES: Final = 16
OWN_ALGORITHM: Final = "pbkdf2_sha256"
_SALT_BYTES: Final = 4  # of RabbitMQ's digests, which begin with it
_ALGORITHMS: Final = ("md5", "sha256", "sha512")  # of RabbitMQ's digests


class Permission(NamedTuple):
    """Three regular expressions; an empty one matches the empty name only."""

    configure: str
    write: str
    read: str


EVERYTHING: Final = Permission(".*", ".*", ".*")


class Rights:
    """What one user may do in one virtual host; what was asked once is remembered."""

    def __init__(self, user: str, vhost: str, permission: Permission) -> None:
        self._user = user
        self._vhost = vhost
        self._patterns = {
            verb: _compiled(pattern)
            for verb, pattern in zip(Permission._fields, permission, strict=True)
        }
        self._allowed: set[tuple[Verb, str]] = set()

    def check(self, verb: Verb, kind: str, name: str) -> None:
        """Raise AccessRefused if the user may not do this to the exchange or queue."""
        if (verb, name) in self._allowed:
            return
        shown = name or "amq.default"
        pattern = self._patterns[verb]
        if pattern is None or not pattern.search(shown):
            raise AccessRefused(
                f"access to {kind} '{shown}' in vhost '{self._vhost}' refused for user "
                f"'{self._user}'"
            )
        if len(self._allowed) >= _REMEMBERED_MAX:
            self._allowed.clear()
        self._allowed.add((verb, name))


class Users:
    """The users of a node. `change` applies entries to its catalog; `entries` are what it has."""

    def __init__(
        self, entries: Callable[[], Mapping[str, bytes]], change: Callable[[Changes], None]
    ) -> None:
        self._entries = entries
        self._change = change
        self._key = secrets.token_bytes(32)
        # What a name that is no user's is compared with: it costs as much as a user's password.
        self._nobody = self.entry("", secrets.token_urlsafe(), [])["user/"] or b""
        self._seen: dict[str, bytes] = {}  # by user: what was right, as a keyed hash

    # --- users ---------------------------------------------------------------------------------

    @staticmethod
    def entry(name: str, password: str, tags: list[str]) -> Changes:
        """The entry of a new user."""
        salt = secrets.token_bytes(_OWN_SALT_BYTES)
        table = {"salt": salt, "sha256": _digest(salt, password), "tags": tags}
        return {f"user/{name}": encode_table(table)}

    @staticmethod
    def entry_of_rabbitmq(name: str, digest: bytes, algorithm: str, tags: list[str]) -> Changes:
        """The entry of a user whose digest RabbitMQ has made: salt, and hash of salt + password.

        An empty digest, or an algorithm that is not known, is a user without a password.
        """
        known = algorithm if algorithm in _ALGORITHMS else ""
        table = {"rabbitmq": digest if known else b"", "algorithm": known, "tags": tags}
        return {f"user/{name}": encode_table(table)}

    @staticmethod
    def entry_of_digest(name: str, digest: bytes, algorithm: str, tags: list[str]) -> Changes:
        """The entry of a user with what digest() has said of it, or RabbitMQ. ValueError: nobody
        could log in with it; an empty digest says that nobody shall.
        """
        if algorithm == OWN_ALGORITHM and digest:
            salt, hashed = digest[:_OWN_SALT_BYTES], digest[_OWN_SALT_BYTES:]
            if len(hashed) != hashlib.sha256().digest_size:
                raise ValueError(f"the digest of user {name!r} is not {OWN_ALGORITHM}")
            table = {"salt": salt, "sha256": hashed, "tags": tags}
            return {f"user/{name}": encode_table(table)}
        if digest and algorithm not in _ALGORITHMS:
            raise ValueError(f"user {name!r}: no such algorithm is known: {algorithm!r}")
        return Users.entry_of_rabbitmq(name, digest, algorithm, tags)

    def digest(self, name: str) -> tuple[bytes, str]:
        """What is kept of the password, with its salt, and the algorithm; b"": it has none."""
        table = self._table(name)
        if "rabbitmq" in table:
            return bytes(table["rabbitmq"]), str(table["algorithm"])
        return bytes(table["salt"]) + bytes(table["sha256"]), OWN_ALGORITHM

    def clear_password(self, name: str) -> None:
        """Nobody can log in with this name until it has a password again."""
        self._change(self.entry_of_rabbitmq(name, b"", "", self.tags(name)))

    def __contains__(self, name: object) -> bool:
        return f"user/{name}" in self._entries()

    def names(self) -> list[str]:
        return sorted(_rest(key) for key in self._entries() if key.startswith("user/"))

    def tags(self, name: str) -> list[str]:
        return [str(tag) for tag in self._table(name).get("tags", [])]

    def stamp(self, name: str) -> bytes:
        """Another one as soon as the user's password or tags are; b"": there is no such user."""
        return self._entries().get(f"user/{name}", b"")

    def add(self, name: str, password: str) -> None:
        if name in self:
            raise Invalid(f'User "{name}" already exists')
        if not name:
            raise Invalid("a user needs a name")
        self._change(self.entry(name, _checked_password(password), []))

    def change_password(self, name: str, password: str) -> None:
        self._change(self.entry(name, _checked_password(password), self.tags(name)))

    def set_tags(self, name: str, tags: list[str]) -> None:
        self._change({f"user/{name}": encode_table({**self._table(name), "tags": tags})})

    def delete(self, name: str) -> None:
        """Remove a user with all its permissions."""
        self._table(name)
        gone: Changes = {_key(vhost, name): None for vhost in self.permissions(user=name)}
        self._change({**gone, f"user/{name}": None})

    def _table(self, name: str) -> dict[str, Any]:
        entry = self._entries().get(f"user/{name}")
        if entry is None:
            raise Invalid(f'User "{name}" does not exist')
        return decode_table(entry)

    def may_enter(self, name: str, password: str, *, is_local: bool) -> bool:
        """True if the password is right; guest has to come from this machine.

        Cost: milliseconds by design; microseconds for one that was right before.
        """
        found = self.may_enter_at_once(name, password, is_local=is_local)
        if found is not None:
            return found
        entry = self.entry_of(name)
        return is_right(entry, password) and self.remember(name, entry, password)

    def may_enter_at_once(self, name: str, password: str, *, is_local: bool) -> bool | None:
        """The same, if no slow digest is needed for it; None: ask is_right(). Microseconds.

        A name that no user has is asked about, too: the time that it takes tells nobody of users.
        """
        if name == GUEST and not is_local:
            return False
        seen = self.sign(self.entry_of(name), password)
        return True if hmac.compare_digest(self._seen.get(name, b""), seen) else None

    def entry_of(self, name: str) -> bytes:
        """What the catalog has of a user; of nobody, an entry that no password is right for."""
        return self._entries().get(f"user/{name}", self._nobody)

    def remember(self, name: str, entry: bytes, password: str) -> bool:
        """is_right() has said so. False, and not remembered: the user was changed meanwhile."""
        if self._entries().get(f"user/{name}") != entry:
            return False
        self._seen[name] = self.sign(entry, password)
        return True

    def sign(self, entry: bytes, password: str) -> bytes:
        """A keyed hash of both: the same for the same user and password, and quick."""
        raw = password.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(entry + b"\0" + raw, key=self._key).digest()

    # --- permissions ---------------------------------------------------------------------------

    @staticmethod
    def permission_entry(vhost: str, user: str, permission: Permission) -> Changes:
        return {_key(vhost, user): encode_table(permission._asdict())}

    def set_permissions(self, vhost: str, user: str, permission: Permission) -> None:
        self._table(user)
        check_patterns(permission)
        self._change(self.permission_entry(vhost, user, permission))

    def clear_permissions(self, vhost: str, user: str) -> None:
        self._table(user)
        self._change({_key(vhost, user): None})

    def permissions(
        self, *, user: str | None = None, vhost: str | None = None
    ) -> dict[str, Permission]:
        """The permissions of one user by virtual host, or those in one virtual host by user."""
        found = {}
        for key, value in sorted(self._entries().items()):
            if key.startswith("permission/"):
                its_vhost, its_user = json.loads(_rest(key))
                permission = _permission(value)
                if its_user == user:
                    found[its_vhost] = permission
                elif its_vhost == vhost:
                    found[its_user] = permission
        return found

    def gone_permissions(self, vhost: str) -> Changes:
        """The entries that go with a virtual host."""
        return {_key(vhost, user): None for user in self.permissions(vhost=vhost)}

    def rights(self, user: str, vhost: str) -> Rights:
        """What the user may do in the virtual host; NotAllowed if it may not enter it."""
        entry = self._entries().get(_key(vhost, user))
        if entry is None:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user}'")
        return Rights(user, vhost, _permission(entry))


def check_patterns(permission: Permission) -> None:
    """Raise Invalid if one of them is not a regular expression."""
    for pattern in permission:
        try:
            re.compile(pattern)
        except re.error as error:
            raise Invalid(f'"{pattern}" is not a regular expression: {error}') from None


def is_right(entry: bytes, password: str) -> bool:
    """True if this is the password of the user with this entry. Slow by design; for any thread."""
    found: dict[str, Any] = decode_table(entry)
    digest = _digest(found.get("salt", bytes(_OWN_SALT_BYTES)), password)
    if "rabbitmq" in found:  # whose digests are quick: with ours before, no user is answered sooner
        return _is_rabbitmqs(found["rabbitmq"], found["algorithm"], password)
    return hmac.compare_digest(digest, found["sha256"])


def _permission(entry: bytes) -> Permission:
    table = decode_table(entry)
    return Permission(*(str(table[name]) for name in Permission._fields))


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None, which nothing matches: a pattern of a RabbitMQ node that Python does not understand."""
    try:
        return re.compile(pattern or "^$")
    except re.error:
        return None


def _key(vhost: str, user: str) -> str:
    return f"permission/{json.dumps([vhost, user])}"


def _rest(key: str) -> str:
    return key.partition("/")[2]


def _checked_password(password: str) -> str:
    if not password:
        raise Invalid("a user needs a password")
    return password


def _digest(salt: bytes, password: str) -> bytes:
    raw = password.encode("utf-8", "surrogateescape")
    return hashlib.pbkdf2_hmac("sha256", raw, salt, _ROUNDS)


def _is_rabbitmqs(digest: bytes, algorithm: str, password: str) -> bool:
    if len(digest) <= _SALT_BYTES or algorithm not in _ALGORITHMS:
        return False
    salt, hashed = digest[:_SALT_BYTES], digest[_SALT_BYTES:]
    raw = salt + password.encode("utf-8", "surrogateescape")
    return hmac.compare_digest(hashlib.new(algorithm, raw, usedforsecurity=False).digest(), hashed)
