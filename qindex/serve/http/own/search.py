"""What a search for messages asks for: a header, a property, a text in the body."""

from __future__ import annotations

from typing import Final, NamedTuple

from qindex.broker.message import AmqpError, Message
from qindex.brokers.amqp import PROPERTY_NAMES
from qindex.serve.http import shapes
from qindex.serve.http.asked import Asked

TEXT_MAX: Final = 1024  # characters of what is searched for
QUERY: Final = "header property value text"


class Wanted(NamedTuple):
    """All that is given has to be so; without `value`, a header or property has to be there."""

    header: str
    name: str  # of a property
    value: str | None
    text: bytes

    def is_so(self, message: Message) -> bool:
        """True if the message is one of those. A body is looked at as bytes."""
        if self.text and self.text not in bytes(message.body):
            return False
        try:
            if self.name and not self._fits(getattr(message.decoded, self.name)):
                return False
            return not self.header or self._fits((message.headers or {}).get(self.header))
        except AmqpError:  # its properties are damaged
            return False

    def _fits(self, found: object) -> bool:
        if found is None:
            return False
        return self.value is None or self.value == written(found)


def written(value: object) -> str:
    """A value as it is asked for: text as it is, all others as JSON writes them."""
    found = shapes.plain(value)
    return found if isinstance(found, str) else shapes.to_json(found)


def wanted_of(asked: Asked) -> Wanted | None:
    """None: all messages are wanted. ValueError: that cannot be searched for."""
    header, name, text = (asked.query(each) for each in ("header", "property", "text"))
    value = asked.request.query.get("value")
    if not (header or name or text):
        if value is not None:
            raise ValueError("value is that of a header or a property: name one")
        return None
    if name and (name not in PROPERTY_NAMES or name == "headers"):
        known = ", ".join(each for each in PROPERTY_NAMES if each != "headers")
        raise ValueError(f"property is one of {known}")
    if header and name:
        raise ValueError("search for a header or for a property, one at a time")
    if max(map(len, (header, text, value or ""))) > TEXT_MAX:
        raise ValueError(f"what is searched for has at most {TEXT_MAX} characters")
    if value is not None and not (header or name):
        raise ValueError("value is that of a header or a property: name one")
    return Wanted(header, name, value, text.encode("utf-8", "surrogatepass"))
