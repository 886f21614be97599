"""What commands and tables show: messages, where they come from, and how they are written down."""
