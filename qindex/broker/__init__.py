"""A broker on qindex's stores: exchanges, bindings, queues, consumers. No sockets, no protocol.

Read in this order: ``message.py``; ``exchanges.py`` (which queues a message goes to);
``backlog.py`` (messages in memory) and ``durable.py`` (messages in a store); ``queues.py`` (one
queue: limits, consumers, turns); ``topology.py`` and ``vhost.py`` (declare, bind, publish, dead
letters); ``catalog.py`` (what survives a restart besides messages); ``node.py`` (virtual hosts and
users).
"""
