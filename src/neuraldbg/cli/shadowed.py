"""Modules of Python's library, or of packages of ours, by whose names the program's folder has modules of its own.

Python looks into the program's folder first. So the program must find its own ``html.py`` or ``click.py`` although the
command line has loaded the other one; and what is imported for the session after the program has begun must find the
other one although the program's lies first on the path: it may be a script that ends the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from threading import get_ident
from typing import TYPE_CHECKING

from neuraldbg.cli import before
from neuraldbg.cli.apart import taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_ONE = frozenset({"neuraldbg", "numpy", "torch", "triton"})
"""Packages that cannot be loaded twice, or of which the session must have the one that the program has."""


class Shadowed:
    """Keeps ours and the program's apart. A program whose folder has no such module is left as it is."""

    def __init__(self, folder: str | None) -> None:
        """Take what the program would not find by such a name out of its sight. ``folder`` is the one, or the zip
        archive, that Python would put first on the path for it; None for none.
        """
        self._path = [entry for entry in sys.path[1:] if entry]
        self._names = frozenset(self._shadowed(folder)) if folder is not None else frozenset()
        self._ours = taken(self._names)
        self._thread = 0

    @contextlib.contextmanager
    def present(self) -> Iterator[None]:
        """Have this thread's imports find ours for a while, and not what the program has by these names."""
        if not self._names:
            yield
            return
        theirs = taken(self._names)
        self._thread = get_ident()
        sys.modules.update(self._ours)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            self._ours = taken(self._names)
            sys.modules.update(theirs)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the names as if the program's folder were not on the path; None for any other module."""
        if path is not None or fullname not in self._names or get_ident() != self._thread:
            return None
        return PathFinder.find_spec(fullname, self._path, target)

    def _shadowed(self, folder: str) -> Iterator[str]:
        if any(os.path.realpath(entry) == os.path.realpath(folder) for entry in self._path):
            return  # it is a folder of packages
        for name in _names_in(folder) - before.LOADED - _ONE:
            if BuiltinImporter.find_spec(name) is not None or FrozenImporter.find_spec(name) is not None:
                continue  # comes before the path
            theirs = PathFinder.find_spec(name, [folder])
            if theirs is not None and theirs.loader is not None and PathFinder.find_spec(name, self._path) is not None:
                yield name


def _names_in(folder: str) -> set[str]:
    """Return the names that a folder may have modules by."""
    try:
        return {entry.partition(".")[0] for entry in os.listdir(folder)}  # noqa: PTH208 (names, as strings)
    except OSError:  # an archive
        return {*sys.stdlib_module_names, *(name.partition(".")[0] for name in list(sys.modules))}
