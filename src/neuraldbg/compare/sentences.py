"""The sentences that a person reads first in a comparison: a Comparison enters, texts leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.compare.divergence import Findings
    from neuraldbg.compare.layers import Matching
    from neuraldbg.nouns.comparison import Comparison, Difference, Setting, Trend

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
FEW = 100
"""Largest number of characters of an error's message in a sentence."""
NAMED = 2
"""Largest number of changed settings in the summary."""
ASIDE = ("line of code", "code of ", "order of the loop", "loss operations", "version", "argument", "script")
"""Prefixes of settings that need change nothing, or that say what another one says."""
SMALL = 1e-5
"""Least relative difference that is written in per cent."""
UNLIKE = 0.5
"""Share of matched layers below which two models are called different."""


def summary_of(comparison: Comparison, matching: Matching, before: int, reasons: Sequence[Setting] = ()) -> str:
    """Return the summary in two or three sentences: what was changed, and what differs first.

    ``before`` is the number of steps compared before the divergence, ``reasons`` are the settings that explain it.
    """
    compared = comparison.compared
    models = ""
    matched = matching.leaves[0] - len(matching.only[0])
    if unlike(matching):
        models = f"The models are different: {matched} of {matching.leaves[0]} and {matching.leaves[1]} layers match. "
    if comparison.verdict == "incomparable":
        return models + _nothing(comparison)
    if comparison.first is None:
        what = (
            f"{_many(compared.sites, 'site')} over {_many(compared.read, 'step')}"
            if compared.sites
            else f"the loss over {_many(compared.scalars, 'step')}"
        )
        if comparison.verdict == "identical":
            said = f"The runs are identical as far as they were read: {what}{_though(comparison.settings)}."
            return f"{models}{said}{_failed(comparison)}"
        assert comparison.earliest is not None
        e = comparison.earliest
        return (
            f"{models}The runs are the same within the tolerance: {what}. The first difference of any size is at step "
            f"{e.step:,} in {what_of(e)} ({size(e.relative)}).{_failed(comparison)}"
        )
    return f"{models}{_changed(reasons)}{_divergence(comparison, comparison.first, before)}"


def _changed(reasons: Sequence[Setting]) -> str:
    """Write the settings that explain the first difference, as a sentence; "" if there are none."""
    if not reasons:
        return ""
    more = len(reasons) - NAMED
    said = ", ".join(_setting(one) for one in reasons[:NAMED])
    return f"Changed: {said}{f', and {more} more' if more > 0 else ''}. "


def _though(settings: Sequence[Setting]) -> str:
    """Write that a setting differs though nothing that was read does; "" if none does."""
    told = [one for one in settings if not one.name.startswith(ASIDE)]
    return f", though the settings differ ({_setting(told[0])})" if told else ""


def _setting(one: Setting) -> str:
    layer = f" of '{one.layer}'" if one.layer else ""
    both = [_value(value) for value in (one.one, one.other)]
    if both[0] == both[1]:
        both = [repr(one.one), repr(one.other)]
    return f"{one.name}{layer} {both[0]} -> {both[1]}{f' from step {one.step:,}' if one.step else ''}"


