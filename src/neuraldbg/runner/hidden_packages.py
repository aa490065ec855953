"""The package that shows the diagnosis, loaded before the program begins and hidden from it.

The program may have a module of the same name, clear ``sys.path``, or replace functions that an import calls; and an
import may draw from a generator of the program's (that of rich draws from ``random``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import ModuleType


@functools.cache
def apart(*names: str) -> Apart:
    """Load modules of one package, the package itself first, once in a process."""
    return Apart(*names)


class Apart:
    """The modules of one package, which are not in ``sys.modules`` except within ``present``."""

    def __init__(self, *names: str) -> None:
        self._package = names[:1]
        theirs, state = taken(self._package), random.getstate()
        try:
            for name in names:
                importlib.import_module(name)
        finally:
            random.setstate(state)
            self._ours = taken(self._package)
            sys.modules.update(theirs)

    @contextlib.contextmanager
    def present(self) -> Iterator[None]:
        """Put the modules into ``sys.modules`` for the body of the ``with``, in place of the program's own."""
        theirs = taken(self._package)
        sys.modules.update(self._ours)
        try:
            yield
        finally:
            self._ours = taken(self._package)
            sys.modules.update(theirs)

    def made(self, kind: type) -> bool:
        """Return True if a class is of these modules, and not of the program's own copy."""
        return getattr(self._ours.get(kind.__module__), kind.__name__, None) is kind


def taken(packages: Collection[str], but: Callable[[str, ModuleType], bool] | None = None) -> dict[str, ModuleType]:
    """Remove the modules of some packages from ``sys.modules``, except those for which ``but`` returns True, and return
    them.
    """
    loaded = list(sys.modules.items()) if packages else []
    found = {name: module for name, module in loaded if name.partition(".")[0] in packages}
    return {name: sys.modules.pop(name) for name, module in found.items() if but is None or not but(name, module)}
