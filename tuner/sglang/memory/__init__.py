"""Estimate the GPU memory of a server before it is launched."""
