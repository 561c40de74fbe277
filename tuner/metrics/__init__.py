"""Samples, metrics, statistics, drift, early stopping, output comparison, warnings."""
