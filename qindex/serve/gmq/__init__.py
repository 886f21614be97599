"""gmq's job server on the broker's queues: what its clients push, AMQP's consume, and back.

``door.py`` has the sockets, ``version1.py`` and ``version2.py`` what is said on them; ``jobs.py``
and ``topics.py`` carry it out; ``leases.py`` knows what is reserved and until when, ``waiting.py``
waits for a message of several queues.
`qindex/gmq` has the protocols without I/O.
"""
