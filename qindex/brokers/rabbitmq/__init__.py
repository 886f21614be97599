"""What a RabbitMQ node leaves on its disk.

========================  ==========================================================================
directory, node, vhost    where the queues are; Node, Vhost, Queue, Message
queue                     one classic queue's directory: journal and segments merged
index, index_v2           journal.jif and N.idx; N.qi and N.qs
store                     N.rdq, the bodies
columns                   messages of a classic queue as the core publishes them, many at once
pieces                    files, piece by piece, for the scanners in C (c_ext/foreign)
resync                    the way on behind a damaged record
message                   the Erlang record of a message
container                 messages of 3.13 and later: what the broker noted; MQTT
amqp10_messages           AMQP 1.0 messages in these
properties                the bytes of properties, from values with their types
doubts, orphans, unread   what may be lost; bodies that no index names; queues that are only named
topology, deaths          exchanges, bindings, policies; what becomes of messages that die
log                       an index journal as a log for qindex.native.replay
write                     the way back: files that a 3.10 node opens
definitions               mnesia's log and dets: queues, arguments, terms of an orderly stop
erlang, erlang_files      Erlang terms, and the files that hold them
quorum/, streams/         quorum queues; streams
khepri/, ra/              the metadata of 4.x; the logs that it and the quorum queues are kept in
========================  ==========================================================================
"""
