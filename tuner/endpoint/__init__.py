"""Servers that already run."""
