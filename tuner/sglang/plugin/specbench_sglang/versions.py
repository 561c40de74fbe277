"""Which releases of SGLang the plug-in was written for, and how each does what it changes.

Sources: the wheels on PyPI. What each release must look like is in contract.py.
"""

import re
from dataclasses import dataclass

from .problems import NotPatched

PROVEN = tuple(f"0.5.{last}" for last in range(8, 24))
"""With draft TP: outputs and accepted counts equal to the stock server's; docs/draft_tp.md says on
what, docs/step_switch.md for switching."""
PROVEN_ON_GPUS = ("0.5.17",)
"""Those of them where that was shown on GPUs; the others on a CPU."""
OLDEST, NEWEST = (0, 5, 8), (0, 5, 23)
FIRST_WITH_STEPS = (0, 5, 13)


@dataclass(frozen=True)
class Version:
    """A known release: its first three numbers. A post release is as its release."""

    numbers: tuple[int, int, int]

    @property
    def has_v1(self) -> bool:
        """EAGLEWorker, the worker without overlap, was deleted in 0.5.13."""
        return self.numbers < (0, 5, 13)

    @property
    def tells_runner_sizes(self) -> bool:
        """A model runner is given tp_size, and a draft's the server's."""
        return self.numbers < (0, 5, 16)

    @property
    def has_parallel_state(self) -> bool:
        """Workers get their ranks and sizes as one ParallelState, later from get_parallel()."""
        return (0, 5, 16) <= self.numbers < (0, 5, 21)

    @property
    def sizes_pool_after_draft(self) -> bool:
        """The target's KV pool is sized when the draft's weights are already there."""
        return self.numbers >= (0, 5, 14)

    @property
    def overrides_parallel(self) -> bool:
        """get_parallel() may answer from a copy, no longer from the groups themselves."""
        return self.numbers >= (0, 5, 19)

    @property
    def parallel_fields(self) -> str:
        """What get_parallel().override takes: a set up to 0.5.20, then a function."""
        return "_PARALLEL_FIELDS" if self.numbers < (0, 5, 21) else "_parallel_fields"

    @property
    def context_name(self) -> str:
        """The module attribute of the workers that every draft forward is entered through."""
        return "draft_tp_context" if self.numbers >= (0, 5, 22) else "empty_context"

    @property
    def resolves_layout(self) -> bool:
        """The draft's placement is a DraftParallelLayout."""
        return self.numbers >= (0, 5, 23)

    @property
    def resolves_shared_weights(self) -> bool:
        """The shared embedding comes through _resolve_shared_embed_and_head."""
        return self.numbers >= (0, 5, 21)

    @property
    def switches_steps(self) -> bool:
        """Adaptive speculation with one worker and any lengths per batch size."""
        return self.numbers >= FIRST_WITH_STEPS

    @property
    def can_draft_nothing(self) -> bool:
        """0 may be among the lengths; 0.5.13 takes positive ones only, and would not verify."""
        return self.numbers >= (0, 5, 14)

    @property
    def forgets_captured_width(self) -> bool:
        """0.5.17 captures draft-extend at the width of the launch for every chain length."""
        return self.numbers == (0, 5, 17)

    @property
    def tree_module(self) -> str:
        """The module that calls build_tree_kernel_efficient for the V2 workers."""
        return "eagle_worker_common" if self.numbers >= (0, 5, 16) else "eagle_worker_v2"


def parse(text: str) -> Version:
    """Raises NotPatched for a release that the plug-in was not written for."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(\.post\d+)?(\+.*)?", text)
    numbers = (int(match[1]), int(match[2]), int(match[3])) if match else None
    if numbers is None or not OLDEST <= numbers <= NEWEST:
        raise NotPatched(
            f"SGLang {text} is not known; the plug-in was proven on {PROVEN[0]} to {PROVEN[-1]}"
        )
    return Version(numbers)


def installed() -> Version:
    """The SGLang of this interpreter."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return parse(version("sglang"))
    except PackageNotFoundError:
        from sglang.version import __version__

        return parse(str(__version__))
