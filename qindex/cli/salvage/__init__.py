"""qindex salvage: `command` has the arguments and what is done."""
