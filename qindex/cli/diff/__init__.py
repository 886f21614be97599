"""qindex diff: `command` has the arguments and what is done."""
