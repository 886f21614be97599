"""What a broker refuses. Nothing was changed when one of these is raised."""

from __future__ import annotations

from qindex.errors import QindexError


class Refused(Exception):
    """The base: the text is RabbitMQ's, without the name of the reply code."""


class NotFound(Refused):
    """No such exchange, queue or virtual host."""


class AccessRefused(Refused):
    """The name is reserved, or the object belongs to the server."""


class Locked(Refused):
    """The queue is another connection's own."""


class Precondition(Refused):
    """It is there with other properties, in use, not empty, or an argument is not valid."""


class NotAllowed(Refused):
    """The connection may not go on after this."""


class NotThere(Refused):
    """A feature of RabbitMQ that is not there."""


class Unknown(Refused):
    """A word of the protocol that is not known; the connection may not go on after this."""


class VHostDown(QindexError):
    """The store of a virtual host cannot be opened. The others are served."""


class Invalid(Refused):
    """What an administrator asks for cannot be: the text says why."""
