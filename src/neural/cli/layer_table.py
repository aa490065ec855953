"""A plan as text: the table of its layers, how it is trained, and what was decided for it."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from neural.language.formatter import value_text
from neural.plan import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neural.language.tree import SourceFile
    from neural.plan import LayerPlan, PartPlan, Plan

WIDTH = 100


def table(plan: Plan) -> str:
    """Return the lines that `neural check` prints."""
    rows = [("layer", "output", "parameters")]
    for layer in plan.layers:
        rows += _rows(layer, 0)
    rows.append(("total", "", f"{plan.parameter_count:,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    inputs = ", ".join(
        (f"{each.name} " if each.name != "input" else "") + shape_text(each.shape) + (" of ids" if each.ids else "")
        for each in plan.inputs
    )
    lines = [f"{plan.file}: network {plan.name}, input {inputs}", ""]
    lines += [
        f"  {name:<{widths[0]}}  {shape:<{widths[1]}}  {count:>{widths[2]}}".rstrip() for name, shape, count in rows
    ]
    fixed = plan.parameter_count - plan.trainable
    if fixed:
        lines.append(f"  of which {fixed:,} are not trained: moving averages, or trainable=false")
    lines += ["", *_training(plan)]
    if plan.notes:
        lines += ["", *_notes(plan)]
    return "\n".join(lines)


def _rows(layer: LayerPlan, depth: int, around: str = "") -> Iterator[tuple[str, str, str]]:
    """Return the row of a layer, and those of its block by the paths that `--breakpoint` takes."""
    yield ("  " * depth + around + layer.name, shape_text(layer.shape), f"{layer.parameter_count:,}")
    for child in layer.children:
        if layer.type == "Bidirectional":  # one program for each direction, which have names of their own
            for name in ("ahead", "back"):
                yield from _rows(replace(child, name=name), depth + 1, f"{around}{layer.name}.")
        else:
            yield from _rows(child, depth + 1, f"{around}{layer.name}.")


def _training(plan: Plan) -> Iterator[str]:
    training = plan.training
    yield f"  loss {plan.loss.type}, optimizer {_part(plan.optimizer)}" + (f" on {plan.device}" if plan.device else "")
    if plan.schedule is not None:
        yield f"  learning rate {_part(plan.schedule)}"
    yield f"  {_counted(training['epochs'], 'epoch')} of batches of {training['batch_size']}" + (
        f", {training['validation_split']:g} of the data for validation" if training["validation_split"] else ""
    )


def _part(part: PartPlan) -> str:
    """Return a name with the parameters that say most: numbers that are not 0."""
    shown = {key: each for key, each in part.parameters.items() if each}
    return f"{part.type}({', '.join(f'{key}={each}' for key, each in shown.items())})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _notes(plan: Plan) -> Iterator[str]:
    """Return the notes, those with the same words once."""
    lines: dict[tuple[str, bool], list[int]] = {}
    for note in plan.notes:
        lines.setdefault((note.text, note.approximated), []).append(note.line)
    for (text, approximated), at in lines.items():
        places = ", ".join(map(str, dict.fromkeys(at)))
        head = "  approximated" if approximated else "  note"
        where = f", line{'s' if ',' in places else ''} {places}: "
        yield from textwrap.wrap(head + where + text, WIDTH, subsequent_indent="    ")


def research_lines(source: SourceFile) -> str:
    """Return what a file without networks says about results and papers."""
    lines = []
    for research in source.research:
        lines.append(f"{source.file}: research {research.name or 'without a name'}, and no network")
        lines += [f"  {setting.name}: {value_text(setting.value)}" for setting in research.settings]
    return "\n".join(lines)
