"""qindex trace: `command` has the arguments and what is done."""
