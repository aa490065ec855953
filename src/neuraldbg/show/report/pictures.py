"""The pictures of a report in order: first those that support the diagnosis, then the others.

A run and its diagnosis enter; computed views leave, each with the reason for it. A cause is supported by the pictures
of its category and of those events of the run that it explains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuraldbg.show.format.phrases import credible
from neuraldbg.show.report.describe import WORD
from neuraldbg.show.views import VIEWS, view
from neuraldbg.show.views.view import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from neuraldbg.nouns import Diagnosis, Event, RunRecord
    from neuraldbg.show.forms import View

LEADING = 5
"""Number of leading pictures, shown open; other pictures that support a cause come first among the rest."""
NAMED = 3
"""Layers named in the reason for a picture."""
DEFAULT = Choice()


@dataclass(frozen=True)
class Wanted:
    """A view by name, with the choice of what it shows."""

    view: str
    choice: Choice = DEFAULT


@dataclass(frozen=True)
class Picture:
    """A computed view, with the reason for showing it."""

    title: str
    view: View
    why: str = ""
    """Part of the diagnosis that the picture shows; "" if it is there for completeness."""


LOSS, FLOW, UNITS, UPDATES = (Wanted(name) for name in ("loss", "flow", "units", "updates"))
GRADIENTS = Wanted("heatmap", Choice(kind="param_grad", stat="norm"))
ACTIVATIONS = Wanted("heatmap", Choice(kind="activation", stat="rms"))
DEAD = Wanted("heatmap", Choice(kind="activation", stat="dead"))
SATURATED = Wanted("heatmap", Choice(kind="activation", stat="saturated"))
UNDERFLOW = Wanted("heatmap", Choice(kind="param_grad", stat="under"))
INPUTS = Wanted("heatmap", Choice(kind="input", stat="rms"))


def _nonfinite(kind: str) -> Wanted:
    return Wanted("heatmap", Choice(kind=kind, stat="nonfinite"))


BY_EVENT: dict[str, tuple[Wanted, ...]] = {
    "activation_scale": (ACTIVATIONS, Wanted("distribution")),
    "dead_units": (UNITS, DEAD),
    "exploding_gradients": (GRADIENTS, FLOW),
    "gradient_spike": (GRADIENTS,),
    "large_weights": (UPDATES,),
    "loss_divergence": (LOSS,),
    "loss_plateau": (LOSS,),
    "loss_spike": (LOSS,),
    "nonfinite_activation": (_nonfinite("activation"),),
    "nonfinite_gradient": (_nonfinite("param_grad"),),
    "nonfinite_input": (_nonfinite("input"),),
    "nonfinite_loss": (LOSS,),
    "nonfinite_parameter": (_nonfinite("param"),),
    "saturated_units": (UNITS, SATURATED),
    "unchanged_parameters": (UPDATES,),
    "update_ratio_high": (UPDATES,),
    "update_ratio_low": (UPDATES,),
    "vanishing_gradients": (FLOW, GRADIENTS),
}
BY_CATEGORY: dict[str, dict[Wanted, str]] = {
    "data": {LOSS: "the loss on these data", INPUTS: "the scale of the inputs"},
    "loop": {LOSS: "the effect on the loss", UPDATES: "the size of the updates"},
    "loss": {LOSS: "the loss that is optimized"},
    "optimisation": {UPDATES: "the size of the updates", LOSS: "the effect on the loss"},
    "precision": {UNDERFLOW: "gradients too small for half precision"},
}
RATE = Wanted("series", Choice(stat="lr"))
CALM = (LOSS, RATE, GRADIENTS)
"""Leading pictures if no cause has any."""
OTHERS = (LOSS, RATE, GRADIENTS, ACTIVATIONS, FLOW, UPDATES, UNITS)
"""Then every registered view as it shows itself, but for the chain, which has a place of its own."""
CHAIN = "chain"


def chain_picture(run: RunRecord, diagnosis: Diagnosis) -> Picture | None:
    """Return the causal chain, None where there is none."""
    shown = view(CHAIN, run, diagnosis)
    return None if shown.empty else Picture(shown.title, shown)


def pictures(
    run: RunRecord, diagnosis: Diagnosis, room: Callable[[View], int | None] = lambda _: None
) -> tuple[tuple[Picture, ...], tuple[Picture, ...]]:
    """Return the leading pictures and all others; those with nothing to show are among the others.

    ``room`` says how many columns over time of a view are drawn, None where as many as it has: it is computed with so
    many, and what its notes say of columns is what is seen.
    """
    causes, loose = _of_causes(diagnosis), _of_others(diagnosis)
    front = dict.fromkeys(causes or [*CALM, *loose])  # an event that no cause explains does not lead
    others = (Wanted(name) for name in _known() if name not in {CHAIN, "heatmap"})
    leading: list[Picture] = []
    further: list[Picture] = []
    for one in dict.fromkeys([*front, *OTHERS, *others]):
        made = [*leading, *further]
        shown = view(one.view, run, diagnosis, one.choice)
        if any((shown.name, shown.title) == (other.view.name, other.view.title) for other in made):
            continue  # the default of a view may be what was asked for before
        if (columns := room(shown)) is not None:
            shown = view(one.view, run, diagnosis, replace(one.choice, columns=columns))
        taken = any(shown.title == other.title for other in made)
        title = f"{shown.title}, {WORD[type(shown)]}" if taken else shown.title
        why = ". ".join(filter(None, (causes.get(one), loose.get(one))))
        ahead = one in front and not shown.empty and len(leading) < LEADING
        (leading if ahead else further).append(Picture(title, shown, why))
    return tuple(leading), tuple(further)


def _known() -> tuple[str, ...]:
    return tuple(member.name for member in VIEWS)


def _of_causes(diagnosis: Diagnosis) -> dict[Wanted, str]:
    """Return the views that support the credible causes, those of the likeliest first, each with its reason."""
    found: dict[Wanted, list[str]] = {}
    for i, cause in enumerate(credible(diagnosis.hypotheses)):
        said = {wanted: [what] for wanted, what in BY_CATEGORY.get(cause.category, {}).items()}
        for wanted, event in _of_events(event for event in diagnosis.events if event.kind in cause.explains):
            said.setdefault(wanted, []).append(event)
        if cause.layer:
            said.setdefault(Wanted("series"), []).append(f"the layer {cause.layer}, which it names")
        for wanted, words in said.items():
            found.setdefault(wanted, []).append(f"For cause {i + 1}: {'; '.join(words)}")
    return {wanted: ". ".join(said) for wanted, said in found.items()}


def _of_others(diagnosis: Diagnosis) -> dict[Wanted, str]:
    """Return the views of the events that no cause explains, each with its reason."""
    explained = {kind for hypothesis in diagnosis.hypotheses for kind in hypothesis.explains}
    found: dict[Wanted, list[str]] = {}
    for wanted, event in _of_events(event for event in diagnosis.events if event.sure and event.kind not in explained):
        found.setdefault(wanted, []).append(event)
    return {wanted: f"Not explained by a cause: {'; '.join(said)}" for wanted, said in found.items()}


def _of_events(events: Iterable[Event]) -> Iterator[tuple[Wanted, str]]:
    """Events of one kind together, in the order in which they began."""
    kinds: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.first_step):
        kinds.setdefault(event.kind, []).append(event)
    for kind, alike in kinds.items():
        layers = list(dict.fromkeys(event.layer for event in alike if event.layer))
        more = f" and {len(layers) - NAMED} more" if len(layers) > NAMED else ""
        where = f" in {', '.join(layers[:NAMED])}{more}" if layers else ""
        for wanted in BY_EVENT.get(kind, ()):
            yield wanted, f"{kind.replace('_', ' ')}{where} from step {alike[0].first_step:,}"
