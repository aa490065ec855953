"""The contracts of loss functions.

Those whose breach has a cause of its own are not here: cross entropy, NLL, binary cross entropy, MSE and the like are
read from the graph (``autograd/loss_terms.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.contracts.contract import Breach, Contract, F
from neuraldbg.capture.contracts.nodes import made_by
from neuraldbg.capture.contracts.numbers import NEAR, distinct, rows_sum_to_one, same, sample, span, words
from neuraldbg.capture.guest import tensor_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[Mapping[str, Any]], Breach | None]

_NN = torch._C._nn  # noqa: SLF001 (the public functions look their built-in part up here)
FEW = 4
"""Targets from which on their values say something."""


def _signs(given: Mapping[str, Any]) -> Breach | None:
    """Targets are 1 or -1: pairs with another target have no loss, or a constant one."""
    held, values = sample(given.get("target")), distinct(given.get("target"))
    if held is None or len(held) < FEW or values is None or values <= {1.0, -1.0}:
        return None
    return Breach("signs", words(values))


def _in_graph(*checks: Check) -> Check:
    """Return the check that prediction or target is computed from weights, after others."""

    def check(given: Mapping[str, Any]) -> Breach | None:
        for one in checks:
            if (breach := one(given)) is not None:
                return breach
        held: list[Any] = [x for x in (given.get("input"), given.get("target")) if type(x) in tensor_memory.ORDINARY]
        if len(held) < 2 or not torch.is_grad_enabled() or any(x.requires_grad for x in held):
            return None
        return Breach("without_graph", "nothing that has a graph")

    check.__doc__ = f"{checks[0].__doc__} Where gradients are on, one of the two is computed from weights."
    return check


def _triplet(given: Mapping[str, Any]) -> Breach | None:
    """The positive is another sample than the anchor, and so is the negative."""
    anchor, positive, negative = (given.get(name) for name in ("anchor", "positive", "negative"))
    if same(anchor, positive):
        return Breach("same_pair", "the same values as anchor and as positive")
    if same(anchor, negative) or same(positive, negative):
        return Breach(
            "same_pair", f"the same values as negative and as {'anchor' if same(anchor, negative) else 'positive'}"
        )
    return None


def _multi_hot(given: Mapping[str, Any]) -> Breach | None:
    """Targets are class ids, padded with -1, and no zeros and ones for each class."""
    held, values = sample(given.get("target")), distinct(given.get("target"))
    if held is None or values is None or values != {0.0, 1.0} or given["target"].shape[-1] <= 2:
        return None
    return Breach("multi_hot", words(values))


def _ctc(given: Mapping[str, Any]) -> Breach | None:
    """Scores are log-probabilities over the classes; targets hold no blank and are no longer than the input."""
    scores, targets, blank = given.get("log_probs"), given.get("targets"), given.get("blank", 0)
    if rows_sum_to_one(scores, exponentials=True) is False:
        kind = "probabilities" if rows_sum_to_one(scores) else "scores whose exponentials do not sum to 1"
        return Breach("log_probabilities", kind)
    inputs, lengths = sample(given.get("input_lengths")), sample(given.get("target_lengths"))
    if inputs is not None and lengths is not None and len(inputs) == len(lengths):
        longer = int((lengths > inputs).sum())
        if 2 * longer > len(lengths):
            return Breach("target_longer", f"targets longer than the input in {longer} of {len(lengths)} samples")
    held = tensor_memory.readable(targets)
    if held is not None and lengths is not None and held.dim() == 2 and isinstance(blank, int):
        rows = zip(held[:64].tolist(), lengths.tolist(), strict=False)
        if any(blank in row[: int(length)] for row, length in rows):
            return Breach("blank_in_targets", f"the id of the blank, {blank}, among the targets")
    if held is not None and held.dim() == 1 and isinstance(blank, int) and bool((held == blank).any()):
        return Breach("blank_in_targets", f"the id of the blank, {blank}, among the targets")
    return None


_POSITIVE = {"softplus": "a softplus", "exp": "an exponential", "relu": "a ReLU"}
"""Operations whose result is positive, as a rate is and its logarithm is not."""


def _counts(given: Mapping[str, Any]) -> Breach | None:
    """Targets are counts; the input is the logarithm of the rate, unless ``log_input`` says that it is the rate."""
    made = made_by(given.get("input"))
    if given.get("log_input", True) and made in _POSITIVE:
        return Breach("rate_as_log", f"the output of {_POSITIVE[made]} as the logarithm of the rate")
    found = span(given.get("target"))
    return Breach("negative_counts", f"values down to {found[0]:.3g}") if found is not None and found[0] < 0 else None


def _log_target(given: Mapping[str, Any]) -> Breach | None:
    """Targets are probabilities, unless ``log_target`` says that they are logarithms."""
    target = given.get("target")
    if given.get("log_target"):
        if rows_sum_to_one(target) and (found := span(target)) is not None and found[0] >= 0:
            return Breach("plain_target", "probabilities")
        return None
    found = span(target)
    if found is None or (found[0] >= 0 and found[1] <= 1 + NEAR):
        return None
    rule = "log_target" if found[1] <= 0 else "no_probabilities"
    return Breach(rule, f"values from {found[0]:.3g} to {found[1]:.3g}")


def _itself(given: Mapping[str, Any]) -> Breach | None:
    """Predictions are compared with targets, and not with themselves."""
    if given.get("input") is given.get("target") or same(given.get("input"), given.get("target")):
        return Breach("compared_with_itself", "the same values as prediction and as target")
    return None


def _loss(name: str, owner: Any, takes: str, check: Any) -> Contract:
    return Contract(F + name, owner, name, tuple(takes.split()), check)


CONTRACTS: tuple[Contract, ...] = (
    _loss("cosine_embedding_loss", torch, "input1 input2 target", _signs),
    _loss("margin_ranking_loss", torch, "input1 input2 target", _signs),
    _loss("hinge_embedding_loss", torch, "input target", _signs),
    _loss("soft_margin_loss", _NN, "input target", _signs),
    _loss("multilabel_margin_loss", _NN, "input target", _multi_hot),
    _loss("triplet_margin_loss", torch, "anchor positive negative", _triplet),
    _loss("ctc_loss", torch, "log_probs targets input_lengths target_lengths blank", _ctc),
    _loss("poisson_nll_loss", torch, "input target log_input", _counts),
    _loss("kl_div", torch, "input target reduction", _in_graph(_log_target, _itself)),
    *(
        _loss(name, _NN, "input target", _in_graph(_itself))
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    ),
)
