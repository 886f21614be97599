"""gmq v2: `directory` has its queues, `file` one mapped queue file, `bbolt` delayed messages."""
