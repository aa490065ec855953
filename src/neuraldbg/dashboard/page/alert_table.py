"""The table of the alerts that were told while the run went on: a Scene in, a Drawing out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.components import layer_link, step_link, table
from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.nouns.alert import alerts_of
from neuraldbg.show.format.safe_text import plain

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns.alert import Alert

MOST = 200
"""Rows of the table at most."""
HOW = "No alert was raised. Ask for them with: neuraldbg run --alert-on-nan --alert 'loss > 5' train.py"
"""Sentence for a run without alerts."""
COLOURS = {"critical": "failing", "error": "failing", "warning": "suspect", "info": "inconclusive"}
"""Class of each severity on the page."""


def alerts(scene: Scene) -> Drawing:
    """Return the table of alerts, the newest first."""
    found = alerts_of(scene.run)
    if not found:
        return Drawing("Alerts", empty=HOW)
    rows = [_row(scene, alert) for alert in reversed(found[-MOST:])]
    more = len(found) - MOST
    notes = (f"{more:,} earlier alerts are not listed.",) if more > 0 else ()
    heads = ["time", "severity", "alert", "layer", "step", "rule"]
    return Drawing(f"Alerts ({len(found):,})", table(heads, rows, numbers=(4,)), notes)


def _row(scene: Scene, alert: Alert) -> list[Any]:
    held = f" ({alert.held_back:,} more since the one before)" if alert.held_back else ""
    return [
        _clock(alert.time),
        html.Span(plain(alert.severity), className=f"badge {COLOURS.get(alert.severity, 'inconclusive')}"),
        plain(alert.text + held),
        layer_link(scene, alert.layer, alert.step),
        step_link(scene, alert.step, alert.layer),
        plain(alert.rule),
    ]


def _clock(time: float) -> str:
    """Return the time of day of a Unix time; "" for one that is none, as a run file from elsewhere may have."""
    try:
        return datetime.fromtimestamp(time).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""
