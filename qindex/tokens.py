"""Tokens: a delivery in 32 characters, which go over a wire and come back.

A token is 24 bytes in URL-safe base64, without padding:

======  ====  ====================================================================================
offset  size  meaning
======  ====  ====================================================================================
0       4     the number of the queue's handle: no other of this process has it
4       4     the serial: which delivery of the message it is
8       8     ReqId
16      8     BLAKE2b of the 16 bytes above, with a key that was drawn when the store was opened
======  ====  ====================================================================================

The key is kept nowhere. So a token of another session, of another store, or of a copy of this one,
and one that somebody made up, is refused; nobody can make the token of another delivery from a
token.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from typing import Final

from qindex.arguments import shown
from qindex.calls import MessageFields
from qindex.errors import DeliveryEnded
from qindex.message import Details

TOKEN_SIZE: Final = 32  # characters
KEY_SIZE: Final = 16
_PROOF_SIZE: Final = 8
_FORM: Final = re.compile(f"[A-Za-z0-9_-]{{{TOKEN_SIZE}}}")
_BYTES: Final = struct.Struct(">QQ")
_NOTHING: Final = Details("")


def _proof(key: bytes, delivery: bytes) -> bytes:
    return hashlib.blake2b(delivery, digest_size=_PROOF_SIZE, key=key).digest()


def write_token(key: bytes, message: MessageFields) -> str:
    """The token of a delivery, for the session that has this key."""
    delivery = _BYTES.pack(message._delivery, message.req_id)
    return base64.urlsafe_b64encode(delivery + _proof(key, delivery)).decode("ascii")


def read_token(key: bytes, token: str) -> tuple[int, MessageFields]:
    """The number of the queue's handle, and what stands for the message: it has no body.

    Raises ValueError if it is no token, DeliveryEnded if it was not written with this key.
    """
    if not _FORM.fullmatch(token):
        text = f"a token has {TOKEN_SIZE} letters, digits, '-' and '_', as m.token says: "
        text += shown(token)
        if token.isascii() and token.isdecimal():  # as commands print a ReqId
            text += f"; a ReqId is an int, for the verbs of its queue: int({shown(token)})"
        raise ValueError(text)
    content = base64.urlsafe_b64decode(token)
    delivery, proof = content[: _BYTES.size], content[_BYTES.size :]
    if proof != _proof(key, delivery):
        raise DeliveryEnded(
            f"token {token}: this delivery is of an earlier session or of another store; what it "
            "took from this store is ready again"
        )
    number, req_id = _BYTES.unpack(delivery)
    return number >> 32, MessageFields(req_id, b"", _NOTHING, 0, number)
