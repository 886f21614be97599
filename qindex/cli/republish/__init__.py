"""qindex republish: `command` has the arguments and what is done."""
