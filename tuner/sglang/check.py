"""A sweep held against a release of SGLang: refused, narrowed or accepted, before any launch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuner.config.dimensions import DIMENSIONS
from tuner.config.loader import LoadedSweep
from tuner.config.pinned_flags import GRAPHS, RUNNING, given_flags, pins
from tuner.config.point import Point
from tuner.config.schema import ServerFlag, Sweep
from tuner.config.space import Space
from tuner.config.yaml_document import Document
from tuner.config.yaml_document import Path as Place
from tuner.core.errors import UserError
from tuner.server.base import Checked
from tuner.sglang.flag_spelling import find_argument, spell, unknown_flag
from tuner.sglang.releases import Release, parse_version
from tuner.sglang.rules import Broken, Planned, broken_rule, looked_at

_PLUGINS = ("SGLANG_PLUGINS", "SGLANG_PLATFORM", "SGLANG_EXTERNAL_MODEL_PACKAGE")


def check_named(text: str, loaded: LoadedSweep) -> None:
    """Raises UserError for a release that is not one, at its line where the file names it."""
    try:
        parse_version(text, "--sglang")
    except UserError as error:
        if loaded.sweep.engine.release != text:
            raise
        raise loaded.document.error(("engine", "release"), error.message) from error


def check(
    loaded: LoadedSweep,
    release: Release,
    also: frozenset[str] = frozenset(),
    on_hardware: bool = True,
) -> Checked:
    """The sweep as the release can run it. Raises UserError at the line of a mistake.

    Points that the release cannot run are taken out of the space, each with its reason; a value
    that no runnable point has is refused. `also` holds flags that the server itself lists beyond
    those of the table. Not `on_hardware`, nothing is told of what only a GPU chooses.
    """
    document = loaded.document
    checks = _Check(loaded, release, document, also)
    checks.flags()
    space = checks.narrowed()
    sweep = loaded.sweep
    notes = [f"for SGLang {release.known}"]
    notes += [release.warning] if release.warning else []
    notes += [f"--{name} {value} for every server: the file leaves it open and SGLang's default "
              "differs with speculation" for name, value in pins(sweep).items()]  # fmt: skip
    notes += checks.translations()
    if on_hardware:
        notes += [f"not pinned: {each.flag}: {each.why}" for each in confounds(sweep, release)]
    return Checked(replace(loaded, space=space), tuple(notes))


@dataclass(frozen=True)
class _Check:
    loaded: LoadedSweep
    release: Release
    document: Document
    also: frozenset[str]

    def flags(self) -> None:
        """Every flag exists in the release and takes its value. Raises UserError."""
        for place, name, value in _flags(self.loaded.sweep):
            if name in self.also and name not in self.release.arguments:
                continue
            if spell(name, value, self.release) is None:
                raise self.document.error(place, unknown_flag(name, self.release))
            argument = find_argument(name, value, self.release)
            spelled = spell(name, value, self.release)
            if argument is None or spelled is None or spelled.value is None:
                continue
            misfit = None if spelled.value is False else argument.misfit(spelled.value)
            if misfit is not None and not self._may_be_a_plugins(misfit):
                raise self.document.error(place, f"--{argument.name} {misfit}")

    def _may_be_a_plugins(self, misfit: str) -> bool:
        """Plug-ins add choices; an unknown release may have others."""
        open_ended = self.release.warning is not None or any(
            name in self.loaded.sweep.server.env for name in _PLUGINS
        )
        return open_ended and "one of" in misfit

    def translations(self) -> list[str]:
        """What the release spells otherwise, one sentence a flag."""
        found: dict[str, None] = {}
        for _, name, value in _flags(self.loaded.sweep):
            spelled = spell(name, value, self.release)
            if spelled is None or spelled.name == name or value is False:
                continue
            if spelled.name is None:
                found[f"--{name} {value} needs no flag on SGLang {self.release.known}"] = None
            else:
                shown = "" if spelled.value is True else f" {spelled.value}"
                found[f"--{name} is --{spelled.name}{shown} on SGLang {self.release.known}"] = None
        return list(found)

    def narrowed(self) -> Space:
        """The space without points that the release cannot run. Raises UserError."""
        space, sweep = self.loaded.space, self.loaded.sweep
        broken: dict[Point, Broken] = {}
        known: dict[Point, Broken | None] = {}
        seen = looked_at(self.release)
        for point in space.points:
            alike = replace(point, env=tuple(pair for pair in point.env if pair[0] in seen))
            if alike not in known:
                known[alike] = broken_rule(Planned.of(sweep, alike, self.release))
            if (found := known[alike]) is not None:
                broken[point] = found
        if not broken:
            return space
        left = [point for point in space.points if point not in broken]
        for point, why in broken.items():
            dead = [place for place, is_elsewhere in self._values(point, left) if not is_elsewhere]
            if dead:
                raise self._refusal(dead, bool(left), why)
        return space.without({point: why.message for point, why in broken.items()})

    def _refusal(self, dead: list[Place], some_are_left: bool, why: Broken) -> UserError:
        """At the likeliest mistake: a value that no runnable point has, or what every server has.

        Where some points can run, what every server has is no mistake by itself.
        """
        for name in why.about:
            place = self._place(name)
            if place is None:
                continue
            values = [each for each in dead if each[: len(place)] == place]
            if values or not (some_are_left or place[0] == "space"):
                return self.document.error(values[0] if values else place, why.message)
        return self.document.error(dead[0], why.message)

    def _values(self, point: Point, left: list[Point]) -> Iterator[tuple[Place, bool]]:
        """Each of the point's values with its place, and whether a point that is left has it."""
        for name in (dimension.name for dimension in DIMENSIONS):
            value = getattr(point, name)
            if value is not None and getattr(self.loaded.sweep.space, name) is not None:
                place = self._in_list(("space", name), value)
                # Chains' token counts follow from num_steps; they are nobody's mistake.
                if name != "num_draft_tokens" or isinstance(
                    self.loaded.sweep.space.num_draft_tokens, list
                ):
                    yield place, any(getattr(each, name) == value for each in left)
        for kind in ("env", "flags"):
            for pair in getattr(point, kind):
                place = self._in_list(("space", kind, pair[0]), pair[1])
                yield place, any(pair in getattr(each, kind) for each in left)
        yield ("space",), bool(left)

    def _in_list(self, place: Place, value: object) -> Place:
        values: object = self.document.value
        for part in place:
            values = values.get(part) if isinstance(values, dict) else None
        if isinstance(values, list) and value in values:
            return (*place, values.index(value))
        return place

    def _place(self, name: str) -> Place | None:
        """Where the file says something about a flag, a variable, a dimension or the algorithm."""
        places: list[Place] = [("model", name), ("space", name)]
        places += [(s, kind, name) for s in ("server", "space") for kind in ("flags", "env")]
        return next((place for place in places if place in self.document.lines), None)


