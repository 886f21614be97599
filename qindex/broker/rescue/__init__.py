"""A dead RabbitMQ node's directory becomes one that is served: `qindex serve DIR --rescue NODE`.

``plan.py`` (what is taken over, and what cannot be), ``definitions.py`` (users, virtual hosts,
exchanges, queues and bindings as entries of the catalogs), ``copying.py`` (messages, one queue
after the other, in a thread), ``rescue.py`` (the steps, and how they go on after a kill).
"""
