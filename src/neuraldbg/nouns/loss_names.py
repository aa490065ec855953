"""The names of the losses of a run whose optimizers have one each, such as both losses of a GAN."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.outputs import OutputsFact
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns.run import RunRecord

BACKWARD = frozenset({"backward", "manual_backward"})
"""Functions that differentiate the loss that they are called on, or given."""
LONGEST = 40
"""Characters of a name; a longer expression is none."""
MEAN, OF = "mean of ", "loss of "
PARTS = 3
"""Largest number of models, or parts of one, that name a loss."""


def loss_names(run: RunRecord) -> dict[int, str]:
    """Return the name of each optimizer's loss, by the optimizer's number: ``loss`` if the run has one of one name.

    It is the name that the program gives it (``loss_d`` of ``loss_d.backward()``), else the model that is called in
    that one of several trainings, else what that optimizer trains (``loss of discriminator``), else ``loss of
    optimizer 1``. No two names are equal.
    """
    streams = [stream for stream in run.streams if len(run.scalar("loss", stream))]
    if len(streams) < 2:
        # Losses that are differentiated one after the other before a step are recorded as their mean.
        return {at: name if name.startswith(MEAN) else "loss" for at, name in zip(streams, _in_code(run, streams))}  # noqa: B905
    for names in (_in_code(run, streams), _by_calls(run, streams), _by_weights(run, streams)):
        if len({*names} - {""}) == len(streams):
            return dict(zip(streams, names, strict=True))
    return {stream: f"{OF}optimizer {stream}" for stream in streams}


def parts(name: str) -> list[str]:
    """Return the names in the program of which the name of a loss is the mean; empty if it is one loss."""
    return name.removeprefix(MEAN).split(" and ") if name.startswith(MEAN) else []


def loss_words(name: str) -> str:
    """Return the name of a loss for a sentence: ``the loss``, ``the loss of critic``, ``'d_loss'``."""
    if name == "loss" or name.startswith((OF, MEAN)):
        return f"the {name}"
    return repr(name) if "loss" in name.lower() else f"the loss {name!r}"


def _in_code(run: RunRecord, streams: Sequence[int]) -> list[str]:
    """Return the name of each loss in the lines that differentiate it; "" if it has none."""
    known = run.known(PlacesFact)
    lines = known.lines if known is not None else {}
    found = []
    for stream in streams:
        names = list(dict.fromkeys(differentiated(at.text) for at in lines.get(f"backward {stream}", ())))
        several = len(names) > 1 and all(names)
        found.append(f"{MEAN}{' and '.join(names)}" if several else names[0] if len(names) == 1 else "")
    return found


def differentiated(line: str) -> str:
    """Return the name of the loss whose backward pass a line of code calls; "" if the line does not say."""
    try:
        tree = ast.parse(line)
    except (SyntaxError, ValueError, RecursionError):  # a part of a longer statement
        return ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in BACKWARD:
            continue
        holder = node.func.value
        if isinstance(holder, ast.Call):  # scaler.scale(loss).backward()
            holder = holder.args[0] if len(holder.args) == 1 else holder
        elif node.args:  # accelerator.backward(loss), self.manual_backward(loss)
            holder = node.args[0]
        name = ast.unparse(holder) if isinstance(holder, (ast.Name, ast.Attribute, ast.Subscript)) else ""
        return name if len(name) <= LONGEST else ""
    return ""


def _by_calls(run: RunRecord, streams: Sequence[int]) -> list[str]:
    """Return "loss of" the one model that is called in the steps of each optimizer, where one trains after the other;
    "" if several are. Which of its weights are trained does not matter, as in fine-tuning by stages.
    """
    history = run.history
    order = history.stream[np.isin(history.stream, streams)]
    if np.count_nonzero(np.diff(order)) != len(streams) - 1:  # they step by turns
        return []
    called: dict[int, set[str]] = {stream: set() for stream in streams}
    for step, fact in run.versions(OutputsFact):
        row = int(np.searchsorted(history.steps, step, side="right")) - 1
        if row >= 0 and int(history.stream[row]) in called:
            called[int(history.stream[row])].add(fact.model)
    return [f"{OF}{min(names)}" if len(names) == 1 else "" for names in called.values()]


def _by_weights(run: RunRecord, streams: Sequence[int]) -> list[str]:
    """Return "loss of" the models, or parts of one model, that each optimizer changes; "" if they share one."""
    rows = run.layout.rows("update")
    if not rows:
        return []
    read = run.history.stat(rows, "count", "max") > 0
    paths = [
        {run.layout.sites[row].module for row, hit in zip(rows, read[run.history.stream == stream].any(axis=0)) if hit}  # noqa: B905
        for stream in streams
    ]
    if not all(paths):
        return []
    models = [{run.layout.by_path[path].model for path in mine if path in run.layout.by_path} for mine in paths]
    deepest = max(path.count(".") for mine in paths for path in mine) + 1
    parts = [[{".".join(path.split(".")[:depth]) for path in mine} for mine in paths] for depth in range(1, deepest)]
    for owners in (models, *parts):
        apart = len(set().union(*owners)) == sum(map(len, owners))
        if apart and all(0 < len(mine) <= PARTS for mine in owners):
            return [f"{OF}{', '.join(sorted(mine))}" for mine in owners]
    return []
