"""qindex du: `command` has the arguments and what is done."""
