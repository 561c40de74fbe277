"""Metrics as people read them."""

from tuner.measure.statistics import Metric


def speed_words(metric: Metric) -> str:
    """What a column of it is headed: `output tok/s`, `decode tok/s`."""
    return f"{metric.removesuffix('_tok_s')} tok/s"
