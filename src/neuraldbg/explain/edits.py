"""Edits that apply a remedy to the user's program without a person: see ``nouns.Edit``.

Their code has the generic names of remedies (``model``, ``optimizer``, ``loss``, ``x``); ``verdict/user_names.py`` puts
the program's own in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns import Edit

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case


def before(at: str, code: str) -> Edit:
    """Return the edit that inserts statements before a line, such as that of the "backward" pass."""
    return Edit("before", at, code)


def after(at: str, code: str) -> Edit:
    """Return the edit that inserts statements after a line."""
    return Edit("after", at, code)


def arguments(code: str) -> Edit:
    """Return the edit that sets arguments of the call that makes the optimizer."""
    return Edit("arguments", "optimizer", code)


def once_made(code: str) -> Edit:
    """Return the edit that changes the finished model, just before its optimizer is made."""
    return Edit("before", "optimizer", code)


def exchanged(case: Case, path: str | None, new: str) -> str:
    """Return the code that exchanges a layer that is a module of its own; "" if it is none, or has weights."""
    layer = case.layout.by_path.get(path or "")
    if layer is None or not layer.path or layer.params or not layer.leaf:
        return ""
    return f"model.set_submodule({layer.path!r}, {new})"


def device_of(case: Case) -> str:
    """Return the type of device that a run trained on, as torch.amp takes it: "cpu" or "cuda"."""
    return "cpu" if case.run.info.device.startswith("cpu") else "cuda"
