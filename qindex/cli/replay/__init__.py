"""qindex replay: `command` has the arguments and what is done."""
