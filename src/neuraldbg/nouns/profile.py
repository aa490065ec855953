"""The profile of a run: where its time and its memory went, and what to do about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import DIM, div, listed, safe, shown
from neuraldbg.nouns.json import jsonable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns.facts.footprint import FootprintFact
    from neuraldbg.nouns.facts.growth import GrowthFact
    from neuraldbg.nouns.facts.timing import TimingFact


PROFILE_SCHEMA = "neuraldbg.profile/1"
_LAYERS = 12
"""Layers in a notebook's table."""


@dataclass(frozen=True)
class Bottleneck:
    """One thing that costs a large share of the time or the memory, and its remedy.

    >>> for one in run.profile().bottlenecks:
    ...     assert one.text and (one.share is None or 0 <= one.share <= 1)
    """

    kind: str
    """``data_loading``, ``one_layer``, ``many_small_layers``, ``optimizer``, ``outside``, ``leak``, ``peak``, ..."""
    text: str
    """What was measured, with its numbers: "37% of the step, 9 ms, waits for the data loader"."""
    remedy: str
    """What to change, as code where it can be; empty if nothing is known."""
    share: float | None = None
    """Share of the step's time, or of the memory; None if it is none."""
    layer: str | None = None
    """The layer that it is about; None for the whole."""


@dataclass(frozen=True)
class Profile:
    """Time, work and memory of a run, as measured in sampled steps. Seconds, bytes, floating-point operations.

    ``to_dict()`` is the JSON of ``neuraldbg profile --json``.

    >>> profile = run.profile()
    >>> profile.timing.step_s > 0
    True
    >>> max(profile.timing.layers, key=lambda one: one.own_forward_s).layer in ("0", "1", "2", "")
    True
    """

    timing: TimingFact | None = None
    """Time and work of a step and of each layer; None if no step was timed."""
    footprint: FootprintFact | None = None
    """Memory of a step and of each layer; None if it was not measured."""
    growth: GrowthFact | None = None
    """Memory that does not come back; None if it was not counted."""
    bottlenecks: tuple[Bottleneck, ...] = ()
    """The largest first."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
    outputs: int | None = None
    """Bytes of the outputs of the innermost layers in a step, from the sizes of those that were read; None if unknown.
    Not all of them are kept for the backward pass, and it keeps others: ``footprint.activations`` is measured."""

    def __str__(self) -> str:
        """Return the parts of the step, the bottlenecks and the notes, a line each."""
        caution = self.timing.caution() if self.timing is not None else ""
        lines = [caution, ", ".join(f"{name} {share:.0%}" for name, _, share in self.parts())]
        lines = [line for line in lines if line]
        lines += [f"{one.text}. {one.remedy}".strip() for one in self.bottlenecks]
        return "\n".join([repr(self), *lines, *(note for note in self.notes if note != caution)])

    def __repr__(self) -> str:
        if self.timing is None:
            return "<Profile: no step was timed>"
        kind = "timed" if self.timing.by_hand else "sampled"
        steps = f"{self.timing.steps} {kind} step{'' if self.timing.steps == 1 else 's'}"
        kinds = ", ".join(one.kind for one in self.bottlenecks)
        return f"<Profile: {1000 * self.timing.ordinary_s:.3g} ms a step, {steps}; bottlenecks: {kinds or 'none'}>"

    def parts(self) -> Iterator[tuple[str, float, float]]:
        """Yield the parts of a typical step that take time: name, seconds, share of the step. None are told if the
        sampled steps say little of an ordinary one: ``timing.doubtful``.

        >>> {name for name, seconds, share in run.profile().parts()} <= {"forward", "backward", "optimizer", "other"}
        True
        """
        timing = self.timing
        if timing is None or timing.doubtful:
            return
        for name in ("data", "forward", "backward", "optimizer", "evaluation", "other"):
            took = getattr(timing, f"{name}_s")
            if took:
                yield name, took, took / timing.step_s if timing.step_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as strict JSON values (schema ``neuraldbg.profile/1``).

        >>> sorted(run.profile().to_dict())
        ['bottlenecks', 'footprint', 'growth', 'notes', 'outputs', 'schema', 'timing']
        """
        plain = jsonable({one.name: getattr(self, one.name) for one in fields(self)})
        assert isinstance(plain, dict)
        return {"schema": PROFILE_SCHEMA, **plain}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the profile as strict JSON text. None for ``indent`` gives one line.

        >>> print(run.profile().to_json(indent=None)[:34])
        {"schema": "neuraldbg.profile/1",
        """
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())

    @shown
    def _repr_html_(self) -> str:
        """Render parts, slowest layers, bottlenecks and notes as HTML for a notebook."""
        if self.timing is None:
            return div(safe(str(self)))
        parts = ", ".join(f"{name} {share:.0%}" for name, _, share in self.parts())
        parts = f": {parts}" if parts else f". {self.timing.caution()}"
        slowest = sorted(self.timing.layers, key=lambda one: -(one.own_forward_s + (one.own_backward_s or 0.0)))
        rows = "".join(
            f"<tr><td>{safe(one.layer or 'the model')}</td><td>{1000 * one.own_forward_s:.3g}</td>"
            f"<td>{1000 * (one.own_backward_s or 0.0):.3g}</td><td>{safe(', '.join(one.outputs))}</td></tr>"
            for one in slowest[:_LAYERS]
        )
        heads = "".join(f"<th>{head}</th>" for head in ("layer", "forward ms", "backward ms", "output"))
        told = listed(f"{safe(one.text)}. <code>{safe(one.remedy)}</code>" for one in self.bottlenecks)
        notes = "".join(f'<div style="{DIM}">{safe(note)}</div>' for note in self.notes)
        head = f"<b>{1000 * self.timing.ordinary_s:.3g} ms a step</b>{safe(parts)}"
        return div(f"{head}{told}<table><tr>{heads}</tr>{rows}</table>{notes}")
