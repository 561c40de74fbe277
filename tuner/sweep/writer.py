"""A sweep as the text of a sweep file: the door's way back."""

from collections.abc import Sequence
from typing import Any

import yaml

from tuner.sweep.model import Sweep


def sweep_text(sweep: Sweep, comment: Sequence[str] = ()) -> str:
    """A sweep file that the door reads as `sweep` again, with comment lines on top.

    Only what differs from the defaults is written.
    """
    data: dict[str, Any] = sweep.model_dump(mode="json", exclude_defaults=True)
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comment]
    body = yaml.safe_dump(
        data, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    return "\n".join([*lines, body])
