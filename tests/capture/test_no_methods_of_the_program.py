"""The source of capture asks no module, optimizer or container of the program by its own methods.

What may be asked stands in ``program_objects`` and ``module_tree``. This finds what can be told from the source alone;
``test_tripwires`` counts the calls.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import neuraldbg

CAPTURE = Path(neuraldbg.__file__).parent / "capture"
METHODS = frozenset({
    "buffers", "children", "modules", "named_buffers", "named_children", "named_modules", "named_parameters",
    "parameters", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
})  # fmt: skip
"""Methods of a module that a class of the program may override; ``module_tree`` has functions for them."""
ATTRIBUTES = frozenset({"param_groups"})
"""What may be a property of an optimizer of the program."""
KEYED = frozenset({"WeakKeyDictionary", "WeakSet"})
"""Collections that hash and compare what they hold: ``Identities`` takes their place."""
HOLD_OURS = frozenset({"module_call.py", "gradient_tap.py", "guard.py", "own_hooks.py", "dynamo_guards.py"})
"""Files whose weak collections hold objects of ours or of Dynamo."""
OURS = frozenset({"program_facts"})
"""Modules of ours that have functions of these names."""


def findings(source: str) -> list[tuple[int, str]]:
    """Return the lines of a source that ask the program's objects, and what they ask."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            asked = node.func.value
            if not (isinstance(asked, ast.Name) and asked.id in OURS):
                found.append((node.lineno, f".{node.func.attr}()"))
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES | KEYED:
            found.append((node.lineno, f".{node.attr}"))
    return found


@pytest.mark.parametrize("path", sorted(CAPTURE.rglob("*.py")), ids=lambda path: str(path.relative_to(CAPTURE)))
def test_the_source_asks_nothing(path: Path) -> None:
    found = findings(path.read_text(encoding="utf-8"))
    weak = {f".{name}" for name in KEYED} if path.name in HOLD_OURS else set()
    assert [(line, what) for line, what in found if what not in weak] == []


def test_what_is_looked_for_is_found() -> None:
    source = "model.named_modules()\nopt.param_groups\nweakref.WeakKeyDictionary()\nmodules(model)\n"
    assert findings(source) == [(1, ".named_modules()"), (2, ".param_groups"), (3, ".WeakKeyDictionary")]
