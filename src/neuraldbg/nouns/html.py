"""Values as HTML for a notebook: what enters is a value, what leaves is a fragment that says what its ``str`` says.

No script, no style sheet, nothing from the net. Colours are those of the page around it, light or dark; words of a run
are escaped. A value that cannot be shown so is shown as plain text: a notebook must not fail over how it looks.
"""

from __future__ import annotations

import functools
import html
import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.nouns.diagnosis import Chain, Diagnosis, Evidence, Hypothesis
    from neuraldbg.nouns.event import Event
    from neuraldbg.nouns.run import Series

Value = TypeVar("Value")

VERDICT_COLOUR = {"failing": "#D55E00", "suspect": "#E69F00", "healthy": "#009E73", "inconclusive": "#56B4E9"}
"""Of the edge beside the verdict, which the word says too (Okabe and Ito's, seen on light and dark ground)."""
VERDICT_STYLE = "border-left:5px solid;padding-left:.6em;margin:.3em 0"
DIM = "opacity:.75"
CURVE = 300
"""Points of a curve: of more values, the least and the largest of each stretch."""
WIDE, TALL = 480, 90
"""Of the curve, in pixels."""


def safe(words: object) -> str:
    """Return words as HTML text: control characters and marks that turn lines around are written as escapes."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(words))
    return html.escape(text)


def shown(make: Callable[[Value], str]) -> Callable[[Value], str]:
    """Return a ``_repr_html_`` that never raises."""

    @functools.wraps(make)
    def careful(value: Value) -> str:
        try:
            return make(value)
        except Exception:  # noqa: BLE001 (what is odd in a value is for its user to see, not for the notebook to fail at)
            try:
                return f"<pre>{safe(value)}</pre>"
            except Exception:  # noqa: BLE001 (nor may its own words fail)
                return f"<pre>{safe(object.__repr__(value))}</pre>"

    return careful


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Verdict, summary, symptoms, causes, chain, and what could not be judged."""
    colour = VERDICT_COLOUR.get(diagnosis.verdict, "currentColor")
    head = f"<b>{safe(diagnosis.verdict.upper())}</b>: {safe(diagnosis.summary)}"
    parts = [
        f'<p style="{VERDICT_STYLE};border-color:{colour}">{head}</p>',
        _list(safe(symptom) for symptom in diagnosis.symptoms),
    ]
    if diagnosis.hypotheses:
        parts.append("<h4>Likely causes</h4>")
    for i, hypothesis in enumerate(diagnosis.hypotheses):
        opened = " open" if i == 0 else ""
        title = f"<b>{safe(hypothesis.cause)}</b> {_percent(hypothesis.confidence)}{_place(hypothesis)}"
        parts.append(f"<details{opened}><summary>{title}</summary>{_body(hypothesis)}</details>")
    parts.append(_chain(diagnosis.chain))
    if diagnosis.unjudged:
        items = _list(f"{safe(one.what)}: {safe(one.reason)}" for one in diagnosis.unjudged)
        parts.append(f"<details><summary>Not judged ({len(diagnosis.unjudged)})</summary>{items}</details>")
    return _div("".join(parts))


def hypothesis_html(hypothesis: Hypothesis) -> str:
    """One cause with its evidence and its fix."""
    title = f"<b>{safe(hypothesis.cause)}</b> {_percent(hypothesis.confidence)}{_place(hypothesis)}"
    return _div(f'<p style="margin:.3em 0">{title}</p>{_body(hypothesis)}')


def event_html(event: Event) -> str:
    """Return what happened, where and when, and the numbers that were measured."""
    last = f" to {event.last_step:,}" if event.last_step != event.first_step else ""
    where = f" in <b>{safe(event.layer)}</b>" if event.layer else ""
    details = (f"{safe(key)}: {safe(_number(value))}" for key, value in event.details.items())
    return _div(
        f"<b>{safe(event.kind.replace('_', ' '))}</b>{where}, step {event.first_step:,}{last} "
        f'<span style="{DIM}">({safe(event.transition)}, {_percent(event.confidence)})</span>{_list(details)}'
    )


def series_html(series: Series) -> str:
    """The range and the course of the values."""
    values = np.asarray(series.values, np.float64)
    if not len(values):
        return _div("a series without values")
    finite = np.isfinite(values)
    lost = int((~finite).sum())
    told = [f"{len(values):,} values, steps {int(series.steps[0]):,} to {int(series.steps[-1]):,}"]
    if finite.any():
        told.append(f"{_number(values[finite].min())} to {_number(values[finite].max())}")
        told.append(f"last {_number(values[-1])}")
    told += [f"{lost:,} NaN or infinite"] * bool(lost)
    return _div(f"{_curve(np.asarray(series.steps, np.float64), values)}<div>{safe('; '.join(told))}</div>")


