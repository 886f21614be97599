"""Readers of what others wrote, and the AMQP field tables that the engine's headers are stored in.

Start with `reader.open_node()`, which finds out what a directory is, and `recover.recover_into()`.
From there these files read it, each of which opens with the layout it knows:

=========================  =========================================================================
foreign                    the door to the file system: read-only, no links, a dying disk
reader                     what every reader offers: nodes, queues, messages, accounts
rabbitmq, rabbitmq_node    where the queues are; Node, Vhost, Queue, Message
rabbitmq_queue             one queue directory: journal and segments merged
rabbitmq_index, _index_v2  journal.jif and N.idx; N.qi and N.qs
rabbitmq_store             N.rdq, the bodies
rabbitmq_pieces            files, piece by piece, for the scanners in C (c_ext/formats)
rabbitmq_salvage           the way on behind a damaged record
rabbitmq_message           the Erlang record of a message
rabbitmq_container         messages of 3.13 and later: what the broker noted; MQTT
rabbitmq_amqp10, amqp10    AMQP 1.0 messages in these; the values of that protocol
rabbitmq_properties        the bytes of properties, from values with their types
rabbitmq_write             the way back: files that a 3.10 node opens
rabbitmq_definitions       mnesia's log and dets: queues, arguments, terms of an orderly stop
erlang, erlang_files       Erlang terms, and the files that hold them
nsq, nsq_file              NSQ's diskqueue: the queues of a directory; a data file and its damage
gmq, gmq_file, bbolt       gmq v2: the queues; a mapped queue file; the delayed messages' database
beanstalkd, _file          beanstalkd's binlog: tubes and jobs; one file
native_messages            where a body is in qindex's own message files, without the engine
field_table, amqp          AMQP 0-9-1 tables and properties, both ways
=========================  =========================================================================
"""
