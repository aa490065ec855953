"""Views made by hand for the tests of this folder, each as hard to draw as one can be."""

from __future__ import annotations

import numpy as np
from tests.show import made_views

from neuraldbg.show.forms import Bar, Bars, Graph, Heat, Line, Lines, Link, Mark, Node, Scale, Spread

HOSTILE = "a$x_1$<img onerror=1>\nnext\u202eline\u2066 \u4e2d\x1b[1m " + "y" * 200
"""Mathematics, markup, a new line, marks of direction, a sign that the font has not, a command, and no end."""
FAILURE = Mark(30, "loss not finite from step 30", "failure")
WORDS = ("exploding", "dying", "spiking", "falling", "rising", "turning", "stuck", "wild", "odd", "cold")
EVENTS = tuple(Mark(i, f"{WORDS[i % 10]} gradients", last=i + 4) for i in range(30))


def paths(count):
    """Paths of layers that are alike at both ends."""
    return tuple(f"transformer.h.{i // 2}.{('attn.c_proj', 'mlp.c_fc')[i % 2]}" for i in range(count))


THREE = paths(3)


def heat(layers=THREE, columns=40, **given):
    """Powers of ten that grow with the layer and the step."""
    rows = len(layers)
    values = 10.0 ** (np.arange(rows)[:, None] / rows * 4 + np.arange(columns)[None, :] / columns - 3)
    settings = {
        "name": "heatmap",
        "title": "L2 norm: gradient of the parameters of each layer",
        "layers": layers,
        "steps": np.arange(columns),
        "width": np.ones(columns, np.int64),
        "values": values,
        "nonfinite": np.zeros(values.shape, bool),
        "scale": Scale("L2 norm", log=True),
        "reduce": "max",
        "marks": (FAILURE,),
        "guilty": layers[1:2],
        "notes": ("400 steps are put together in columns of about 10 each, each shown by its max",),
    }
    return Heat(**{**settings, **given})


def lines(count=3, steps=40, **given):
    """Curves one above the other; one stops being finite, one becomes zero."""
    names, at = paths(count), np.arange(steps)
    made = []
    for i, name in enumerate(names):
        values = 10.0 ** (i / 4) * (1 + 0.1 * np.sin(at))
        bad = np.zeros(0, np.int64)
        if i == 1:
            values[30:] = np.nan
            bad = at[30:]
        if i == 2:
            values[20:] = 0
        made.append(Line(name, at, values, values / 2, values * 2, name, bad))
    settings = {
        "name": "series",
        "title": "Gradient norm",
        "lines": tuple(made),
        "y": Scale("gradient norm", log=True),
        "marks": (*EVENTS, FAILURE),
        "guilty": names[1:2],
    }
    return Lines(**{**settings, **given})


def bars(layers=THREE, groups=2, **given):
    """Values over six powers of ten, with a zero, one without a value and one that is infinite."""
    made = []
    for group in range(groups):
        values = 10.0 ** (np.linspace(-5, 0, len(layers)) + group / 4)
        made.append(Bar(f"step {group}", values))
    if layers:
        made[0].values[:3] = [0.0, np.nan, np.inf]
    settings = {
        "name": "flow",
        "title": "Update ratio of each layer",
        "layers": layers,
        "bars": tuple(made),
        "scale": Scale("update ratio", log=True),
        "limits": (("too small", 1e-4), ("too large", 1e-3)),
        "guilty": layers[1:2],
    }
    return Bars(**{**settings, **given})


def stack(layers=THREE, **given):
    """Parts of sums, one of them missing, with words behind the bars."""
    values = np.linspace(1, 5, len(layers))
    values[1 % len(layers)] = np.nan
    settings = {
        "bars": tuple(Bar(name, values * (i + 1)) for i, name in enumerate(("forward", "backward", "the rest"))),
        "scale": Scale("time in a step, without the layers inside", "ms"),
        "limits": (),
        "stacked": True,
        "words": tuple(f"{i}.5 ms, {i}%" for i in range(len(layers))),
    }
    return bars(layers, **{**settings, **given})


