"""gmq's two protocols without I/O: bytes in, requests and bytes out.

``jsonrpc.py`` is version 1 (objects of JSON-RPC, one behind the other), ``commands.py`` version 2
(lines with bodies), ``patterns.py`` its fuzzy routing in linear time, ``text.py`` what both write.
``qindex/serve/gmq_door.py`` has the socket. `qindex/brokers/gmq` reads the files of a dead server.
"""