def _body(hypothesis: Hypothesis) -> str:
    failure = hypothesis.failure[:1].upper() + hypothesis.failure[1:]
    parts = [f"<p>{safe(failure)}, likely due to {safe(hypothesis.sentence)}</p>"]
    parts += [
        _list(
            f"<code>{safe(f'{p.file}:{p.line}')}</code> <code>{safe(p.code)}</code>"
            + (f" ({safe(p.what)} here)" if p.what else "")
            for p in hypothesis.places
        )
    ]
    parts.append(_list(_statement(one) for one in sorted(hypothesis.evidence, key=lambda one: not one.supports)))
    if hypothesis.equivalent:
        parts.append(f"<p>Cannot be told apart from {safe(', '.join(hypothesis.equivalent))}.</p>")
    if hypothesis.verification:
        tried = (f"{safe(key)}: {safe(_number(value))}" for key, value in hypothesis.verification.items())
        parts.append(f"<p>Tried:</p>{_list(tried)}")
    if hypothesis.remedy.text:
        parts.append(f"<p><b>Fix:</b> {safe(hypothesis.remedy.text)}</p>")
    if hypothesis.remedy.code:
        lines = hypothesis.remedy.code.strip("\n").expandtabs(4).split("\n")
        parts.append(f"<pre>{'<br>'.join(safe(line) for line in lines)}</pre>")
    return f'<div style="margin-left:1.2em">{"".join(parts)}</div>'


def _statement(evidence: Evidence) -> str:
    named = (("measured", evidence.value), ("judged against", evidence.threshold))
    known = isinstance(evidence.value, float) or evidence.value is None  # else it counts or names what is listed
    numbers = [f"{name} {_number(value)}" for name, value in named if known and isinstance(value, (int, float))]
    measured = f' <span style="{DIM}">[{safe(", ".join(numbers))}]</span>' if numbers else ""
    return f"<b>{'for' if evidence.supports else 'against'}</b>: {safe(evidence.statement)}{measured}"


def _chain(chain: Chain) -> str:
    if not chain:
        return ""
    items = []
    for node in chain.nodes:
        where = [part for part in (node.layer, None if node.step is None else f"step {node.step:,}") if part]
        reason = next((edge.why for edge in chain.edges if edge.target == node.id and edge.why), "")
        after = f' <span style="{DIM}">{safe(", ".join([*where, *([f"by {reason}"] if reason else [])]))}</span>'
        items.append(f"{safe(node.role)}: {safe(node.label)}{after}")
    return f"<h4>How it came about</h4>{_list(items, 'ol')}"


def _place(hypothesis: Hypothesis) -> str:
    parts = [safe(hypothesis.layer)] if hypothesis.layer else []
    parts += [f"step {hypothesis.step:,}"] if hypothesis.step is not None else []
    return f' <span style="{DIM}">{", ".join(parts)}</span>' if parts else ""


def _percent(confidence: float) -> str:
    percent = round(100 * confidence)
    if percent >= 100 and confidence < 1:
        return "&gt;99% sure"
    return "&lt;1% sure" if percent <= 0 < confidence else f"{percent}% sure"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return "NaN" if math.isnan(value) else f"{float(value):.4g}"


def _curve(steps: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> str:
    """A drawing of the finite values; the line breaks where one is not."""
    finite = np.isfinite(values)
    if not finite.any():
        return ""
    low, high = float(values[finite].min()), float(values[finite].max())
    log = low > 0 and high / low > 100
    scaled = np.log10(np.where(finite, values, 1.0)) if log else np.where(finite, values, 0.0)
    least, most = scaled[finite].min(), scaled[finite].max()
    y = TALL - 5 - (scaled - least) / ((most - least) or 1.0) * (TALL - 10)
    x = 5 + (steps - steps[0]) / ((steps[-1] - steps[0]) or 1.0) * (WIDE - 10)
    lines = []
    for part in np.split(np.arange(len(values)), np.flatnonzero(np.diff(finite)) + 1):
        if finite[part[0]]:
            kept = _extremes(part, y)
            lines.append("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x[kept], y[kept], strict=True)))
    scale = "a logarithmic scale" if log else "a linear scale"
    curve = f'<path d="{"".join(lines)}" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round"/>'
    size = f'width="{WIDE}" height="{TALL}" viewBox="0 0 {WIDE} {TALL}" style="max-width:100%"'
    return f'<svg {size} role="img"><title>the values over steps, on {scale}</title>{curve}</svg>'


def _extremes(part: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of many indices, those of the least and the largest of each stretch."""
    if len(part) <= CURVE:
        return part
    stretches = np.array_split(part, CURVE // 2)
    return np.unique([stretch[pick(y[stretch])] for stretch in stretches for pick in (np.argmin, np.argmax)])


def _list(items: Iterable[str], tag: str = "ul") -> str:
    inner = "".join(f"<li>{item}</li>" for item in items)
    return f'<{tag} style="margin:.2em 0">{inner}</{tag}>' if inner else ""


def _div(inner: str) -> str:
    return f'<div class="neuraldbg" style="max-width:60em;line-height:1.4">{inner}</div>'
