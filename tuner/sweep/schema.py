"""The JSON Schema of sweep files, so that editors complete and check them."""

from typing import Any

from tuner.sweep.model import Sweep


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a sweep file."""
    schema = Sweep.model_json_schema()
    # What a server that runs already says itself may be left out, and only there.
    endpoint = {"properties": {"engine": {"properties": {"kind": {"const": "endpoint"}}}}}
    launched = {"required": ["space"], "properties": {"model": {"required": ["algorithm"]}}}
    schema["required"].remove("space")
    schema["$defs"]["ModelSpec"]["required"].remove("algorithm")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "if": endpoint,
        "else": launched,
        "title": "specbench sweep file",
    }
