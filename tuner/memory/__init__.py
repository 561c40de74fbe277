"""What a server will hold of each GPU's memory, before it is started (docs/memory.md)."""
