"""Call a function with a module as soon as SGLang has imported it."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

Patch = Callable[[ModuleType], None]
_DONE = "_specbench_patched"


class PostImport(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, and patches it after it has run.

    A patch that raises makes the import fail: SGLang must not run half patched.
    """

    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = patches
        self._searching: set[str] = set()

    def install(self) -> None:
        """Watch for modules to come, and patch those that are already there."""
        if not any(isinstance(finder, PostImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, self)
        # A module in the middle of its own import is patched when it is done.
        self.patch_loaded(lambda module: not getattr(module.__spec__, "_initializing", False))

    def patch_loaded(self, which: Callable[[ModuleType], bool] = lambda _: True) -> None:
        """Patch those that are there."""
        for name in self._patches:
            module = sys.modules.get(name)
            if module is not None and which(module):
                self._patch(module)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._patches or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.discard(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            self._patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec

    def _patch(self, module: ModuleType) -> None:
        if not getattr(module, _DONE, False):
            setattr(module, _DONE, True)
            self._patches[module.__name__](module)
