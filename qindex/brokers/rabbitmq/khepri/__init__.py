"""Khepri, the store of RabbitMQ's metadata from 4.2 on: virtual hosts, queues, exchanges ...

::

    metadata   what a node's Khepri holds, by kind, in the records that Mnesia had
      tree     the tree of a snapshot and the commands behind it

Nothing that a log contains is run. Transactions are compiled code, so what they did is not known:
their number is reported, and what they name is marked.
"""
