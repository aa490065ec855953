"""The display of runs and views in a notebook.

A run is its diagnosis with the crash picture below it (matplotlib; without it, the loss and the gradients as text); a
view is its plotly figure, or text. Nothing here raises, and nothing is loaded from the network.
"""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import MissingExtra, NeuralDbgError
from neuraldbg.nouns import RunRecord
from neuraldbg.nouns.diagnosis import diagnosis_html
from neuraldbg.nouns.html import safe, shown

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis
    from neuraldbg.show.forms import View
    from neuraldbg.show.shown_run import Judged

DPI = 90
WIDTH = 100
"""Width of text in columns."""
MATHJAX = re.compile(r'<script src="https?://[^"]*mathjax[^"]*"></script>')
"""Pattern of the script that plotly's HTML loads from the network for formulas, which these figures do not have."""


@shown
def run_html(run: Judged) -> str:
    """Return a run as HTML: its diagnosis, with the crash picture below it."""
    try:
        diagnosis = run.diagnose()
        record = run if isinstance(run, RunRecord) else run.record()  # type: ignore[attr-defined]
    except NeuralDbgError as error:  # such as a session that was never started
        return f"<pre>{safe(error)}</pre>"
    try:
        picture = _picture(record, diagnosis) if len(record.history) else ""
    except Exception as error:  # noqa: BLE001 (the diagnosis is worth more than its picture)
        picture = f"<p>{safe(f'the picture could not be drawn: {error!r}')}</p>"
    return diagnosis_html(diagnosis) + picture


def _picture(record: RunRecord, diagnosis: Diagnosis) -> str:
    try:
        from neuraldbg.show.static.crash import crash_figure  # noqa: PLC0415 (an extra)

        figure = crash_figure(record, diagnosis)
    except MissingExtra:
        return f"<pre>{safe_lines(_as_text(record, diagnosis))}</pre>"
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (an extra)

    FigureCanvasAgg(figure)
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=DPI)
    data = base64.b64encode(made.getvalue()).decode()
    words = "loss, gradients and activations over steps"
    return f'<img style="max-width:100%" alt="{words}" src="data:image/png;base64,{data}">'


def _as_text(record: RunRecord, diagnosis: Diagnosis) -> str:
    from neuraldbg.show.terminal.draw import drawn  # noqa: PLC0415 (only where it is needed)
    from neuraldbg.show.views import view  # noqa: PLC0415

    return "\n\n".join(drawn(view(name, record, diagnosis), WIDTH).plain for name in ("loss", "heatmap"))


def safe_lines(text: str) -> str:
    """Return lines of text as HTML."""
    return "\n".join(safe(line) for line in text.split("\n"))


def view_bundle(view: View) -> dict[str, Any]:
    """Return a view in the formats that a notebook can choose: plotly's own if it can show them, and text."""
    from neuraldbg.show.terminal.draw import drawn  # noqa: PLC0415 (only where it is needed)

    try:
        text = drawn(view, WIDTH).plain
    except Exception:  # noqa: BLE001 (a notebook must not fail over how a value looks)
        text = repr(view)
    found: dict[str, Any] = {"text/plain": text, "text/html": f"<pre>{safe_lines(text)}</pre>"}
    try:
        from neuraldbg.show.interactive.draw import figure  # noqa: PLC0415 (an extra)

        found |= figure(view)._repr_mimebundle_() or {}
        found["text/html"] = MATHJAX.sub("", found["text/html"])
    except Exception:  # noqa: BLE001, S110 (as above: then it is text)
        pass
    return found
