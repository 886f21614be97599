"""The methods of AMQP 0-9-1 with RabbitMQ's extensions, as tuples.

tools/amqp_methods.py wrote this file.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class BasicQos(NamedTuple):
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


class BasicQosOk(NamedTuple):
    pass


class BasicConsume(NamedTuple):
    ticket: int = 0
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    arguments: dict[str, Any] = {}


class BasicConsumeOk(NamedTuple):
    consumer_tag: str = ""


class BasicCancel(NamedTuple):
    consumer_tag: str = ""
    nowait: bool = False


class BasicCancelOk(NamedTuple):
    consumer_tag: str = ""


class BasicPublish(NamedTuple):
    ticket: int = 0
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


class BasicReturn(NamedTuple):
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


class BasicDeliver(NamedTuple):
    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


class BasicGet(NamedTuple):
    ticket: int = 0
    queue: str = ""
    no_ack: bool = False


class BasicGetOk(NamedTuple):
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


class BasicGetEmpty(NamedTuple):
    cluster_id: str = ""


class BasicAck(NamedTuple):
    delivery_tag: int = 0
    multiple: bool = False


class BasicReject(NamedTuple):
    delivery_tag: int = 0
    requeue: bool = True


class BasicRecoverAsync(NamedTuple):
    requeue: bool = False


class BasicRecover(NamedTuple):
    requeue: bool = False


class BasicRecoverOk(NamedTuple):
    pass


class BasicNack(NamedTuple):
    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = True


class ConnectionStart(NamedTuple):
    version_major: int = 0
    version_minor: int = 9
    server_properties: dict[str, Any] = {}
    mechanisms: bytes = b"PLAIN"
    locales: bytes = b"en_US"


class ConnectionStartOk(NamedTuple):
    client_properties: dict[str, Any] = {}
    mechanism: str = "PLAIN"
    response: bytes = b""
    locale: str = "en_US"


class ConnectionSecure(NamedTuple):
    challenge: bytes = b""


class ConnectionSecureOk(NamedTuple):
    response: bytes = b""


class ConnectionTune(NamedTuple):
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionTuneOk(NamedTuple):
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionOpen(NamedTuple):
    virtual_host: str = "/"
    capabilities: str = ""
    insist: bool = False


class ConnectionOpenOk(NamedTuple):
    known_hosts: str = ""


class ConnectionClose(NamedTuple):
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


class ConnectionCloseOk(NamedTuple):
    pass


class ConnectionBlocked(NamedTuple):
    reason: str = ""


class ConnectionUnblocked(NamedTuple):
    pass


class ConnectionUpdateSecret(NamedTuple):
    new_secret: bytes = b""
    reason: str = ""


class ConnectionUpdateSecretOk(NamedTuple):
    pass


class ChannelOpen(NamedTuple):
    out_of_band: str = ""


class ChannelOpenOk(NamedTuple):
    channel_id: bytes = b""


class ChannelFlow(NamedTuple):
    active: bool = False


class ChannelFlowOk(NamedTuple):
    active: bool = False


class ChannelClose(NamedTuple):
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


class ChannelCloseOk(NamedTuple):
    pass


class AccessRequest(NamedTuple):
    realm: str = "/data"
    exclusive: bool = False
    passive: bool = True
    active: bool = True
    write: bool = True
    read: bool = True


class AccessRequestOk(NamedTuple):
    ticket: int = 1


class ExchangeDeclare(NamedTuple):
    ticket: int = 0
    exchange: str = ""
    type: str = "direct"
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    nowait: bool = False
    arguments: dict[str, Any] = {}


class ExchangeDeclareOk(NamedTuple):
    pass


class ExchangeDelete(NamedTuple):
    ticket: int = 0
    exchange: str = ""
    if_unused: bool = False
    nowait: bool = False


class ExchangeDeleteOk(NamedTuple):
    pass


class ExchangeBind(NamedTuple):
    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: dict[str, Any] = {}


class ExchangeBindOk(NamedTuple):
    pass


class ExchangeUnbind(NamedTuple):
    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: dict[str, Any] = {}


class ExchangeUnbindOk(NamedTuple):
    pass


class QueueDeclare(NamedTuple):
    ticket: int = 0
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    nowait: bool = False
    arguments: dict[str, Any] = {}


class QueueDeclareOk(NamedTuple):
    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


class QueueBind(NamedTuple):
    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: dict[str, Any] = {}


class QueueBindOk(NamedTuple):
    pass


class QueuePurge(NamedTuple):
    ticket: int = 0
    queue: str = ""
    nowait: bool = False


class QueuePurgeOk(NamedTuple):
    message_count: int = 0


class QueueDelete(NamedTuple):
    ticket: int = 0
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    nowait: bool = False


class QueueDeleteOk(NamedTuple):
    message_count: int = 0


class QueueUnbind(NamedTuple):
    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class QueueUnbindOk(NamedTuple):
    pass


class ConfirmSelect(NamedTuple):
    nowait: bool = False


class ConfirmSelectOk(NamedTuple):
    pass
