"""Runs of changing weather: phases of healthy steps, of every fault that a detector knows, and of odd loops.

Faults are drawn on both sides of their thresholds and last from one step to some tens, so that episodes begin, last,
end and nearly begin.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tests.detect.step_stream import ELEMENTS, UNITS, Stream, chain, join

from neuraldbg.nouns import STATS, column

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import Layout, Step

    Edit = Callable[[Stream, np.ndarray], None]

RMS, TOTAL, COUNT = column("rms"), column("total"), column("count")
LIGHT = ("loss", "loss_nonfinite", "lr", "grad_norm")


def weather(seed: int, n: int, *, faults: bool = True) -> list[tuple[Step, Layout]]:
    """Draw a run of some ``n`` steps, each with its layout."""
    rng = np.random.default_rng(seed)
    layouts = _layouts(rng, grows=faults and rng.random() < 0.3)
    stream = _Stream(layouts[0], seed, noise=float(rng.choice([0.05, 0.3])))
    stream.fall = float(rng.choice([2.0, 0.0, 0.0]))
    stream.gradients = float(rng.choice([1.0, 1e4]))
    found: list[tuple[Step, Layout]] = []
    if faults and rng.random() < 0.3:
        found += [(step, stream.layout) for step in _fault(_steep)(rng, stream, 30)]
    turn = seed * 5
    while len(found) < n:
        stream.layout = layouts[len(layouts) * len(found) // n]
        phases = [_healthy(rng, stream, int(rng.integers(1, 40) if len(found) > 100 else 70))]
        if faults:
            phases.append(PHASES[turn % len(PHASES)](rng, stream, int(rng.choice([1, 3, 12, 80]))))
        found += [(step, stream.layout) for phase in phases for step in phase]
        turn += 1
    return found


class _Stream(Stream):
    """Steps whose loss falls by so much, with gradients of a size."""

    fall = 2.0
    gradients = 1.0


def _layouts(rng: np.random.Generator, *, grows: bool) -> list[Layout]:
    activation = str(rng.choice(["ReLU", "Tanh"]))
    small = chain(int(rng.integers(2, 8)), activation=activation)
    return [small, join(small, chain(3, prefix="more.", model="More"))] if grows else [small]


def _step(stream: _Stream, edit: Edit | None = None, **scalars: float) -> Step:
    """One step; the norm of all gradients is that of the table unless it is given."""
    table = stream.table()
    table[list(stream.layout.rows("param_grad")), RMS] *= stream.gradients
    if edit is not None:
        edit(stream, table)
    rows = list(stream.layout.rows("param_grad"))
    norm = math.sqrt(float(np.nansum(table[rows, RMS] ** 2 * table[rows, TOTAL])))
    loss = 0.2 + stream.fall * math.exp(-stream.index / 60) + 0.02 * float(stream.rng.standard_normal())
    values = {"grad_norm": norm, "update_ratio": 1e-3, **scalars}
    step = stream.step(values.pop("loss", loss), **values)
    return replace(step, table=table)


def _healthy(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
    return [_step(stream) for _ in range(n)]


def _fault(draw: Callable[[np.random.Generator, _Stream], Edit]) -> Callable[..., list[Step]]:
    """A phase in which the tables are edited, the same edit in all steps or one drawn for each."""

    def phase(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
        same = draw(rng, stream) if rng.random() < 0.5 else None
        return [_step(stream, same or draw(rng, stream)) for _ in range(n)]

    return phase


def _some(rng: np.random.Generator, rows: tuple[int, ...]) -> list[int]:
    share = rng.choice([0.2, 1.0])
    return [row for row in rows if rng.random() < share] or list(rows[:1])


def _put(kind: str, **draws: Callable[[np.random.Generator], float]) -> Callable[..., list[Step]]:
    def draw(rng: np.random.Generator, stream: _Stream) -> Edit:
        rows, values = _some(rng, stream.layout.rows(kind)), {name: make(rng) for name, make in draws.items()}
        return lambda s, table: s.put(table, rows, **values)

    return _fault(draw)


def _scaled(kind: str, low: float, high: float, *, also: str = "") -> Callable[..., list[Step]]:
    """RMS of some sites times a factor between two powers of ten; of another kind, those of the same parameters."""

    def draw(rng: np.random.Generator, stream: _Stream) -> Edit:
        layout, factor = stream.layout, 10.0 ** rng.uniform(low, high)
        rows = _some(rng, layout.rows(kind))
        places = [layout.sites[row] for row in rows]
        rows += [row for site in places for row in layout.rows(also, site.module, site.name)]

        def edit(s: Stream, table: np.ndarray) -> None:
            for row in rows:
                s.put(table, row, rms=float(table[row, RMS] * factor))

        return edit

    return _fault(draw)


def _steep(rng: np.random.Generator, stream: _Stream) -> Edit:
    """Gradients or activations that grow geometrically from the loss to the input, or the other way."""
    rows, gain = stream.layout.rows(str(rng.choice(["param_grad", "activation"]))), 10.0 ** rng.uniform(-1.2, 1.2)

    def edit(s: Stream, table: np.ndarray) -> None:
        for place, row in enumerate(rows):
            s.put(table, row, rms=float(table[row, RMS] * gain ** (len(rows) - place)))

    return edit


def _fading(rng: np.random.Generator, stream: _Stream) -> Edit:
    """Gradients that become geometrically smaller toward the loss, by three to four orders, none larger than usual."""
    rows, loss = stream.layout.rows("param_grad"), 10.0 ** -rng.uniform(2.8, 4.2)

    def edit(s: Stream, table: np.ndarray) -> None:
        for place, row in enumerate(rows):
            s.put(table, row, rms=float(table[row, RMS] * loss ** (place / (len(rows) - 1))))

    return edit


def _hidden(rng: np.random.Generator, stream: _Stream) -> Edit:
    kind = str(rng.choice(["activation", "param_grad", "update", "param", "input"]))
    rows = _some(rng, stream.layout.rows(kind))
    return lambda s, table: s.hide(table, rows)


def _scalars(**draws: Callable[[np.random.Generator], float]) -> Callable[..., list[Step]]:
    def phase(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
        same = {name: draw(rng) for name, draw in draws.items()} if rng.random() < 0.5 else None
        return [_step(stream, **(same or {name: draw(rng) for name, draw in draws.items()})) for _ in range(n)]

    return phase


def _without(*names: str) -> Callable[..., list[Step]]:
    def phase(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
        name, steps = str(rng.choice(names)), _healthy(rng, stream, n)
        return [replace(s, scalars={k: v for k, v in s.scalars.items() if k != name}) for s in steps]

    return phase


def _changed(**draws: Callable[[np.random.Generator], object]) -> Callable[..., list[Step]]:
    def phase(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
        steps = _healthy(rng, stream, n)
        return [replace(s, **{name: draw(rng) for name, draw in draws.items()}) for s in steps]

    return phase


def _unapplied(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
    """Steps of a changing learning rate, of which some are halted."""
    steps = _scalars(lr=_power(-4, -2))(rng, stream, n)
    return [replace(s, applied=bool(rng.random() < 0.5)) for s in steps]


def _light(rng: np.random.Generator, stream: _Stream, n: int) -> list[Step]:
    nothing = np.zeros((0, len(STATS)))
    return [
        replace(s, table=nothing, scalars={k: v for k, v in s.scalars.items() if k in LIGHT})
        for s in _healthy(rng, stream, n)
    ]


def _power(low: float, high: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(10.0 ** rng.uniform(low, high))


def _of(*values: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(rng.choice(values))


def _share(of: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(rng.choice([0.3, 0.5, 0.52, 0.52, 1.0]) * of)


PHASES: tuple[Callable[..., list[Step]], ...] = (
    *(_put(kind, nonfinite=_of(0, 1, 7)) for kind in ("input", "activation", "output_grad", "param_grad", "param")),
    _put("activation", dead=_share(UNITS), dead_rows=lambda _: 320.0, dead_since=lambda _: 3.0),
    _put("activation", zeros=_of(ELEMENTS, ELEMENTS - 1), units=lambda _: 0.0),
    _put("activation", saturated=_share(ELEMENTS)),
    _put("update", rms=_of(0.0, 0.0, 1e-4)),
    _put("update", rms=_of(1e-11, 1e-10)),
    _put("param", rms=_of(0.0, 1e-8, 1e-7)),
    _put("param_grad", rms=_of(0.0, 1e-12, 1e-7, 1e-6)),
    _scaled("param_grad", -6, -2),
    _scaled("param_grad", -4.3, -4.0),
    _scaled("param_grad", 0, 6),
    _scaled("update", 1.5, 4.5),
    _scaled("update", -6, -3),
    _scaled("param", -7, 2),
    _scaled("param", -8, -6.5, also="update"),
    _scaled("activation", -8, 3),
    _fault(_steep),
    _fault(_fading),
    _fault(_hidden),
    _scalars(grad_norm=_of(0.0, math.nan, math.inf, 0.3)),
    _scalars(grad_norm=_power(-1, 3)),
    _scalars(update_ratio=_power(-6, -4.8)),
    _scalars(loss=_of(0.5, math.nan, math.inf, 50.0)),
    _scalars(loss_nonfinite=_of(0.0, 1.0)),
    _scalars(skipped=_of(0.0, 1.0, 16.0, 17.0)),
    _scalars(lr=_power(-4, -2)),
    _scalars(update_ratio=_of(1e-6)),
    _without("grad_norm", "update_ratio", "lr", "loss", "batch_size"),
    _changed(stream=lambda rng: int(rng.integers(2))),
    _changed(stream=lambda _: 1),
    _unapplied,
    _light,
)
"""What may happen between two healthy phases."""
