"""An embedded, crash-safe storage engine for message queues."""
