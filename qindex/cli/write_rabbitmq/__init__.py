"""qindex write-rabbitmq: `command` has the arguments and what is done."""
