"""qindex dump: `command` has the arguments and what is done."""
