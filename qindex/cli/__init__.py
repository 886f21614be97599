"""The `qindex` command: `main` chooses, one file per command does, `screen` shows.

A command's file has `configure(parser)`, its arguments, and `run(options, screen)`, which returns
the exit code. `text` turns bytes, times and foreign names into words; `stores` opens read-only.
`sources` reads messages of stores and of dead brokers' directories alike, `messages` has their form
and the options that choose them, `checkpoint` lets a command that was killed go on.
`spark_fleet` is what the commands for many directories share.
`demo` is spread over demo_node.* (the dead node that ships), demo_writer (the process that is
killed) and demo_proof (what must come back, and whether it did).
"""
