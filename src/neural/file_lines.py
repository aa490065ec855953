"""The lines of a `.neural` file that a diagnosis is about: what was found in the compiled program, said of the file.

A diagnosis as JSON and a plan enter, sentences leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from neural.language.tree import Network, SourceFile
    from neural.plan import LayerPlan, Plan

_SECTIONS = {"the loss is computed": "loss", "the optimizer is created": "optimizer"}
"""Words of a place in the compiled program, with the section of the file that made it."""
_LONGEST = 5
"""Lines of a section that are shown."""
_SCHEDULE = "the scheduler is created"


def file_lines(diagnosis: Mapping[str, Any], plan: Plan, source: SourceFile) -> list[str]:
    """Return what the first cause is about: a heading and lines with their numbers; [] if there is none."""
    causes = diagnosis.get("hypotheses") or ()
    if not causes or diagnosis.get("verdict") not in ("failing", "suspect"):
        return []
    numbers = sorted(set(_numbers(causes[0], plan, source)))
    text = source.text.split("\n")
    width = len(str(numbers[-1])) if numbers else 0
    lines = [f"  {number:>{width}} | {text[number - 1].rstrip()}" for number in numbers if 0 < number <= len(text)]
    return [f"In {source.file}:", *lines] if lines else []


def _numbers(cause: Mapping[str, Any], plan: Plan, source: SourceFile) -> Iterator[int]:
    layer = layer_at(cause.get("layer") or "", plan)
    if layer is not None:
        yield layer.span.line
    network = next((one for one in source.networks if one.name == plan.name), None)
    if network is None:
        return
    sections = _sections(network)
    for place in cause.get("places") or ():
        what = place.get("what")
        name = _SECTIONS.get(what, "")
        if what == _SCHEDULE:
            name = "lr_schedule" if "lr_schedule" in sections else "optimizer"
        if name in sections:
            yield from sections[name]


def _sections(network: Network) -> dict[str, range]:
    """Return the lines of each section, of a long one the first."""
    return {
        one.name: range(one.name_span.line, min(one.span.end_line, one.name_span.line + _LONGEST - 1) + 1)
        for one in network.sections
    }


def layer_at(path: str, plan: Plan) -> LayerPlan | None:
    """Return the innermost layer of the file that a path in the model belongs to, None if it belongs to none."""
    found: LayerPlan | None = None
    known = plan.layers
    for part in path.split("."):
        inner = next((one for one in known if one.name == part), None)
        if inner is None:
            break
        found, known = inner, inner.children
    return found
