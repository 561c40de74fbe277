"""Doubts about what was sent."""

from collections.abc import Iterator

from tuner.measure.checks.doubt import Doubt, Level


def tokenisation(level: Level) -> Iterator[Doubt]:
    """What was doubtful when the prompts were rendered."""
    if level.context.tokenise_doubt is not None:
        yield Doubt(
            "tokenisation",
            "doubt",
            level.context.tokenise_doubt,
            "see that the server's own clients send such prompts; acceptance depends on them",
        )


def random_prompts(level: Level) -> Iterator[Doubt]:
    """Prompts that are no text tell nothing of acceptance; the baseline has none."""
    if level.context.random_words is not None and level.context.num_steps is not None:
        yield Doubt(
            "random prompts",
            "note",
            f"{level.context.random_words}, so acceptance and speed-up tell nothing of traffic",
            "use prompts from your traffic, or builtin:mixed",
        )
