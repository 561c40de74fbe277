"""Which point to measure next."""
