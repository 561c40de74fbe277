"""The all-reduce micro-benchmark, and which communication settings are worth a server."""
