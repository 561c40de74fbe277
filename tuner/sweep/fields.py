"""What the values of a sweep file are made of: names, texts, and the strict base of its classes."""

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from tuner.sweep import words
from tuner.sweep.point import FlagValue

UNSET = "unset"
"""The value that removes a variable from the server's environment, or leaves a flag away."""

# The patterns are for the JSON Schema; the words before them are what a mistake is told in.
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"), BeforeValidator(words.file_name)
]
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), BeforeValidator(words.variable_name)
]
FlagName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$"), BeforeValidator(words.flag_name)]
PathText = Annotated[str, AfterValidator(words.at_home)]
"""A path whose `~` is this user's home, where that is there: a prefix may lead elsewhere."""
Url = Annotated[
    str, AfterValidator(words.http_url), WithJsonSchema({"type": "string", "format": "uri"})
]


def _spelt(value: Any) -> Any:
    """Refuses `Unset`, which would be a text while `unset` takes away."""
    if isinstance(value, str) and value != UNSET and value.strip().lower() == UNSET:
        raise ValueError(
            f"'{value}' would be taken as a text, write {UNSET} in small letters to leave it unset"
        )
    return value


def _decimal(value: Any) -> Any:
    """Integers are written in decimal; anything else that is no text is refused."""
    if isinstance(value, bool):
        word = "true" if value else "false"
        raise ValueError(f'{word} is not the value of a variable, write "{word}" in quotes, 0 or 1')
    return str(value) if isinstance(value, int) else value


EnvValue = Annotated[
    str,
    BeforeValidator(_decimal),
    AfterValidator(_spelt),
    WithJsonSchema({"type": ["string", "integer"]}),
]
FlagChoice = Annotated[FlagValue, AfterValidator(_spelt)]
ListedChoice = Annotated[FlagChoice, AfterValidator(words.no_flag)]
"""Of a flag that takes several words: each stands on the command line by itself."""
ModelName = Annotated[PathText, AfterValidator(words.no_flag), AfterValidator(words.of_one_line)]
"""A name or a folder."""


class Strict(BaseModel):
    """No unknown keys, no conversion between types, no change after reading."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