def _value(value: Any) -> str:
    """Write a setting's value, a long one only in part."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return short(value, 4)
    said = ", ".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)
    return said if len(said) <= FEW else f"{said[:FEW]}..."


def short(value: float, digits: int) -> str:
    """Write a number with a few digits, its power of ten as a person would: 1e6 and not 1e+06."""
    digits_, mark, power = f"{value:.{digits}g}".partition("e")
    return f"{digits_}e{int(power)}" if mark else digits_


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def unlike(matching: Matching) -> bool:
    """Return True if the runs are of different models: fewer than half of the layers match."""
    matched = matching.leaves[0] - len(matching.only[0])
    return all(matching.leaves) and matched < UNLIKE * max(matching.leaves)


def _failed(comparison: Comparison) -> str:
    """Write how the runs ended, if one failed and the other did not."""
    if not comparison.one_failed:
        return ""
    (end,) = (change for change in comparison.health if change.what == "outcome")
    words = {"raised": "ended with", "halted": "was halted"}
    said = []
    for name, outcome, steps in zip(comparison.names, (end.one, end.other), comparison.compared.steps, strict=True):
        kind, _, message = outcome.partition(": ")
        short = f" {message[:FEW]}{'...' * (len(message) > FEW)}" if message else ""
        said.append(f"{name} {words.get(kind, kind)}{short} after {steps:,} step{'s' * (steps != 1)}")
    return f" But {', and '.join(said)}."


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
    elif first.stat == "count":
        who = comparison.names[first.one == 0]
        said = f"{before}{where} only {who} has {what_of(first)}"
    else:
        said = f"{before}{where} {what_of(first)} differs first ({numbers(first)})"
    trend = course(comparison.trend, comparison.names) if first.stat != "count" else ""
    return f"{said[0].upper()}{said[1:]}{trend}."


def what_of(difference: Difference) -> str:
    """Write the name of a site as a person would."""
    name = "" if difference.kind == "input" and difference.site == "input" else f"'{difference.site}'"
    return _WHAT.get(difference.kind, "{0}").format(name).replace("  ", " ").strip()


def numbers(difference: Difference) -> str:
    """Write both values, and their difference relative to the larger of the two."""
    unit = {"total": "elements", "nonfinite": "NaN or infinite elements"}.get(difference.stat)
    if unit is not None or difference.stat == "count":
        return f"{difference.one:,.0f} against {difference.other:,.0f} {unit or 'elements read'}"
    stat = "" if difference.kind == "loss" else f"{difference.stat} "
    digits = next((d for d in range(4, 9) if f"{difference.one:.{d}g}" != f"{difference.other:.{d}g}"), 9)
    one, other = short(difference.one, digits), short(difference.other, digits)
    return f"{stat}{one} against {other}, {_of_the_larger(difference)}"


def _of_the_larger(difference: Difference) -> str:
    """Write the difference of the two values that are shown, relative to the larger of them."""
    larger = max(abs(difference.one), abs(difference.other))
    if difference.relative == float("inf") or not 0 < larger < float("inf"):
        return size(difference.relative)
    share = abs(difference.one - difference.other) / larger
    return f"{100 * share:.3g}% of the larger" if share >= SMALL else f"{short(share, 2)} of the larger"


def size(relative: float) -> str:
    """Write a relative difference as a person would."""
    if relative == float("inf"):
        return "only one is finite"
    return f"{100 * relative:.3g}%" if relative >= SMALL or not relative else f"{short(relative, 2)} of its size"


def course(trend: Trend | None, names: tuple[str, str]) -> str:
    """Write the trend of a difference, as the end of a sentence."""
    if trend is None or trend.course == "unknown":
        return ""
    if trend.broke is not None and trend.broken is not None:
        return f"; the difference grows: {names[trend.broken]} becomes NaN or infinite at step {trend.broke:,}"
    if trend.begin == float("inf"):
        return ""  # no number at any step: that only one is finite is said
    if trend.course == "stays":
        return f"; the difference stays about the same up to step {trend.last:,}"
    if trend.course == "varies":
        return f"; the difference varies between {size(trend.low)} and {size(trend.high)} up to step {trend.last:,}"
    return f"; the difference {trend.course} to {size(trend.end)} by step {trend.last:,}"


def _compiled(found: Findings) -> bool:
    """Return True if sites were left out because a compiled graph samples tensors otherwise."""
    return any(pair.apart and out for pair, out in zip(found.pairs, found.measured.elsewhere, strict=True))


def notes_of(found: Findings, names: tuple[str, str], *, whole: bool) -> tuple[str, ...]:
    """Write a note on everything that was not compared, and on values over several steps."""
    notes = []
    steps = [run.steps for run in found.runs]
    if steps[0] != steps[1] and all(steps):
        notes.append(f"the runs have {steps[0]:,} and {steps[1]:,} steps: the common ones are compared")
    for run, name in zip(found.runs, names, strict=True):
        if run.info.outcome.kind == "running":
            notes.append(f"{name} had not ended when it was read: it is still going on, or it was killed")
    if found.time.thinned:
        notes.append(
            f"of {found.time.thinned:,} older steps only the extremes of several together are kept and compared"
        )
    if not whole and len(found.time):
        read = [
            f"those of {name} in {run.history.read.sum():,} of {_many(run.steps, 'step')}"
            for run, name in zip(found.runs, names, strict=True)
        ]
        notes.append(f"to keep watching cheap, layers are not read at every step: {' and '.join(read)} were")
    elsewhere = int(found.measured.elsewhere.sum())
    if elsewhere:
        notes.append(
            f"{_many(elsewhere, 'site')} of large tensors: the samples seem to be of other places in the two runs"
            f"{' (one is compiled)' if _compiled(found) else ''}, and are not compared"
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
