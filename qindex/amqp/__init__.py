"""AMQP 0-9-1, as RabbitMQ speaks it: bytes to events and back. No sockets and no storage.

``connection.py`` is the state machine of one connection; ``wire.py`` has the frames and the
methods as bytes; ``methods.py`` is generated.
"""
