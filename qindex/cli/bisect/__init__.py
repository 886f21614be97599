"""qindex bisect: `command` has the arguments and what is done."""
