"""The simulated engine: an HTTP server process driven by a performance model."""
