"""Readers of other benchmarks' result files."""
