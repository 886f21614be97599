"""qindex recover: `command` has the arguments and what is done."""
