"""qindex demo: `command` has the arguments and what is done."""
