"""NSQ's diskqueue: `directory` has its queues, `file` one data file and the way past damage."""
