"""Modules of the program's folder that have the names of modules of Python's library or of packages of ours.

Python searches the program's folder first. So the program must find its own ``html.py`` or ``click.py`` although the
command line has loaded the other one; and imports for the session after the program has begun must find the other one
although the program's is first on the path: it may be a script that ends the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
import zipfile
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder, all_suffixes
from threading import get_ident
from typing import TYPE_CHECKING

from neuraldbg.runner import modules_before
from neuraldbg.runner.hidden_packages import taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_ONE = frozenset({"numpy", "torch", "triton"})
"""Packages that cannot be loaded twice: the session uses the program's, if the program has imported torch."""
_SUFFIXES = tuple(all_suffixes())
_LIBRARIES = frozenset(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))


class Shadowed:
    """Keeps our modules and the program's apart. It does nothing if the folder has no such module."""

    def __init__(self, folder: str | None) -> None:
        """Remove our modules with such names from ``sys.modules``. ``folder`` is the folder or zip archive that Python
        puts first on the path for the program; None for none.
        """
        self._folder = folder
        here = os.path.realpath(folder) if folder is not None else None
        self._path = [entry for entry in sys.path[1:] if entry and os.path.realpath(entry) != here]
        found = frozenset(self._shadowed(folder)) if folder is not None and here not in _LIBRARIES else frozenset()
        self._names, self._late = found - _ONE, found & _ONE
        self._ours = taken(self._names)
        self._thread = 0

    @contextlib.contextmanager
    def present(self) -> Iterator[None]:
        """Let imports of this thread find our modules instead of the program's, for the body of the ``with``.

        If other threads run, modules that the program has loaded stay: those threads may be importing parts of them.
        """
        if "torch" not in sys.modules:  # the program has ended without torch, and uses none of ``_ONE``
            self._names |= self._late
        names = self._names
        if threading.active_count() > 1:
            names -= {name.partition(".")[0] for name in list(sys.modules)}
        if not names:  # nearly all programs
            yield
            return
        # Modules that another thread of the program imports meanwhile go back to the program at the end.
        theirs: dict[str, ModuleType] = {}
        try:
            theirs.update(taken(names))
            sys.modules.update({name: each for name, each in self._ours.items() if name.partition(".")[0] in names})
            self._thread = get_ident()
            if isinstance(sys.meta_path, list):
                sys.meta_path.insert(0, self)
            yield
        finally:
            with contextlib.suppress(ValueError, AttributeError):  # the program may have put anything there
                sys.meta_path.remove(self)
            self._ours.update(taken(names, but=self._of_the_program))
            sys.modules.update(theirs)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the names as if the program's folder were not on the path. Return None for any other module."""
        if path is not None or fullname not in self._names or get_ident() != self._thread:
            return None
        return PathFinder.find_spec(fullname, self._path, target)

    def _of_the_program(self, name: str, module: ModuleType) -> bool:
        """Return True for a module that another thread of the program has imported meanwhile."""
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or self._folder is None or not file.startswith(self._folder + os.sep):
            return False  # an environment may lie in the folder, too: the first part of the path decides
        first = file[len(self._folder) + 1 :].partition(os.sep)[0]
        return first.partition(".")[0] == name.partition(".")[0]

    def _shadowed(self, folder: str) -> Iterator[str]:
        for name in _names_in(folder) - modules_before.LOADED:
            if BuiltinImporter.find_spec(name) is not None or FrozenImporter.find_spec(name) is not None:
                continue  # these finders come before the path
            theirs = PathFinder.find_spec(name, [folder])
            if theirs is not None and theirs.loader is not None and PathFinder.find_spec(name, self._path) is not None:
                yield name


def _names_in(folder: str) -> set[str]:
    """Return the names that modules of a folder or an archive may have."""
    try:
        if os.path.isdir(folder):  # noqa: PTH112 (strings, as Python has them)
            entries = os.listdir(folder)  # noqa: PTH208
        else:
            with zipfile.ZipFile(folder) as archive:
                entries = [name.partition("/")[0] for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return set()
    stems = (entry.partition(".")[0] for entry in entries if "." not in entry or entry.endswith(_SUFFIXES))
    return {stem for stem in stems if stem.isidentifier() and stem != "neuraldbg"}
