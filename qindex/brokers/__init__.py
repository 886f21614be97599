"""Readers of dead brokers' directories, and the way from them into a store.

Start with `reader.open_node()`, which finds out what a directory is, and `recover.recover_into()`.
Each broker has a folder. Its `directory.py` has what `reader` asks of every reader: `is_here()` and
the way to open. A new format is a new folder, and a line in `reader.FORMATS`.

===============  ===================================================================================
tree             the door to the file system: read-only, no links, a dying disk; findings
reader           what every reader offers: nodes, queues, messages, accounts
recover          every live message of every queue into a store, in order
storable         what makes every foreign message storable
amqp, amqp10     AMQP 0-9-1 properties, both ways; the values of AMQP 1.0
rabbitmq/        RabbitMQ 3.x and 4.x
nsq/             NSQ's diskqueue
gmq/             gmq v2; bbolt is the database of its delayed messages
beanstalkd/      beanstalkd's binlog
===============  ===================================================================================
"""
