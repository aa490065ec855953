"""The Dash app of the page: a Feed and settings in, an app out that a server can serve.

    a click ──> page.js ──> the address ──> refresh() ──> parts that changed since they were shown
    a tick  ──────────────────────────────────^

The address is the only state: a click changes it in the browser, and the content follows from it. A tick sends the
same request with the same address; if nothing has changed the answer is empty.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.dashboard.training_link import TRAINING
from neuraldbg.errors import MissingExtra

if TYPE_CHECKING:
    from dash import Dash

    from neuraldbg.dashboard.feed import Feed
    from neuraldbg.dashboard.settings import DashboardSettings
    from neuraldbg.dashboard.training_link import TrainingLink


def make_app(feed: Feed, settings: DashboardSettings, training: TrainingLink | None = None, prefix: str = "/") -> Dash:
    """Return the app; with ``training`` its page can stop that one. ``prefix`` is the path under which a browser finds
    the page. Raises MissingExtra if dash, plotly or dash-cytoscape are not installed.
    """
    try:
        import dash  # noqa: PLC0415 (of an extra)

        from neuraldbg.dashboard.page import callbacks, layout  # noqa: PLC0415
        from neuraldbg.dashboard.page.request import Desk  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("the dashboard", "dashboard") from error
    app = dash.Dash(
        __name__,
        title=layout.TITLE,
        update_title="",  # otherwise the title changes with every tick
        assets_folder=str(Path(__file__).parent / "assets"),
        assets_ignore=r"heartbeat\.js" if training is not None else r"heartbeat\.js|stops\.js",
        serve_locally=True,
        requests_pathname_prefix=prefix,
        routes_pathname_prefix="/",  # a proxy takes the prefix off
        suppress_callback_exceptions=True,
        index_string=layout.INDEX.replace("THEME", settings.theme).replace(
            "SCHEME", {"auto": "light dark"}.get(settings.theme, settings.theme)
        ),
    )
    app.layout = layout.layout(settings, stops=training is not None)
    callbacks.connect(app, Desk(feed, settings))
    if training is not None:
        _connect(app, training)
    threading.Thread(target=_warm, name="neuraldbg-warms", daemon=True).start()
    return app


def _connect(app: Dash, training: TrainingLink) -> None:
    """Pass requests of the page on to the training. The guard has checked them: see ``is_request``."""
    from flask import jsonify, request  # noqa: PLC0415 (comes with dash)

    app.server.add_url_rule(TRAINING, "training", lambda: jsonify(training.ask(request.get_json())), methods=["POST"])


def _warm() -> None:
    """Draw two figures that are not shown: plotly's first figure takes ten times as long as the next."""
    from neuraldbg.show.forms import Heat, Line, Lines, Scale  # noqa: PLC0415
    from neuraldbg.show.interactive.draw import figure  # noqa: PLC0415 (of an extra)

    one, nothing = np.ones(1, np.int64), np.ones((1, 1))
    scale = Scale("", log=True)
    cells: dict[str, Any] = {"steps": one, "width": one, "values": nothing, "nonfinite": nothing > 1, "scale": scale}
    figure(Heat(name="", title="", layers=("",), reduce="max", **cells)).to_dict()
    figure(Lines(name="", title="", lines=(Line("", one, nothing[0]),), y=scale)).to_dict()
