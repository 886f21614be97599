"""Adapters of known queues, each with what the queue promises. Import the one you need."""
