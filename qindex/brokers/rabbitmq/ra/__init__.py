"""Ra, RabbitMQ's library for replicated logs: its files, without any knowledge of what is in them.

Quorum queues, the stream coordinator and Khepri are machines that run on Ra. Start with
`system.open_system()`, which gives the servers of one Ra system; each has a log and snapshots.

============  ======================================================================================
wal           N.wal, the log that all servers of a system share; wal_resync goes on behind damage
segments      N.segment, entries of one server that left the shared log
log           both merged: one log for a server, with its holes
snapshot      snapshots and checkpoints: the state of a machine at some index
config        a server's file `config`: an Erlang term as text
system        a directory with all of these: who is who, what belongs to whom
============  ======================================================================================

Nothing is written, no code that a log contains is run, damage becomes a finding and never raises.
"""
