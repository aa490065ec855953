"""An import hook that calls a function right after the program imports a module, and not before.

Importing torch (or numpy) before the program would change the program: thread counts and device settings that it puts
into the environment before its own ``import torch`` would come too late.
"""

from __future__ import annotations

import _thread
import importlib.util
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_AGAIN_S = 0.01


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` once the module has been imported, or now if it is. Return a function that removes the hook."""
    if name in sys.modules:
        then()
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder(MetaPathFinder):
    """Finds one module by the other finders, and wraps ``exec_module`` of its loader."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then
        self.searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec with a wrapped loader; None for every other module."""
        del path, target
        if fullname != self.name or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            self._listen(spec)
        return spec

    def _listen(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        assert loader is not None
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            original(module)
            self.remove()
            try:
                self.then()
            except KeyboardInterrupt:
                # Raised here it would undo an import that is finished, and torch cannot be imported twice: it is raised
                # again as soon as the program goes on.
                again = threading.Timer(_AGAIN_S, _thread.interrupt_main)
                again.daemon = True
                again.start()

        # Set on this one instance, so that the loader keeps its type, source and resources.
        loader.exec_module = exec_module  # type: ignore[method-assign]

    def remove(self) -> None:
        """Remove the hook from ``sys.meta_path``."""
        if isinstance(sys.meta_path, list):
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        elif isinstance(sys.meta_path, tuple):  # set by the program
            sys.meta_path = tuple(finder for finder in sys.meta_path if finder is not self)
