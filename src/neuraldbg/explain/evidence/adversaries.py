"""The adversaries of a run: a generator, and a critic that sees its outputs and real data. No judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Call
    from neuraldbg.nouns.facts.outputs import Variety


class Adversaries(NamedTuple):
    """A generator with a critic, and the calls of both that were read."""

    generator: str
    """The part whose outputs another part gets."""
    made: list[Call]
    """Calls of the generator."""
    fake: list[Call]
    """Calls of critics with the generator's outputs."""
    real: list[Call]
    """Calls of the same critics with other data."""


def adversaries(case: Case, seen: list[Call]) -> list[Adversaries]:
    """Return each part whose output is another part's input, where that one also gets data of its own.

    A call is matched by shape, variation and size of its input: a ``detach()`` leaves no trace in the graph.
    """
    if len(case.run.streams) < 2:
        return []
    by_part: dict[str, list[Call]] = {}
    for call in seen:
        by_part.setdefault(call.of.part, []).append(call)
    found = []
    for part, calls_of in by_part.items():
        made = [call for call in calls_of if call.of.outputs]
        outputs = [(call.step, call.of.outputs[0]) for call in made]
        others = [call for name, theirs in by_part.items() if name != part for call in theirs]
        fake = [call for call in others if any(_given(call, step, output) for step, output in outputs)]
        critics, fakes = {call.of.part for call in fake}, {id(call) for call in fake}
        real = [call for call in others if call.of.part in critics and call.of.inputs and id(call) not in fakes]
        if real:
            found.append(Adversaries(part, made, fake, real))
    return found


def _given(call: Call, step: int, output: Variety) -> bool:
    """Return True if a call got an output that was made in the same step or beside it."""
    return any(
        abs(call.step - step) <= 1 and v.shape == output.shape and v.across == output.across and v.scale == output.scale
        for v in call.of.inputs
    )
