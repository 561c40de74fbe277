"""A server with speculation as the rules see it, before it is started."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.engine.base import server_config
from tuner.engine.sglang.releases import Release
from tuner.engine.sglang.spelling import spell
from tuner.sweep.model import ServerFlag, Sweep
from tuner.sweep.point import Point

TRUE = ("1", "true", "yes", "y", "on")
"""What SGLang reads as true in a variable, in lower case."""

SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


def looked_at(release: Release) -> frozenset[str]:
    """Variables that rules look at: points that differ in others alone break the same rule."""
    pipeline = release.text("pipeline_variable")
    return frozenset({SPEC_V2} if pipeline is None else {SPEC_V2, pipeline})


@dataclass(frozen=True)
class Broken:
    """A rule that a server breaks."""

    about: tuple[str, ...]
    """What the rule joins, the likeliest mistake first: flags, `algorithm`, `eagle_topk`, ..."""
    message: str
    """What is wrong, and what would be right."""


@dataclass(frozen=True)
class Planned:
    """A server with speculation that a sweep would start."""

    release: Release
    algorithm: str
    tp: int
    point: Point
    flags: Mapping[str, ServerFlag]
    """By the release's first name of each."""
    env: Mapping[str, str]
    """Those that a rule looks at (`looked_at`)."""

    @classmethod
    def of(cls, sweep: Sweep, point: Point, release: Release) -> "Planned":
        """The server of `point`; flags that the release lacks are left out."""
        config = server_config(sweep, point)
        flags: dict[str, ServerFlag] = {}
        for name, value in config.flags.items():
            spelled = spell(name, value, release)
            if spelled is not None and spelled.name is not None and spelled.value is not None:
                flags[release.arguments[spelled.name].name] = spelled.value
        model = sweep.model
        seen = looked_at(release)
        env = {name: value for name, value in config.env.items() if name in seen}
        return cls(release, model.algorithm or "", model.tp, point, flags, env)

    def flag(self, name: str) -> ServerFlag | None:
        """A flag's value under any of its names; None where it is not set."""
        argument = self.release.arguments.get(name)
        return None if argument is None else self.flags.get(argument.name)

    def number(self, name: str) -> int:
        """A flag's whole number, 0 where it has none."""
        value = self.flag(name)
        return int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0

    def is_set(self, name: str) -> bool:
        """True for a switch that is on, a list or a text."""
        return self.flag(name) not in (None, False)

    def has_variable(self, name: str) -> bool:
        """True where the variable is on, in the words that SGLang takes."""
        return self.env.get(name, "").lower() in TRUE

    @property
    def topk(self) -> int:
        """eagle_topk; NGRAM's is the breadth of its trie."""
        if self.algorithm == "NGRAM":
            return self.number("speculative-ngram-max-bfs-breadth") or 10
        return self.point.eagle_topk or 1

    @property
    def has_dp_attention(self) -> bool:
        """Attention split over data-parallel ranks, in either spelling."""
        return self.is_set("enable-dp-attention") or self.number("attn-dp-size") > 1
