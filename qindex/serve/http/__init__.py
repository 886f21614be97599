"""HTTP: a subset of RabbitMQ's management API and metrics for Prometheus, by aiohttp.

``door.py`` has the port, the login and the refusals; ``api.py`` the paths; ``shapes.py`` what they
answer, in the JSON of RabbitMQ 3.10; ``metrics.py`` the page for Prometheus. All of it needs the
extra `qindex[serve]`, and is imported only when an HTTP port is asked for.
"""
