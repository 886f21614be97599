"""qindex torture: `command` has the arguments and what is done."""
