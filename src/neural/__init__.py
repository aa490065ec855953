"""The `.neural` language: models that are described in a file.

Names are loaded when first used, so that importing this package imports neither torch nor lark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neural.building import build, compile_plan, load
    from neural.check.checker import checked
    from neural.errors import (
        CheckFailed,
        FileUnreadable,
        MissingPackage,
        NeuralError,
        Problem,
        SourceError,
        SyntaxFault,
    )
    from neural.language.formatter import formatted
    from neural.language.reader import parse, read
    from neural.language.tree import SourceFile
    from neural.plan import LayerPlan, Plan

_HOME = {
    "CheckFailed": "neural.errors",
    "FileUnreadable": "neural.errors",
    "LayerPlan": "neural.plan",
    "MissingPackage": "neural.errors",
    "NeuralError": "neural.errors",
    "Plan": "neural.plan",
    "Problem": "neural.errors",
    "SourceError": "neural.errors",
    "SourceFile": "neural.language.tree",
    "SyntaxFault": "neural.errors",
    "build": "neural.building",
    "checked": "neural.check.checker",
    "compile_plan": "neural.building",
    "formatted": "neural.language.formatter",
    "load": "neural.building",
    "parse": "neural.language.reader",
    "read": "neural.language.reader",
}

__all__ = [
    "CheckFailed",
    "FileUnreadable",
    "LayerPlan",
    "MissingPackage",
    "NeuralError",
    "Plan",
    "Problem",
    "SourceError",
    "SourceFile",
    "SyntaxFault",
    "build",
    "checked",
    "compile_plan",
    "formatted",
    "load",
    "parse",
    "read",
]

if not TYPE_CHECKING:  # a type checker sees the names above, and misses what is missing

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            message = f"module 'neural' has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
