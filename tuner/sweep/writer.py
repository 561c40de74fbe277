"""A sweep as the text of a sweep file: the door's way back."""

from collections.abc import Sequence
from typing import Any

import yaml

from tuner.sweep.document import plain_value
from tuner.sweep.model import Sweep


class _Dumper(yaml.SafeDumper):
    """Quotes every text that the door would read as something else; YAML 1.1 quotes others."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        is_plain = text.isprintable() and plain_value(text) == text
    except ValueError:
        is_plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)


def sweep_text(sweep: Sweep, comment: Sequence[str] = ()) -> str:
    """A sweep file that the door reads as `sweep` again, with comment lines on top.

    Only what differs from the defaults is written.
    """
    data: dict[str, Any] = sweep.model_dump(mode="json", exclude_defaults=True)
    if sweep.workload.request_rate is not None:  # with one the default is another
        data["workload"]["concurrency"] = sweep.workload.concurrency
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comment]
    body = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
    return "\n".join([*lines, body])
