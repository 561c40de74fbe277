"""specbench: which speculative-decoding configuration serves a model fastest on this hardware."""

__version__ = "0.1.0"
