"""qindex's own files as bytes: no store is opened, so they may be damaged, old or in use.

=========  =========================================================================================
folders    which file is what in a queue's folder, and whose folder it is
records    a journal or segment, record by record; read by the core (c_ext/look/columns.c)
messages   where a body is in the message files
frames     frames and records once more, written from FORMAT.rst and not from the core
journals   which journals of a queue count, and where each ends; on frames
log        a queue as a log to replay; on journals
replay     the state of a queue behind any record of a log, of qindex or of RabbitMQ
times      what a time record says, in words
=========  =========================================================================================
"""
