"""A verdict as text that travels: from one worker's search to another's."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tuner.config.load_level import parse_level
from tuner.search.observation import LevelFigures, Observation


def verdict_json(verdict: Observation) -> dict[str, Any]:
    """Everything of it, as JSON has it."""
    found = asdict(replace(verdict, levels={}))
    found["levels"] = {str(level): asdict(each) for level, each in verdict.levels.items()}
    return found


def verdict_from(data: Mapping[str, Any]) -> Observation:
    """The verdict that `verdict_json` wrote."""
    levels = {
        parse_level(level): LevelFigures(**{**each, "reached": tuple(each["reached"])})
        for level, each in data["levels"].items()
    }
    return Observation(**{**data, "levels": levels})
