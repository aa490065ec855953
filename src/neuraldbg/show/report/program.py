"""The facts about the program, as rows of names and values: the last version of the most useful ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.nouns import FactKey
from neuraldbg.show.format.safe_text import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.nouns import RunRecord

    Row = tuple[str, str]

SETTINGS = ("lr", "momentum", "betas", "eps", "weight_decay", "nesterov", "amsgrad")
"""Settings of an optimizer's groups that are shown, if they exist."""
SAME = 1e-6
"""Learning rates that differ by less than this share of the largest are one, but for rounding."""
NAMES = 8
"""Parameters named before the list is cut."""


def program(run: RunRecord) -> tuple[Row, ...]:
    """Return rows for all known facts about the program."""
    rows: list[Row] = []
    rates = {stream: _rates(run, stream) for stream in run.streams}
    for key, tell in TELL.items():
        latest: dict[Any, dict[str, Any]] = {}
        steps: dict[Any, int] = {}
        for fact in run.facts_of(key.value):
            of = fact.value.get("stream", fact.value.get("model", fact.value.get("id")))
            latest[of], steps[of] = fact.value, fact.step
        for of, value in latest.items():
            course = rates.get(value.get("stream", 0), "") if key is FactKey.OPTIMIZER else ""
            rows += _optimizer(value, course, steps[of]) if course else tell(value)
    return tuple(dict.fromkeys(row for row in rows if row[1]))


def _rates(run: RunRecord, stream: int) -> str:
    """Write the values over the run of a learning rate that changed; "" for a constant one, which the fact has."""
    rates = run.scalar("lr", stream).finite().values
    if not len(rates) or np.ptp(rates) <= SAME * float(np.abs(rates).max()):
        return ""
    moves = np.diff(rates)
    if (moves >= 0).all() or (moves <= 0).all():
        return f"{number(float(rates[0]))} to {number(float(rates[-1]))}"
    return f"{number(float(rates.min()))} to {number(float(rates.max()))}, varied"


def _loss(value: dict[str, Any]) -> Iterator[Row]:
    for term in value.get("terms") or ():
        said = [f"{str(term.get('kind', 'unknown')).replace('_', ' ')}, reduction {term.get('reduction', 'unknown')}"]
        if term.get("input_shape"):
            said.append(f"input {_shape(term['input_shape'])}")
        if term.get("target_shape"):
            said.append(f"target {_shape(term['target_shape'])} {term.get('target_dtype') or ''}".strip())
        if term.get("fed_by"):
            said.append(f"fed by {', '.join(map(str, term['fed_by']))}")
        yield "loss", "; ".join(said)


def _optimizer(value: dict[str, Any], rates: str = "", step: int = 0) -> Iterator[Row]:
    """Yield the rows of an optimizer. ``rates`` are the recorded learning rates of the largest group in words; ``step``
    is the fact's.
    """
    most = max((group.get("lr") or 0.0 for group in value.get("groups") or ()), default=0.0)
    for i, group in enumerate(value.get("groups") or ()):
        told = {name: _value(group[name]) for name in SETTINGS if group.get(name) is not None}
        if rates and "lr" in told:
            told["lr"] = rates if group["lr"] == most else f"{told['lr']} at step {step:,}"
        said = [f"{name} {one}" for name, one in told.items()]
        which = f", group {i + 1}" if len(value["groups"]) > 1 else ""
        yield f"optimizer {value.get('type', '')}{which}", ", ".join([*said, f"{group.get('params', 0):,} tensors"])


def _batch(value: dict[str, Any]) -> Iterator[Row]:
    for leaf, one in (value.get("inputs") or {}).items():
        yield f"input {leaf}".strip(), f"{_shape(one.get('shape') or ())} {one.get('dtype', '')}".strip()


def _precision(value: dict[str, Any]) -> Iterator[Row]:
    said = [f"parameters {', '.join(map(str, value.get('param_dtypes') or ()))}"]
    said.append(f"autocast to {value['autocast']}" if value.get("autocast") else "no autocast")
    if value.get("scaler"):
        said.append("with a gradient scaler")
    yield "precision", ", ".join(said)


def _params(value: dict[str, Any]) -> Iterator[Row]:
    yield "parameters", f"{value['total']:,} tensors" if value.get("total") else ""
    for key in ("frozen", "not_in_optimizer", "no_grad", "uncalled", "zero_lr"):
        names = [str(name) for name in value.get(key) or ()]
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        yield f"parameters: {key.replace('_', ' ')}", ", ".join(names[:NAMES]) + more


def _modes(value: dict[str, Any]) -> Iterator[Row]:
    if value.get("mode_layers") or not value.get("training", True):
        mode = "training" if value.get("training") else "evaluation"
        left = ", ".join(map(str, value.get("eval_layers") or ()))
        yield "mode while training", f"{mode} mode" + (f", except {left}" if left else "")


def _order(value: dict[str, Any]) -> Iterator[Row]:
    yield "order of the loop", ", ".join(map(str, value.get("order") or ()))


def _schedule(value: dict[str, Any]) -> Iterator[Row]:
    params = ", ".join(f"{name} {_value(one)}" for name, one in (value.get("params") or {}).items())
    yield "learning-rate schedule", f"{value.get('type', '')} {f'({params})' if params else ''}".strip()


def _clip(value: dict[str, Any]) -> Iterator[Row]:
    yield "gradient clipping", f"by {value.get('kind')}, limit {_value(value.get('limit'))}" if "kind" in value else ""


def _accumulation(value: dict[str, Any]) -> Iterator[Row]:
    if value.get("backwards", 1) > 1:
        yield "backward passes for a step", f"{value['backwards']:,}, divided by {_value(value.get('divisor', 1.0))}"


def _shape(shape: Any) -> str:
    return " x ".join(str(size) for size in shape) or "scalar"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_value, value))})"
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


TELL: dict[FactKey, Callable[[dict[str, Any]], Iterator[Row]]] = {
    FactKey.LOSS: _loss,
    FactKey.OPTIMIZER: _optimizer,
    FactKey.SCHEDULE: _schedule,
    FactKey.CLIP: _clip,
    FactKey.ACCUMULATION: _accumulation,
    FactKey.ORDER: _order,
    FactKey.BATCH: _batch,
    FactKey.PRECISION: _precision,
    FactKey.PARAMS: _params,
    FactKey.MODES: _modes,
}
