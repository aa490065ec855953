"""The contracts of ``torch.distributions``: logits that are probabilities already, values of another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributions
from torch.distributions import Distribution

from neuraldbg.capture.contracts.contract import Breach, Contract
from neuraldbg.capture.contracts.nodes import made_by
from neuraldbg.capture.contracts.numbers import all_pairs, rows_sum_to_one, span
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import is_a, package_of

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = "distributions.html"
_BOUNDED = {"softmax": "probabilities, the output of a softmax", "sigmoid": "probabilities, the output of a sigmoid"}


def _classes(given: Mapping[str, Any]) -> Breach | None:
    """Logits are scores, or log-probabilities, and no probabilities."""
    logits = given.get("logits")
    found = span(logits)
    if found is None or found[0] < 0 or not rows_sum_to_one(logits):
        return None
    return Breach(
        "probabilities_as_logits", _BOUNDED.get(made_by(logits), "probabilities: rows in [0, 1] that sum to 1")
    )


def _events(given: Mapping[str, Any]) -> Breach | None:
    """Logits are scores without bounds, and not the output of a sigmoid."""
    name = made_by(given.get("logits"))
    return Breach("probabilities_as_logits", _BOUNDED[name]) if name == "sigmoid" else None


def _value(given: Mapping[str, Any]) -> Breach | None:
    """A value has a number for each distribution of the batch: (N) against (N, 1) gives (N, N)."""
    law, value = given.get("self"), given.get("value")
    if not is_a(law, Distribution) or value is None or type(value) not in tensor_memory.ORDINARY:
        return None
    batch, sizes = tuple(law.batch_shape), tuple(value.shape)
    events = len(law.event_shape)
    sizes = sizes[: len(sizes) - events]
    said = all_pairs(sizes, batch)
    return Breach("outer_value", said) if said else None


def _drawn(given: Mapping[str, Any]) -> Breach | None:
    """No gradient goes through ``sample``: parameters that are learnt by it need ``rsample``, or the log-probability of
    what was drawn.
    """
    law = given.get("self")
    held = vars(law).values() if is_a(law, Distribution) else ()
    learnt = any(type(x) in tensor_memory.ORDINARY and x.requires_grad for x in held)
    return (
        Breach("drawn_without_gradient", "parameters that are learnt") if learnt and torch.is_grad_enabled() else None
    )


def _drawn_of_base(given: Mapping[str, Any]) -> Breach | None:
    """No gradient goes through ``sample``: parameters that are learnt by it need ``rsample``, where there is one, or
    the log-probability of what was drawn.
    """
    law = given.get("self")
    known = is_a(law, Distribution) and package_of(type(law)) == "torch" and type(law).has_rsample is True
    return _drawn(given) if known else None


def _class(kind: type, check: Any, method: str, takes: str, unless: str = "") -> Contract:
    name = f"torch.distributions.{kind.__name__}" + ("" if method == "__init__" else f".{method}")
    return Contract(name, kind, method, tuple(takes.split()), check, unless, PAGE)


def _densities() -> list[type]:
    """Return the distributions over numbers that compute a density themselves, and of whom each number has one."""
    kinds = (getattr(distributions, name) for name in distributions.__all__)
    found = {kind: None for kind in kinds if isinstance(kind, type) and issubclass(kind, Distribution)}
    skipped = (distributions.MixtureSameFamily, distributions.TransformedDistribution, distributions.Independent)
    return [kind for kind in found if "log_prob" in vars(kind) and kind not in skipped and kind is not Distribution]


_D = distributions
CONTRACTS: tuple[Contract, ...] = (
    *(
        _class(kind, _classes, "__init__", takes)
        for kind, takes in (
            (_D.Categorical, "self probs logits"),
            (_D.OneHotCategorical, "self probs logits"),
            (_D.RelaxedOneHotCategorical, "self temperature probs logits"),
            (_D.Multinomial, "self total_count probs logits"),
        )
    ),
    *(
        _class(kind, _events, "__init__", takes)
        for kind, takes in (
            (_D.Bernoulli, "self probs logits"),
            (_D.ContinuousBernoulli, "self probs logits"),
            (_D.Geometric, "self probs logits"),
            (_D.Binomial, "self total_count probs logits"),
            (_D.NegativeBinomial, "self total_count probs logits"),
            (_D.RelaxedBernoulli, "self temperature probs logits"),
        )
    ),
    *(_class(kind, _value, "log_prob", "self value") for kind in _densities()),
    *(
        _class(kind, _drawn, "sample", "self", f"torch.distributions.{kind.__name__}.log_prob")
        for kind in (_D.Normal, _D.ContinuousBernoulli)
    ),
    Contract(
        "torch.distributions.Distribution.sample", _D.Distribution, "sample", ("self",), _drawn_of_base, ".log_prob",
        PAGE,
    ),
)  # fmt: skip
