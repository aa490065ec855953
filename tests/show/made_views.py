"""Views of every form made by hand, for the tests of what draws them: numbers are invented, shapes are real."""

from __future__ import annotations

import numpy as np

from neuraldbg.show.forms import Bar, Bars, Graph, Heat, Line, Lines, Link, Mark, Node, Scale, Span, Spread, Timeline

HOSTILE = (
    "<b>bold</b>",
    "<img src=x onerror=alert(1)>",
    "a&lt;b & $x_1$ %{y}",
    "层层层.注意力.投影层",
    "[bold red]markup[/] \x1b[31m\u202eevil\nline\ud800",
    "encoder." * 25 + "end",
)
FAILURE = Mark(30, "loss not finite from step 30", "failure")


def heat(layers=("conv1", "conv2", "fc"), steps=60, *, log=True, **more):
    """Values that grow by the column and the row; one cell of NaN, one that is not finite."""
    rows = len(layers)
    values = np.exp(np.linspace(0, 9, rows * steps)).reshape(rows, steps)
    bad = np.zeros(values.shape, bool)
    values[0, 5:6] = np.nan
    if rows > 1 and steps > 7:
        bad[1, 7] = True
    given = {
        "name": "heatmap",
        "title": "gradient norm of each layer",
        "layers": tuple(layers),
        "steps": np.arange(steps),
        "width": np.ones(steps, np.int64),
        "values": values,
        "nonfinite": bad,
        "scale": Scale("gradient norm", log=log),
        "reduce": "max",
        "marks": (FAILURE,),
        "guilty": (layers[min(1, rows - 1)],),
    }
    return Heat(**{**given, **more})


def lines(names=("conv1", "conv2", "fc"), steps=60, **more):
    at = np.arange(steps)
    found = tuple(
        Line(name, at, np.exp(at / 20 + i), layer=name, nonfinite=np.array([40]) if i == 0 else None)
        for i, name in enumerate(names)
    )
    marks = (FAILURE, Mark(10, "gradient spike", "event", 20, names[0]), Mark(3, "step 3", "chosen"))
    given = {
        "name": "series",
        "title": "gradient norm",
        "lines": found,
        "y": Scale("gradient norm", log=True),
        "marks": marks,
        "guilty": (names[-1],),
    }
    return Lines(**{**given, **more})


def bars(layers=("conv1", "conv2", "fc"), **more):
    values = np.arange(1.0, len(layers) + 1)
    values[0] = np.nan if len(layers) > 1 else 1.0
    given = {
        "name": "flow",
        "title": "gradient norm at step 12",
        "layers": tuple(layers),
        "bars": (Bar("now", values), Bar("before", values * 2)),
        "scale": Scale("gradient norm"),
        "limits": (("too large", 3.5),),
        "step": 12,
        "guilty": (layers[-1],),
    }
    return Bars(**{**given, **more})


def stack(layers=("conv1", "conv2", "fc"), **more):
    """Bars whose groups are parts of one sum, with words; the second layer has no value."""
    values = np.arange(1.0, len(layers) + 1)
    values[1 % len(layers)] = np.nan
    given = {
        "stacked": True,
        "bars": (Bar("forward", values), Bar("backward", values * 2)),
        "words": tuple(f"{i} ms, {i}%" for i in range(len(layers))),
        "limits": (),
    }
    return bars(layers, **{**given, **more})


def timeline(layers=("conv1", "conv2", "fc"), **more):
    """A step of 3 parts, in which each layer runs forward after the other, and backward in the reverse order."""
    count = len(layers)
    spans = [Span(0, 0.0, count, 0), Span(0, count, 3 * count, 1), Span(0, 3 * count, 3 * count + 1, 2)]
    spans += [Span(i + 1, i, i + 1, 0) for i in range(count)]
    spans += [Span(i + 1, 3 * count - 2 * (i + 1), 3 * count - 2 * i, 1) for i in range(count)]
    given = {
        "name": "timeline",
        "title": "Timeline of a step",
        "rows": ("one step", *layers),
        "layers": (None, *layers),
        "parts": ("forward", "backward", "optimizer"),
        "spans": tuple(spans),
        "scale": Scale("time since the step began", "ms"),
        "words": ("the step", *(f"{layer}: {i} ms" for i, layer in enumerate(layers))),
        "guilty": (layers[-1],),
    }
    return Timeline(**{**given, **more})


def spread(layer="fc", *, histograms=True, columns=20, bins=8):
    shares = np.zeros((bins, columns))
    shares[np.arange(columns) % bins, np.arange(columns)] = 1.0
    shares[:, 3] = np.nan
    mean = np.sin(np.arange(columns) / 3)
    return Spread(
        name="distribution",
        title=f"gradient of {layer} over time",
        layer=layer,
        steps=np.arange(columns) * 10,
        width=np.full(columns, 10),
        scale=Scale("value"),
        mean=mean,
        std=np.full(columns, 0.5),
        low=mean - 2,
        high=mean + 3,
        edges=np.linspace(-2.0, 2.0, bins + 1) if histograms else None,
        shares=shares if histograms else None,
    )


def graph(names=("learning rate too high", "update ratio out of range", "exploding gradients", "the loss is NaN")):
    roles = ["cause", *["event"] * (len(names) - 2), "symptom"]
    nodes = tuple(
        Node(str(i), name, role, 0.5, i / len(names), f"layer.{i}", i, f"detail of {name}")
        for i, (name, role) in enumerate(zip(names, roles, strict=True))
    )
    links = tuple(Link(str(i), str(i + 1), "data flow") for i in range(len(names) - 2))
    return Graph(
        name="chain", title="Causal chain", nodes=nodes, links=(*links, Link("0", str(len(names) - 1), "time"))
    )


EMPTY = heat(values=np.zeros((3, 0)), steps=0, empty="no layer was read: run it with neuraldbg run", marks=())


def every():
    """A view of each form, plain and with hostile names."""
    return (
        heat(),
        lines(),
        bars(),
        spread(),
        spread(histograms=False),
        graph(),
        stack(),
        timeline(),
        EMPTY,
        heat(HOSTILE, title=HOSTILE[1]),
        lines(HOSTILE, title=HOSTILE[1]),
        bars(HOSTILE, title=HOSTILE[1]),
        stack(HOSTILE, title=HOSTILE[1], words=HOSTILE),
        timeline(HOSTILE, title=HOSTILE[1], words=("", *HOSTILE)),
        spread(HOSTILE[1]),
        spread(HOSTILE[5], histograms=False),
        graph(HOSTILE),
    )