def timeline(layers=THREE, **given):
    """A step whose layers run one after the other, and back, with the second layer at fault."""
    notes = ("Laid out from the durations, in the order of the first calls",)
    return made_views.timeline(layers, **{"guilty": layers[1:2], "notes": notes, "words": (), **given})


def spread(columns=40, *, histograms=True, **given):
    """Values that shrink by powers of ten, in bins of signed powers of two."""
    random = np.random.default_rng(0)
    sizes = 10.0 ** (-np.arange(columns) / 10)
    edges = np.concatenate([-(2.0 ** np.arange(3, -25, -1)), [0.0], 2.0 ** np.arange(-24, 4)])
    drawn = random.standard_normal((columns, 500)) * sizes[:, None]
    shares = np.stack([np.histogram(row, edges)[0] / 500 for row in drawn], axis=1)
    shares[:, 10:12] = np.nan
    settings = {
        "name": "distribution",
        "title": "Distribution over time",
        "layer": "fc1",
        "steps": np.arange(columns) * 10,
        "width": np.full(columns, 10),
        "scale": Scale("value"),
        "mean": drawn.mean(axis=1),
        "std": drawn.std(axis=1),
        "low": drawn.min(axis=1),
        "high": drawn.max(axis=1),
        "marks": (Mark(200, "gradients vanish, step 200", "failure"),),
    }
    if histograms:
        settings |= {"edges": edges, "shares": shares}
    return Spread(**{**settings, **given})


def graph(count=6, **given):
    """A column of nodes, each of which leads to the next, and the first also to the last."""
    roles = ("cause", "event", "guilty", "bad", "healthy", "unseen")
    nodes = tuple(
        Node(f"n{i}", name, roles[i % 6], 0.5, (i + 0.5) / count, detail="Linear")
        for i, name in enumerate(paths(count))
    )
    links = tuple(Link(f"n{i}", f"n{i + 1}", "data flow") for i in range(count - 1))
    settings = {"name": "chain", "title": "Causal chain", "nodes": nodes}
    return Graph(**{**settings, "links": (*links, Link("n0", f"n{count - 1}", "time")), **given})


def hostile():
    """Every form with names that try to be more than names."""
    names = (HOSTILE, "$a$", "_b")
    mark = Mark(5, HOSTILE, "failure")
    line = lines().lines[0]
    node = graph().nodes[0]
    return {
        "heat": heat(
            names, title=HOSTILE, notes=(HOSTILE,), marks=(mark,), scale=Scale(HOSTILE, "$B$"), guilty=(HOSTILE,)
        ),
        "lines": lines(
            lines=tuple(Line(name, line.steps, line.values, layer=name) for name in names),
            title=HOSTILE,
            marks=(mark, Mark(3, HOSTILE)),
            y=Scale(HOSTILE),
            guilty=("$a$",),
        ),
        "bars": bars(
            names, bars=(Bar(HOSTILE, np.ones(3)), Bar("$b$", np.ones(3))), limits=((HOSTILE, 0.9),), title=HOSTILE
        ),
        "stack": stack(names, title=HOSTILE, words=names),
        "timeline": timeline(names, title=HOSTILE, parts=(HOSTILE, "$b$", "_c"), scale=Scale(HOSTILE)),
        "spread": spread(title=HOSTILE, scale=Scale(HOSTILE), marks=(mark,)),
        "graph": graph(
            nodes=(
                Node("a", HOSTILE, "cause", 0.5, 0.2, detail=HOSTILE),
                Node("b", "$a$", "strange", 0.5, 0.8, detail=node.detail),
            ),
            links=(Link("a", "b", HOSTILE), Link("a", "nowhere", "")),
            title=HOSTILE,
        ),
        "empty": bars(title=HOSTILE, empty=HOSTILE),
    }
