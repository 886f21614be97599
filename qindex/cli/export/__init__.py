"""qindex export: `command` has the arguments and what is done."""
