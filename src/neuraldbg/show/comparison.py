"""Parts of a comparison as sentences and short phrases, the same on a terminal and in the dashboard.

Names in them are those of the runs: each face makes them safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.format.safe_text import counted, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns.comparison import (
        Comparison,
        Difference,
        HealthChange,
        KindSpan,
        LayerPair,
        LossPair,
        Setting,
        Trend,
    )

SETTINGS, HEALTH, LAYERS, LISTED = 12, 10, 8, 6
"""Largest numbers of items of each kind that are shown."""
SIGN = {"identical": "healthy", "close": "healthy", "diverged": "suspect", "incomparable": "inconclusive"}
"""Verdict of a diagnosis that has the sign and colour of each result of a comparison."""
SET, DIFFERS, WRONG = (
    "Different settings",
    "Differences, with their first step",
    "Health of the runs, where it differs",
)
"""Headings."""
LOSS = "Loss, over the common steps"
LOSSES = ("last finite", "lowest", "mean")
"""Names of ``final``, ``best`` and ``mean`` of a LossPair. A diagnosis has medians of several steps instead."""
KINDS = {
    "input": "inputs",
    "param": "weights",
    "activation": "outputs",
    "op": "operands of the loss",
    "output_grad": "gradients at outputs",
    "param_grad": "gradients of weights",
    "update": "updates",
    "loss": "loss",
}


def word_of(comparison: Comparison) -> str:
    """Write the result of a comparison in a word for people."""
    word = {"close": "same within the tolerance"}.get(comparison.verdict, comparison.verdict)
    return f"{word} until one failed" if sign_of(comparison) != SIGN[comparison.verdict] else word


def sign_of(comparison: Comparison) -> str:
    """Return the verdict of a diagnosis that has the sign and colour of the comparison."""
    alike = comparison.verdict in ("identical", "close")
    return SIGN["diverged"] if alike and comparison.one_failed else SIGN[comparison.verdict]


def meanings(first: Difference, c: Comparison) -> list[str]:
    """Write the meaning of the first difference, and its trend, a sentence each."""
    said = []
    if first.reading:
        said.append(f"{first.reading[0].upper()}{first.reading[1:]}.")
    if first.also:
        many = "other sites differ" if first.also > 1 else "other site differs"
        said.append(f"{first.also} {many} in the same step.")
    if first.since is not None and first.step - first.since > 1:
        said.append(f"The last compared step without a difference is {first.since:,}.")
    if c.overall is not None and c.overall.course != "unknown":
        said.append(_overall(c.overall, c.names))
    return said


def _overall(o: Trend, names: tuple[str, str]) -> str:
    """Write the trend of the median over all layers."""
    if o.broke is not None and o.broken is not None:
        end = f"in half of them or more {names[o.broken]} becomes NaN or infinite at step {o.broke:,}"
        return f"All layers: median difference {share(o.begin)} at step {o.first:,}, it grows: {end}."
    if o.begin == float("inf"):
        return f"All layers: in half of them or more only one run is finite, from step {o.first:,} on."
    if o.course == "varies":
        ends = f"varies between {share(o.low)} and {share(o.high)} from step {o.first:,} to {o.last:,}"
    elif o.course == "stays":
        ends = f"stays at about {share(o.begin)} from step {o.first:,} to {o.last:,}"
    else:
        ends = f"{o.course} from {share(o.begin)} at step {o.first:,} to {share(o.end)} at step {o.last:,}"
    return f"All layers: the median difference {ends}."


def settings(found: Sequence[Setting]) -> list[tuple[str, str, str]]:
    """Return the names of the settings, and their values in both runs and the step of the difference, a row each.

    Layers with the same change share a row.
    """
    same: dict[tuple[str, str, str], list[Setting]] = {}
    for one in found:
        same.setdefault((one.name, " -> ".join(both(one)), f"step {one.step:,}"), []).append(one)
    rows = []
    for (name, values, step), members in same.items():
        layers = [one.layer for one in members if one.layer]
        more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
        rows.append((f"{name} ({layers[0]}{more})" if layers else name, values, step))
    return rows


def both(one: Setting) -> tuple[str, str]:
    """Write the values of a setting in both runs, with as many digits as tell them apart."""
    rounded = shown(one.one), shown(one.other)
    return rounded if rounded[0] != rounded[1] else (str(one.one), str(one.other))


def layer_pair(pair: LayerPair, names: tuple[str, str]) -> str:
    """Write that a layer has another name or type in the other run."""
    if pair.how == "structure":
        return f"{pair.one} is {pair.other} in {names[1]} (the same {pair.types[1]}, by structure)"
    return f"{pair.one or '(model)'}: {pair.types[0]} -> {pair.types[1]}"


def only_in(name: str, only: tuple[str, ...]) -> str:
    """Write which layers only one of the runs has."""
    more = f" (+{len(only) - LISTED} more: --json)" if len(only) > LISTED else ""
    return f"only in {name}: {', '.join(only[:LISTED])}{more}"


def kind_row(kind: KindSpan, steps: int) -> tuple[str, str, str, str]:
    """Return a kind of sites, the step from which it differs, the number of different sites, and their difference.

    ``steps`` is the number of steps that both runs have: where some were not compared, nothing is said of them.
    """
    since = "identical" if kind.largest == 0 and not kind.differing else "within the tolerance"
    if kind.first is not None:
        since = f"step {kind.first:,}"
    elif kind.span is not None and kind.read < steps:
        since += f" (read in steps {kind.span[0]:,} to {kind.span[1]:,})"
    return (
        KINDS.get(kind.kind, kind.kind),
        since,
        f"{kind.differing} of {kind.sites}",
        f"at most {share(kind.largest)}" if kind.largest else "",
    )


def apart(pair: LossPair) -> str:
    """Write the step from which the losses differ; "" if they do not."""
    if pair.apart is not None and pair.first_apart in (None, pair.apart):
        return f"they differ by more than 10% from step {pair.apart:,} on"
    if pair.first_apart is not None:
        return (
            f"they differ by more than 10% in {pair.steps_apart:,} of {pair.steps:,} steps, first at step "
            f"{pair.first_apart:,}"
        )
    if pair.parts is not None:
        return f"they differ by more than the tolerance from step {pair.parts:,} on, and by less than 10% at the end"
    return ""


def health_place(one: HealthChange) -> str:
    """Write the layer and the step of a change."""
    place = one.layer or ""
    return f"{place} step {one.step:,}".strip() if one.step is not None else place


def footing(c: Comparison, dot: str) -> str:
    """Write the extent of the comparison, its parts with a dot between them."""
    verdicts = " and ".join(verdict for verdict in c.verdicts if verdict)
    over = f"{counted(c.compared.sites, 'site')} in {counted(c.compared.read, 'step')}"
    parts = [
        f"{over} compared, the loss in {c.compared.scalars:,}",
        f"tolerance {c.tolerance.rtol:g} relative"
        + (f", {c.tolerance.atol:g} absolute" if c.tolerance.atol else "")
        + f" ({c.tolerance.source})",
    ]
    return f" {dot} ".join([*parts, f"diagnoses: {verdicts}"] if verdicts else parts)


def shown(value: Any) -> str:
    """Write a setting's value for people."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(one) for one in value)
    return str(value) or "none"


def share(relative: float) -> str:
    """Write a relative difference, in per cent if that is readable."""
    if relative == float("inf"):
        return "NaN or Inf in one run only"
    return f"{number(100 * relative)}%"
