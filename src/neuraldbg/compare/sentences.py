"""The sentences that a person reads first in a comparison: a Comparison enters, texts leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.compare.divergence import Findings
    from neuraldbg.compare.layers import Matching
    from neuraldbg.nouns.comparison import Comparison, Difference, Trend

_WHAT = {
    "activation": "the output of {0}",
    "input": "the input {0}",
    "loss": "the loss",
    "op": "an operand of the loss, {0},",
    "output_grad": "the gradient at the output of {0}",
    "param": "the weight {0}",
    "param_grad": "the gradient of {0}",
    "update": "the update of {0}",
}
UNLIKE = 0.5
"""Share of matched layers below which two models are called different."""


def summary_of(comparison: Comparison, matching: Matching, before: int) -> str:
    """Return the summary in one or two sentences. ``before`` is the number of steps compared before the divergence."""
    compared = comparison.compared
    models = ""
    matched = matching.leaves[0] - len(matching.only[0])
    most = max(matching.leaves)
    if all(matching.leaves) and matched < UNLIKE * most:
        models = f"The models are different: {matched} of {matching.leaves[0]} and {matching.leaves[1]} layers match. "
    if comparison.verdict == "incomparable":
        return models + _nothing(comparison)
    if comparison.first is None:
        what = (
            f"{compared.sites} sites over {compared.read:,} steps"
            if compared.sites
            else f"the loss over {compared.scalars:,} steps"
        )
        if comparison.verdict == "identical":
            return f"{models}The runs are identical as far as they were read: {what}."
        assert comparison.earliest is not None
        e = comparison.earliest
        return (
            f"{models}The runs are the same within the tolerance: {what}. The first difference of any size is at step "
            f"{e.step:,} in {what_of(e)} ({size(e.relative)})."
        )
    return models + _divergence(comparison, comparison.first, before)


def _nothing(comparison: Comparison) -> str:
    steps = comparison.compared.steps
    if not all(steps):
        which = " and ".join(n for n, s in zip(comparison.names, steps, strict=True) if not s)
        return f"Nothing can be compared: {which} has no recorded step."
    return "Nothing can be compared: no site and no loss was read in both runs at the same step."


def _divergence(comparison: Comparison, first: Difference, compared: int) -> str:
    early = comparison.earliest
    if early is not None:
        before = (
            f"The runs differ within the tolerance from step {early.step:,} on, first in {what_of(early)} "
            f"({size(early.relative)}), and beyond it "
        )
    elif first.since is not None:
        count = f"{compared:,} step{'' if compared == 1 else 's'}"
        before = f"The runs are identical for {count}; "
        if compared != first.since + 1:
            before = f"The runs are identical in the {count} up to step {first.since:,} that were read in both; "
    else:
        before = ""
    where = f"at step {first.step:,}" if first.last == first.step else f"in steps {first.step:,} to {first.last:,}"
    if early is not None:
        said = f"{before}first {where} in {what_of(first)} ({numbers(first)})"
    else:
        said = f"{before}{where} {what_of(first)} differs first ({numbers(first)})"
    return f"{said[0].upper()}{said[1:]}{course(comparison.trend, comparison.names)}."


def what_of(difference: Difference) -> str:
    """Write the name of a site as a person would."""
    name = "" if difference.kind == "input" and difference.site == "input" else f"'{difference.site}'"
    return _WHAT.get(difference.kind, "{0}").format(name).replace("  ", " ").strip()


def numbers(difference: Difference) -> str:
    """Write both values and their relative difference."""
    stat = "" if difference.kind == "loss" else f"{difference.stat} "
    both = f"{stat}{difference.one:.4g} against {difference.other:.4g}"
    return both if difference.stat in ("total", "count", "nonfinite") else f"{both}, {size(difference.relative)}"


def size(relative: float) -> str:
    """Write a relative difference as a person would."""
    if relative == float("inf"):
        return "only one is finite"
    return f"{100 * relative:.3g}%" if relative >= 1e-3 else f"{relative:.2g} of its size"


def course(trend: Trend | None, names: tuple[str, str]) -> str:
    """Write the trend of a difference, as the end of a sentence."""
    if trend is None or trend.course == "unknown":
        return ""
    if trend.broke is not None and trend.broken is not None:
        return f"; that grows: there {names[trend.broken]} becomes NaN or infinite at step {trend.broke:,}"
    if trend.begin == float("inf"):
        return ""  # no number at any step: that only one is finite is said
    after = f" over the next {trend.last - trend.first:,} steps"
    if trend.course == "stays":
        return f"; that stays about the same{after}"
    return f"; that {trend.course} x{trend.factor:.3g} a step{after}"


def notes_of(found: Findings, names: tuple[str, str], *, whole: bool) -> tuple[str, ...]:
    """Write a note on everything that was not compared, and on values over several steps."""
    notes = []
    steps = [run.steps for run in found.runs]
    if steps[0] != steps[1] and all(steps):
        notes.append(f"the runs have {steps[0]:,} and {steps[1]:,} steps: the common ones are compared")
    if found.time.thinned:
        notes.append(
            f"of {found.time.thinned:,} older steps only the extremes of several together are kept and compared"
        )
    if not whole and len(found.time):
        read = [f"{name} at {run.history.read.sum():,}" for run, name in zip(found.runs, names, strict=True)]
        notes.append(
            f"to keep watching cheap, layers were not read at every step: those of {' and of '.join(read)} times"
        )
    elsewhere = int(found.measured.elsewhere.sum())
    if elsewhere:
        notes.append(
            f"{elsewhere} sites of large tensors were sampled at other places in the two runs (one is compiled, or "
            "has another memory format or `block_cap`) and are not compared"
        )
    if 0 < found.measured.share < 1:
        notes.append(
            f"{found.measured.share:.0%} of the elements were read: tensors of more than some thousand elements are "
            "sampled at the same places in both runs"
        )
    streams = [run.streams for run in found.runs]
    if streams[0] != streams[1] and all(steps):
        notes.append(f"the runs have {len(streams[0])} and {len(streams[1])} optimizers: those in common are compared")
    return tuple(notes)
