"""Measure all-reduces under NCCL settings and choose which settings are worth a launch."""
