"""Faults rebuilt from public reports, as texts: names of scripts enter, scripts of ``corpus/`` and mended ones leave.

A mended script is its fault with the changes of ``corpus/fixes.py``; it is called as the fault, with ``_fixed`` behind.
"""

from __future__ import annotations

import functools
import json
import types
from typing import TYPE_CHECKING, Any

from corpus.fixes import FIXES
from tests.faults.edits import CORPUS, Script, changed
from tests.faults.golden import golden

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FAULTS = CORPUS / "faults"
HEALTHY = CORPUS / "healthy"
WRITTEN: Mapping[str, dict[str, Any]] = json.loads((CORPUS / "goldens.json").read_text(encoding="utf-8"))
"""Answer of each script of the corpus, by the name of its file."""
NOTHING: Mapping[str, Any] = {"cause": [], "layer": None, "step": None, "note": "mended"}
GOLDENS = {**WRITTEN, **{f"{fault}_fixed.py": {**WRITTEN[f"{fault}.py"], **NOTHING} for fault in FIXES}}
"""Answer of each script, the mended ones too, with which nothing is wrong."""


def mended(fault: str) -> str:
    """Apply a fault's fix. EditError where the fix does not fit the fault."""
    text = (FAULTS / f"{fault}.py").read_text(encoding="utf-8")
    return changed(f"{fault}_fixed", fault, text, FIXES[fault])


@functools.cache
def every() -> Mapping[str, Script]:
    """Return all scripts by name. Their goldens hold the cause alone: `benchmarks/reports.py` grades the rest."""
    texts = {path.stem: path.read_text(encoding="utf-8") for room in (FAULTS, HEALTHY) for path in room.glob("*.py")}
    texts |= {f"{fault}_fixed": mended(fault) for fault in FIXES}
    found = {}
    for name, text in sorted(texts.items()):
        answer = golden(tuple(GOLDENS[f"{name}.py"]["cause"]))
        found[name] = Script(name, name.removesuffix("_fixed"), text, answer, "reports")
    return types.MappingProxyType(found)


def script(name: str, folder: Path) -> Path:
    """Return a script's file: that of the corpus, or a mended one that is written into the folder."""
    for room in (FAULTS, HEALTHY):
        if (room / f"{name}.py").exists():
            return room / f"{name}.py"
    path = folder / f"{name}.py"
    path.write_text(mended(name.removesuffix("_fixed")), encoding="utf-8")
    return path
