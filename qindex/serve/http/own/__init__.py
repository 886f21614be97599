"""The paths below /api/qindex: what the page needs, and RabbitMQ's API does not have.

``paths.py`` has them all, ``description.py`` says so as OpenAPI. ``queues.py``, ``clients.py`` and
``series.py`` are rows and rates, ``messages.py`` looks at messages, ``acts.py`` changes something,
``search.py`` is what they are chosen by, ``history.py`` what files tell of one, ``getting.py``
takes some, ``dead.py``, ``delayed.py``, ``jobs.py``, ``disk.py`` and ``health.py`` are a view each.
"""

from qindex.serve.http.own.paths import about, add_to

__all__ = ["about", "add_to"]
