"""The page for a store that is only read: one that a process has open, or that nobody has.

``door.py`` has the port and its key, ``store.py`` what the page asks, with the same shapes as a
broker's. A reader takes no lock and writes nothing, so whoever has the store open does not notice.
"""
