"""Metrics as people read them."""

from tuner.measure.statistics import Metric


def speed_words(metric: Metric) -> str:
    """What a column of it is headed: `output tok/s`, `decode tok/s`."""
    return f"{metric.removesuffix('_tok_s')} tok/s"


def short(number: float, digits: int = 4) -> str:
    """With so many digits, and never as a power of ten: 12345 for what `:.4g` makes 1.234e+04."""
    text = f"{number:.{digits}g}"
    return f"{number:.0f}" if "e+" in text else text
