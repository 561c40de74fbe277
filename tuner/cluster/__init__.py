"""Launches on the nodes of a Ray cluster. Only this room imports ray, which is an extra."""
