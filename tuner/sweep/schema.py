"""The JSON Schema of sweep files, so that editors complete and check them."""

from typing import Any

from tuner.sweep.model import Sweep


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a sweep file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Sweep.model_json_schema(),
        "title": "specbench sweep file",
    }
