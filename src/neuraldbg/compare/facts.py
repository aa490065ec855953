"""The settings in facts, by name: the parts of a fact that a person set and that do not depend on measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Value = dict[str, Any]
    Told = Iterator[tuple[str, Any]]


CODE = "code of "
"""Beginning of the kinds of places that are the lines of a function."""
ABOVE = "code above "
"""The same of a function that called it, or that only such a one names: two runs of one process may differ there."""


def _optimizer(value: Value, of: str) -> Told:
    """Yield the type of an optimizer, every setting of each parameter group, and the number of parameters."""
    yield f"optimizer{of}", value.get("type")
    groups = value.get("groups") or []
    for number, group in enumerate(groups):
        which = f" (group {number})" if len(groups) > 1 else ""
        for name, setting in group.items():
            if name != "params":
                yield f"optimizer {name}{which}{of}", setting
    yield f"optimizer groups{of}", len(groups)
    yield f"optimizer parameters{of}", sum(int(group.get("params", 0)) for group in groups)


def _loss(value: Value, of: str) -> Told:
    yield f"loss operations{of}", tuple(str(op) for op in value.get("ops") or ())
    for number, term in enumerate(value.get("terms") or []):
        which = f" (term {number})" if number else ""
        yield f"loss{which}{of}", term.get("kind")
        yield f"loss reduction{which}{of}", term.get("reduction")
        yield f"loss fed by{which}{of}", ", ".join(term.get("fed_by") or ()) or "the last layer"
        yield f"targets dtype{which}{of}", term.get("target_dtype")


def _batch(value: Value, of: str) -> Told:
    for leaf, shown in (value.get("inputs") or {}).items():
        name = f" {leaf}" if leaf else ""
        yield f"input shape{name}{of}", "x".join(str(n) for n in shown.get("shape", ())[1:])
        yield f"input dtype{name}{of}", shown.get("dtype")


def _modes(value: Value, of: str) -> Told:
    yield f"training mode{of}", value.get("training")
    yield f"training mode: layers in eval mode{of}", ", ".join(value.get("eval_layers") or ())


def _params(value: Value, of: str) -> Told:
    del of
    for name, title in (("frozen", "frozen"), ("not_in_optimizer", "in no optimizer"), ("tied", "tied")):
        listed = value.get(name) or ()
        names = (" = ".join(one) if isinstance(one, (list, tuple)) else str(one) for one in listed)
        yield f"parameters {title}", ", ".join(names)


def _precision(value: Value, of: str) -> Told:
    del of
    yield "autocast", value.get("autocast") or "off"
    yield "dtype of parameters", ", ".join(value.get("param_dtypes") or ())
    yield "gradient scaler", bool(value.get("scaler"))


def _order(value: Value, of: str) -> Told:
    yield f"order of the loop{of}", ", ".join(value.get("order") or ())


def _clip(value: Value, of: str) -> Told:
    yield f"gradient clipping{of}", f"{value.get('kind')} {value.get('limit')}"


def _schedule(value: Value, of: str) -> Told:
    of = f"{of} (scheduler {value['id']})" if value.get("id") else of
    yield f"schedule{of}", value.get("type")
    for kind in ("params", "words"):
        for name, setting in (value.get(kind) or {}).items():
            yield f"schedule {name}{of}", setting


def _places(value: Value, of: str) -> Told:
    del of
    for kind, places in value.items():
        lines = tuple(str(place[2]).rstrip() for place in places if len(place) > 2)
        if kind.startswith((CODE, ABOVE)):
            yield kind, lines  # with their indentation, by which a line may have moved out of a loop
        elif not kind.startswith(("backward ", "loss ")):  # among those of "backward" and "loss"
            yield f"line of code ({kind})", " | ".join(lines)


OPTIONAL = (FactKey.CLIP.value, FactKey.SCHEDULE.value)
"""Keys of the facts of what a program may do without. Of any other fact that a run does not have, it is not known."""
TOLD: dict[str, Callable[[Value, str], Told]] = {
    FactKey.BATCH.value: _batch,
    FactKey.CLIP.value: _clip,
    FactKey.LOSS.value: _loss,
    FactKey.MODES.value: _modes,
    FactKey.OPTIMIZER.value: _optimizer,
    FactKey.ORDER.value: _order,
    FactKey.PARAMS.value: _params,
    FactKey.PLACES.value: _places,
    FactKey.PRECISION.value: _precision,
    FactKey.SCHEDULE.value: _schedule,
}
"""Function for each key of a fact; its second argument is the model or optimizer, "" if there is only one. A new kind
of facts is one function and one line here."""
