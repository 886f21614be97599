"""What a client may do with a queue whose messages a rescue has not brought yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qindex.amqp import methods as m
from qindex.serve.permissions import stripped

if TYPE_CHECKING:
    from qindex.serve.channel import Channel


def check_arrived(channel: Channel, method: Any) -> None:
    """Raise NotIn if this has to wait for the messages. A consumer waits without that.

    VHost.publish() looks after publishes itself.
    """
    if isinstance(method, m.BasicGet | m.QueuePurge | m.QueueDelete):
        channel.vhost.check_arrived(stripped(method.queue or channel.last_queue))
    elif isinstance(method, m.BasicConsume):
        channel.vhost.on_wanted(stripped(method.queue or channel.last_queue))
