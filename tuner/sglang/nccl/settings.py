"""Which communication settings a space has: what NCCL reads from a server's environment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.config.field_types import UNSET
from tuner.config.point import Point
from tuner.config.schema import Sweep

_PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "CUDA_")
_NCCL = ("NCCL_", "TORCH_NCCL_")
_CUSTOM_OFF = "disable-custom-all-reduce"
BACK_END_FLAGS = (
    _CUSTOM_OFF,
    "enable-flashinfer-allreduce-fusion",
    "enable-mscclpp",
    "enable-nccl-nvls",
    "enable-symm-mem",
    "enable-torch-symm-mem",
)
"""SGLang's flags that choose what carries an all-reduce; only NCCL is measured here."""


def is_communication(variable: str) -> bool:
    """True for a variable that changes an all-reduce outside of SGLang too."""
    return variable.startswith(_PREFIXES)


def is_nccl(variable: str) -> bool:
    """True for a variable that does nothing where NCCL carries nothing."""
    return variable.startswith(_NCCL)


def without_nccl(point: Point) -> Point:
    """The point with NCCL left alone: equal for points that differ in NCCL settings only."""
    return replace(point, env=tuple(pair for pair in point.env if not is_nccl(pair[0])))


@dataclass(frozen=True)
class Setting:
    """The communication variables that are set; those of the space that are not are unset."""

    env: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, point: Point) -> "Setting":
        """The setting that a point's server runs with."""
        return cls(tuple(pair for pair in point.env if is_communication(pair[0])))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Setting":
        """What `to_json` wrote."""
        return cls(tuple(sorted(data["env"].items())))

    def to_json(self) -> dict[str, Any]:
        """The shape that files keep."""
        return {"env": dict(self.env)}

    @property
    def beside_nccl(self) -> tuple[tuple[str, str], ...]:
        """Its variables that are not NCCL's."""
        return tuple(pair for pair in self.env if not is_nccl(pair[0]))

    def label(self) -> str:
        """`NCCL_ALGO=Ring, NCCL_PROTO=LL`, or `unset`."""
        return ", ".join(f"{name}={value}" for name, value in self.env) or UNSET


def list_settings(points: Iterable[Point]) -> tuple[Setting, ...]:
    """Every setting that a point has, once; the one that sets least comes first."""
    found = dict.fromkeys(Setting.of(point) for point in points)
    return tuple(sorted(found, key=lambda setting: len(setting.env)))


def not_measured(sweep: Sweep) -> list[str]:
    """Sentences on what a benchmark of NCCL says nothing about."""
    said = []
    if flags := [f"--{name}" for name in sweep.space.flags if name in BACK_END_FLAGS]:
        said.append(
            f"{' and '.join(flags)} of the space: SGLang's own all-reduces are not NCCL and are "
            "not measured here, only servers can tell"
        )
    elif sweep.server.flags.get(_CUSTOM_OFF) is not True:
        said.append(
            "SGLang reduces with its own kernels before NCCL where it can (NVLink, or two GPUs "
            f"with P2P): there NCCL settings matter with --{_CUSTOM_OFF} alone"
        )
    if others := [name for name in sweep.space.env if not is_communication(name)]:
        said.append(
            f"{', '.join(others)} of the space: read by the server alone, not measured here"
        )
    return said
