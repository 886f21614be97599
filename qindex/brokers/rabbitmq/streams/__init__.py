"""Streams of RabbitMQ 3.9 to 4.3 (osiris), read from their segment files.

::

    stream     a directory as a queue: messages in the order of their places, an account
      chunks     segment files: chunks, checksums, the way on behind damage
      entries    the data of a chunk: messages and compressed batches
      message    an entry as a message of AMQP 0-9-1
      tracking   offsets of consumers, sequences of publishers
"""
