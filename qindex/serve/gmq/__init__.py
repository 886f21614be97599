"""gmq's job server on the broker's queues: what its clients push, AMQP's consume, and back.

``door.py`` has the sockets, ``jobs.py`` is version 1, ``topics.py`` version 2; ``leases.py`` knows
what is reserved and until when, ``waiting.py`` waits for a message of several queues.
`qindex/gmq` has the protocols without I/O.
"""
