"""Trainings as ordinary scripts: the healthy ones of ``corpus/tasks/`` and edits that make other trainings of them.

An edit is what a person's mistake is: some lines of a working script written differently. The edited text is again an
ordinary script, and taking the edit back is the fix. ``python -m tests.faults.show NAME`` prints one.
"""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.golden import Golden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CORPUS = Path(__file__).parents[2] / "corpus"
TASKS = CORPUS / "tasks"
FAMILIES = (
    "loop",
    "wiring",
    "loss",
    "data",
    "optimisation",
    "architecture",
    "precision",
    "several",
    "scary",
    "unclear",
)
"""Modules of tests.faults.injectors; each defines EDITS."""

Change = tuple[str, str] | tuple[str, str, int]
"""Old text, new text, and how often the old text must occur (once, where no number is given)."""


class EditError(ValueError):
    """An edit does not fit its script."""


@dataclass(frozen=True)
class Edit:
    """A training made from a healthy script by changing some of its text."""

    name: str
    task: str
    changes: Sequence[Change]
    golden: Golden
    raises: bool = False
    """Whether the script ends with an exception."""


@dataclass(frozen=True)
class Script:
    """A training as text."""

    name: str
    task: str
    text: str
    golden: Golden
    family: str
    """``tasks``, the module that holds the edit, or ``reports``."""
    raises: bool = field(default=False)

    def run(self) -> None:
        """Execute as ``python NAME.py`` would, in a fresh ``__main__``."""
        path = _folder() / f"{self.name}.py"
        path.write_text(self.text, encoding="utf-8")  # so that tracebacks, and who reads source, find their lines
        main = types.ModuleType("__main__")
        main.__file__ = str(path)
        before = sys.modules["__main__"]
        sys.modules["__main__"] = main  # data loaders' workers and pickles look classes up there
        try:
            exec(compile(self.text, str(path), "exec"), main.__dict__)
        finally:
            sys.modules["__main__"] = before


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="faults-"))


@functools.cache
def source(task: str) -> str:
    """Return the text of a healthy script."""
    return (TASKS / f"{task}.py").read_text(encoding="utf-8")


def edited(one: Edit) -> str:
    """Apply an edit to its script. EditError where it does not fit."""
    return changed(one.name, one.task, source(one.task), one.changes)


def changed(name: str, script: str, text: str, changes: Sequence[Change]) -> str:
    """Apply changes to a script's text. EditError where an old text does not occur as often as it should."""
    for change in changes:
        old, new, times = change if len(change) == 3 else (*change, 1)
        found = text.count(old)
        if found != times:
            message = f"{name}: {old!r} occurs {found} times in {script}.py, not {times}"
            raise EditError(message)
        text = text.replace(old, new)
    return text


@functools.cache
def every() -> Mapping[str, Script]:
    """Return all scripts by name: tasks first."""
    found = {}
    for path in sorted(TASKS.glob("*.py")):
        found[path.stem] = Script(path.stem, path.stem, source(path.stem), Golden(), "tasks")
    for family in FAMILIES:
        for one in importlib.import_module(f"tests.faults.injectors.{family}").EDITS:
            if one.name in found:
                message = f"two scripts are called {one.name}"
                raise EditError(message)
            found[one.name] = Script(one.name, one.task, edited(one), one.golden, family, one.raises)
    return types.MappingProxyType(found)
