"""RabbitMQ's quorum queues: from the files of one node, or of several, to messages in order.

============  ======================================================================================
entries       one entry of a queue's log: a command, or a change of the machine's version
rules         what differs between the machine's versions 0 to 8, as a table
held          a message as the machine holds it; the lines in which messages wait
consumers     consumers, and in which turn they are served
machine       the state machine rabbit_fifo: commands to messages; deliveries, dead_letters, delayed
state         the machine's state in a snapshot, of all versions
usual         publishes and settlements, many at once: nearly all of a log
walk          a log through the machine, and what is done where entries are missing
member        one node's files of a queue: snapshot and log through the machine
outcome       what a member's files give
message       a message out of its entry, with what the queue knows about it
names         which queue a member is of
queues        the queues of a node, or of several nodes of a cluster
============  ======================================================================================

docs/rescue/quorum.rst says what is proved for which version, and what damage costs.
"""
