"""A broker that speaks AMQP 0-9-1, on qindex's stores: `qindex serve DIR`, or inside a program.

::

    async with qindex.serve.Broker() as broker:  # in memory; Broker("data") keeps its messages
        connection = await aio_pika.connect(broker.url)

``server.py`` has the sockets, ``session.py`` one client, ``channel.py`` one channel.
``fixture.py`` is a fixture for pytest.
"""

from qindex.serve.embedded import Broker

__all__ = ["Broker"]
