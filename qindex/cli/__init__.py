"""The `qindex` command. `main` chooses; one file per command does, or the `command` of a folder.

Nobody else imports it. What commands share with tables and reports is in qindex.look.
"""
