"""The tab of comparison: first difference of two runs, different settings, both losses, differences by layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from neuraldbg.dashboard.page.components import banner, go, layer_link, step_link, table
from neuraldbg.dashboard.page.figures import curves, pictured
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.show import comparison as say
from neuraldbg.show.format.safe_text import number, plain, sentence
from neuraldbg.show.views.pair import drift, losses

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.feed import Entry
    from neuraldbg.dashboard.page.context import Beside, Scene
    from neuraldbg.nouns.comparison import Comparison, Difference

NEAR = 8
"""Runs that are offered to be compared with."""
NOTHING = Drawing("", empty="Nothing is compared yet.")
"""Drawing of a pane that is not shown, since it has no title; the first pane gives the reason."""


def verdict(scene: Scene) -> Drawing:
    """Return the summary in a sentence or two, with layer and step of the first difference."""
    title, chosen = "This run beside another", scene.beside
    if len(scene.entries) == 1:
        return Drawing(title, empty="There is one run only. Open a folder that holds both: neuraldbg dashboard FOLDER")
    controls = _choice(scene)
    if chosen is None:
        return Drawing(title, _near(scene), controls=controls)
    c = chosen.comparison
    if c is None:
        return Drawing(title, empty=_waits(scene, chosen), controls=controls)
    body = [
        banner(say.sign_of(c), say.word_of(c)),
        html.P(plain(sentence(c.summary)), className="summary"),
        *([_where(scene, c.first), _items(say.meanings(c.first, c))] if c.first is not None else []),
    ]
    return Drawing(plain(f"{c.names[0]} against {c.names[1]}"), html.Div(body), controls=controls)


def _choice(scene: Scene) -> html.Div:
    """Return a menu of the other runs."""
    others = [e for e in scene.entries if e.key != scene.entry.key]
    pick = dcc.Dropdown(
        id={"field": "with"},
        options=[{"label": _option(e), "value": e.key} for e in others],
        value=scene.beside.entry.key if scene.beside else None,
        placeholder="another run",
        clearable=False,
        className="pick",
    )
    return html.Div([html.Label("with", htmlFor='{"field":"with"}'), pick], className="field beside")


def _option(entry: Entry) -> str:
    """Return a run as an option of the menu: its name, verdict and final loss."""
    loss = " / ".join(number(loss) for loss in entry.losses)
    return plain(
        " · ".join([entry.label, *([entry.verdict] if entry.verdict else []), *([f"loss {loss}"] if loss else [])])
    )


def _near(scene: Scene) -> html.Div:
    """Return links to the runs that are likeliest to be compared: those of the same script, then the newest."""
    others = [e for e in scene.entries if e.key != scene.entry.key and not e.problem]
    near = sorted(others, key=lambda e: e.script != scene.entry.script)[:NEAR]
    items = [html.Li(go(_option(e), scene.link(with_=e.key))) for e in near]
    more = (
        [html.P(f"{len(near)} of {len(others)} runs are listed: the menu above has all.")] if len(others) > NEAR else []
    )
    return html.Div([html.P("Choose the run to compare this one with:"), html.Ul(items), *more])


def _waits(scene: Scene, chosen: Beside) -> str:
    unread = [
        entry.label
        for entry, moment in ((scene.entry, scene.moment), (chosen.entry, chosen.moment))
        if not moment.record.steps
    ]
    return f"No step of {' or '.join(unread)} has been read yet." if unread else "The runs are being compared."


def _where(scene: Scene, first: Difference) -> html.P:
    """Return a sentence on the first difference, with links to its layer and step."""
    words: list[Any] = ["First difference: step ", step_link(scene, first.step, first.layer)]
    if first.layer is not None:
        words += [", layer ", layer_link(scene, first.layer, first.step)]
    return html.P([*words, plain(f" ({first.site}: {number(first.one)} against {number(first.other)}, {first.stat})")],
                  className="where")  # fmt: skip


def _items(sentences: list[str]) -> html.Ul:
    return html.Ul([html.Li(plain(one)) for one in sentences])


def _compared(draw: Callable[[Scene, Beside, Comparison], Drawing], scene: Scene) -> Drawing:
    """Draw a pane of the comparison; NOTHING if there is none."""
    chosen = scene.beside
    if chosen is None or chosen.comparison is None or chosen.comparison.verdict == "incomparable":
        return NOTHING
    return draw(scene, chosen, chosen.comparison)


def loss(scene: Scene, chosen: Beside, c: Comparison) -> Drawing:
    """Draw both losses."""
    made_of = (chosen.entry.key, chosen.moment.version, chosen.key)
    return curves(scene, losses(scene.run, chosen.moment.record, c), made_of)


def layers(scene: Scene, chosen: Beside, c: Comparison) -> Drawing:
    """Draw the largest relative difference of every layer over time."""
    return pictured(scene, drift(c), (chosen.entry.key, chosen.moment.version, chosen.key))


def settings(scene: Scene, _chosen: Beside, c: Comparison) -> Drawing:
    """Return the different settings, and the layers that differ or that only one run has."""
    body: list[Any] = []
    if c.settings:
        rows = [
            [
                [plain(one.name), *([" ", layer_link(scene, one.layer, one.step)] if one.layer is not None else [])],
                *map(plain, say.both(one)),
                step_link(scene, one.step, one.layer),
            ]
            for one in c.settings[: say.SETTINGS]
        ]
        body = [table(["setting", *map(plain, c.names), "from step"], rows, numbers=(3,))]
        body += _cut(len(c.settings) - say.SETTINGS)
    said = [say.layer_pair(pair, c.names) for pair in c.paired[: say.LAYERS]]
    said += [say.only_in(name, only) for name, only in zip(c.names, c.only, strict=True) if only]
    if said:
        body += [html.H3("Layers"), _items(said), *_cut(len(c.paired) - say.LAYERS)]
    return Drawing(say.SET, html.Div(body), empty="" if body else "Nothing that was recorded was set differently.")


def differs(_scene: Scene, _chosen: Beside, c: Comparison) -> Drawing:
    """Return the first step at which each kind of sites differs, and the losses in numbers."""
    if c.first is None:
        return NOTHING
    rows = [[*map(plain, say.kind_row(kind, min(c.compared.steps)))] for kind in c.kinds]
    body = [table(["what", "from", "sites", "relative difference"], rows)]
    if c.losses:
        body += _losses(c)
    return Drawing(say.DIFFERS, html.Div(body))


def _losses(c: Comparison) -> list[Any]:
    rows = []
    for pair in c.losses:
        of = f", optimizer {pair.stream}" if len(c.losses) > 1 else ""
        for k, name in enumerate(c.names):
            rows.append([plain(name + of), *(number(v[k]) for v in (pair.final, pair.best, pair.mean))])
    said = [words for pair in c.losses if (words := say.apart(pair))]
    return [html.H3(say.LOSS), table(["run", *say.LOSSES], rows, numbers=(1, 2, 3)), _items(said)]


def health(scene: Scene, _chosen: Beside, c: Comparison) -> Drawing:
    """Return the differences in verdicts, causes and events."""
    if not c.health:
        return Drawing(say.WRONG, empty="Verdicts, causes and events are the same in both.")
    rows = [
        [
            plain(one.what),
            "" if one.layer is None else layer_link(scene, one.layer, one.step),
            "" if one.step is None else step_link(scene, one.step, one.layer),
            plain(one.one),
            plain(one.other),
        ]
        for one in c.health[: say.HEALTH]
    ]
    body = [table(["what", "layer", "step", *map(plain, c.names)], rows, numbers=(2,))]
    return Drawing(say.WRONG, html.Div([*body, *_cut(len(c.health) - say.HEALTH)]))


def _cut(more: int) -> list[html.P]:
    """Return a note on the number of entries that were left out; [] if there are none."""
    if more <= 0:
        return []
    return [html.P(f"{more} more are left out: neuraldbg compare A B --json - lists them.", className="note")]


def ground(_scene: Scene, _chosen: Beside, c: Comparison) -> Drawing:
    """Return the amount of data that was compared."""
    return Drawing("Extent of the comparison", html.P(plain(say.footing(c, "·"))), c.notes)


TAB = Tab(
    "compare",
    "Compare",
    (
        Pane("against", "words", verdict, wide=True),
        Pane("pair_drift", "figure", partial(_compared, layers), wide=True),
        Pane("settings", "words", partial(_compared, settings), wide=True),
        Pane("pair_loss", "figure", partial(_compared, loss)),
        Pane("differs", "words", partial(_compared, differs)),
        Pane("health", "words", partial(_compared, health), wide=True),
        Pane("ground", "words", partial(_compared, ground), wide=True),
    ),
)