def _flags(sweep: Sweep) -> Iterator[tuple[Place, str, ServerFlag]]:
    """Every flag of the file with each of its values, and the value's place."""
    for section, flags in (("server", sweep.server.flags), ("baseline", sweep.baseline.flags)):
        for name, value in flags.items():
            if value != "unset":
                yield (section, "flags", name), name, value
    for name, values in sweep.space.flags.items():
        for index, each in enumerate(values):
            if each != "unset":
                yield ("space", "flags", name, index), name, each


# Settings that speculation changes by itself, so that a comparison measures them as well.
#
# SGLang chooses some values differently with and without speculation, or by eagle_topk. Those that
# engine/pins.py does not pin for every server are told here.


_OVERLAP = "disable-overlap-schedule"
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


@dataclass(frozen=True)
class Confound:
    """One setting that differs between baseline and candidates, or between candidates."""

    flag: str
    why: str
    """What SGLang does unasked, and what would pin it."""


def confounds(sweep: Sweep, release: Release) -> tuple[Confound, ...]:
    """What stays different and is not pinned by the file or by `pins`."""
    given = given_flags(sweep)
    found = []
    if not {"attention-backend", "decode-attention-backend"} & given:
        found.append(
            Confound(
                "attention-backend",
                "SGLang chooses it by GPU, page size and eagle_topk, so baseline, chains and trees "
                "may run on different ones; pin it under server.flags",
            )
        )
    if "mem-fraction-static" not in given:
        found.append(
            Confound(
                "mem-fraction-static",
                "SGLang reserves more with speculation, so the KV cache differs; pin it under "
                "server.flags",
            )
        )
    if (why := _overlap(sweep, release)) is not None:
        found.append(Confound(_OVERLAP, f"{why}; {_OVERLAP}: true under server.flags pins it off"))
    only_there = sorted((set(sweep.baseline.flags) - set(sweep.server.flags)) & {RUNNING, GRAPHS})
    found += [
        Confound(name, "the baseline alone has it; write it under server.flags instead")
        for name in only_there
    ]
    return tuple(found)


def _overlap(sweep: Sweep, release: Release) -> str | None:
    """Why the overlap scheduler is on for some servers of the run and off for others."""
    if sweep.server.flags.get(_OVERLAP) is True or _OVERLAP in sweep.space.flags:
        return None
    if sweep.model.algorithm == "NGRAM":
        if release.at_least("0.5.14"):
            return None
        return f"SGLang {release.known} turns the overlap scheduler off for NGRAM"
    asked = sweep.server.env.get(_SPEC_V2, "").lower()
    if not release.at_least("0.5.11"):
        if asked in ("1", "true"):
            return None
        return (
            f"SGLang {release.known} turns the overlap scheduler off for speculation and leaves it "
            f"on for the baseline ({_SPEC_V2}=1 keeps it for chains)"
        )
    if release.at_least("0.5.13"):
        return None
    topk = sweep.space.eagle_topk
    trees = topk is not None and (
        topk if isinstance(topk, list) else range(topk.low, topk.high + 1)
    )
    if trees and max(trees) > 1:
        return f"SGLang {release.known} turns the overlap scheduler off for trees only"
    return None
