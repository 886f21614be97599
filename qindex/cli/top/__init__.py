"""qindex top: `command` has the arguments and what is done."""
