"""RabbitMQ's message containers: what 3.13 and later keep of a message, and noted about it.

::

    {mc, mc_amqpl, Content, Notes}                            AMQP 0-9-1: message.py
    {mc, mc_amqp, {v1, ...} | {msg, ...}, Notes}              AMQP 1.0: amqp10_messages.py
    {mc, mc_mqtt, {mqtt_msg, Retain, Qos, Topic, Dup, PacketId, Body, Props, Timestamp}, Notes}

They become what RabbitMQ itself gives an AMQP 0-9-1 consumer (convert_from/3, convert_to/3 and
mc_amqpl:protocol_state/2): annotations as headers, deaths as ``x-death``.
"""

from __future__ import annotations

from typing import Any

from qindex.brokers.amqp import PROPERTY_NAMES, AmqpError, join_properties
from qindex.brokers.rabbitmq.amqp10_messages import death_table, read_amqp10
from qindex.brokers.rabbitmq.properties import (
    Header,
    MessageError,
    encode_basic,
    encode_typed_table,
    flat,
    is_short,
    is_valid,
    join_table,
    seconds_of,
    split_properties,
    split_table,
    without_copies,
)

Notes = dict[Any, Any]  # what the broker noted: atoms, and binaries that begin with "x-"


def read_container(protocol: str, data: Any, notes: Notes) -> tuple[bytes, bytes, int]:
    """Of what is no AMQP 0-9-1 message the raw properties, the body, and how many bytes that has in
    RabbitMQ's count, which is what an index says."""
    try:
        if protocol == "mc_amqp":
            values, body, counted = read_amqp10(data)
        elif protocol == "mc_mqtt":
            values, body = _from_mqtt(data)
            counted = len(body)
        else:
            raise MessageError(f"a message of the protocol {protocol} cannot be read yet")
    except AmqpError as error:
        raise MessageError(f"a message of {protocol[3:]}: {error}") from None
    listed = [values.get(name) for name in PROPERTY_NAMES]
    properties = encode_basic(["undefined" if value is None else value for value in listed])
    return annotate(properties, notes), body, counted


# --- notes ----------------------------------------------------------------------------------------


def changes(notes: Notes) -> bool:
    """Whether the broker noted something that the properties which were sent do not say."""
    return (
        "deaths" in notes
        or notes.get("ttl") == "undefined"
        or any(isinstance(key, bytes) for key in notes)
    )


def annotate(raw: bytes, notes: Notes) -> bytes:
    """The properties with what the broker noted about the message since it was sent."""
    try:
        parts = split_properties(raw)
        headers = split_table(parts[2]) if parts[2] else {}
    except (AmqpError, IndexError) as error:
        raise MessageError(f"properties that cannot be read: {error}") from None
    for key, kind, value in _noted_headers(notes):
        try:
            headers[key] = encode_typed_table([(key, kind, value)])[4:]
        except ValueError as error:
            raise MessageError(f"a note of the broker that cannot be written: {error}") from None
    noted = encode_basic(_noted_properties(notes))
    for index, (own, new) in enumerate(zip(parts, split_properties(noted), strict=True)):
        name = PROPERTY_NAMES[index]
        if name == "timestamp" or (name == "expiration" and "ttl" in notes) or own is None:
            parts[index] = new
    if headers:
        parts[2] = join_table(headers)
    return join_properties(parts)


def _noted_properties(notes: Notes) -> list[Any]:
    values: dict[str, Any] = {}
    timestamp, ttl, priority = notes.get("ts"), notes.get("ttl"), notes.get("p")
    if isinstance(timestamp, int):
        values["timestamp"] = seconds_of(timestamp)
    if isinstance(ttl, int):
        values["expiration"] = b"%d" % ttl
    if isinstance(priority, int) and 0 <= priority < 256:
        values["priority"] = priority
    if notes.get("d") != "false":
        values["delivery_mode"] = 2
    return [values.get(name, "undefined") for name in PROPERTY_NAMES]


def _noted_headers(notes: Notes) -> list[Header]:
    found: list[Header] = []
    if "deaths" in notes:
        found.append((b"x-death", "array", _deaths(notes["deaths"])))
    for key, value in notes.items():
        if not isinstance(key, bytes) or not is_short(key):
            continue
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            found.append((key, "long", value))
        elif isinstance(value, bytes) and key.startswith(b"x-"):
            found.append((key, "longstr", value))
        elif value in ("true", "false") and key.startswith(b"x-"):
            found.append((key, "bool", value))
    return [header for header in found if header[0][:2] == b"x-" or header[0] == b"timestamp_in_ms"]


def _deaths(noted: Any) -> list[Any]:
    """The table of each death, the last one first."""
    match noted:
        case ("deaths", _, _, dict(records)):  # 3.13
            listed = sorted(records.items(), key=_last_time)[::-1]
        case [*listed]:
            pass
        case _:
            raise MessageError("deaths that cannot be read")
    return [("table", death_table(death)) for death in listed]


def _last_time(death: Any) -> int:
    match death:
        case (_, ("death", _, _, _, {"last_time": int(time)})):
            return time
    return 0


# --- MQTT -----------------------------------------------------------------------------------------


def _from_mqtt(data: Any) -> tuple[dict[str, Any], bytes]:
    match data:
        case ("mqtt_msg", _, int(qos), _, _, _, payload, dict(told), *_):
            pass
        case _:
            raise MessageError("a message of mqtt in an unknown shape")
    values: dict[str, Any] = {"delivery_mode": 1 if qos == 0 else 2}
    headers: list[Header] = []
    correlation, topic = told.get("Correlation-Data"), told.get("Response-Topic")
    if isinstance(correlation, bytes):
        if is_valid(correlation):
            values["correlation_id"] = correlation
        else:
            headers.append((b"x-correlation-id", "longstr", correlation))
    if isinstance(topic, bytes):
        key = topic.replace(b"/", b".").replace(b"+", b"*")
        headers.append((b"x-reply-to-topic", "longstr", key))
    own = told.get("User-Property")
    for pair in own if isinstance(own, list) else []:
        match pair:
            case (bytes(key), bytes(value)) if is_short(key):
                headers.append((key, "longstr", value))
    content_type, seconds = told.get("Content-Type"), told.get("Message-Expiry-Interval")
    if isinstance(content_type, bytes) and is_short(content_type) and content_type.isascii():
        values["content_type"] = content_type
    if isinstance(seconds, int):
        values["expiration"] = b"%d" % (1000 * seconds)
    values["headers"] = without_copies(headers) or None
    return values, flat(payload)
