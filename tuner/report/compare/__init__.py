"""Runs held against each other: `specbench compare-report`."""
