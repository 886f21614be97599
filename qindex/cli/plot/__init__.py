"""qindex plot: `command` has the arguments and what is done."""
