"""Errors, atomic file writes, secrets and Markdown: what every room uses."""
