"""HTTP: a subset of RabbitMQ's management API, metrics for Prometheus, and a page, by aiohttp.

``door.py`` has the port, the login and the refusals; ``api.py`` RabbitMQ's paths; ``shapes.py``
what they answer, in the JSON of RabbitMQ 3.10; ``metrics.py`` the metrics. ``page.py`` serves the
page, whose files are in ``files/``, and ``sessions.py`` has its log-ins; ``own/`` are paths that
RabbitMQ does not have. All of it needs the extra `qindex[serve]`, and is imported only when an HTTP
port is asked for.
"""
