"""An experiment: can the model learn one batch by heart, in a plain loop, with the program's loss and learning rate?

A model that can is able to learn: the fault lies in the data, or in the loop around the model. One that cannot, at the
program's rate or at a usual one, is itself at fault, or its loss or its initialisation is. The copy is trained on the
batch of the step for a fraction of a second; updates are those of Adam for adaptive optimizers, else those of SGD with
momentum, without decay and clipping. Random numbers are the same in each pass, so that dropout hinders nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from neuraldbg import clocks
from neuraldbg.capture.experiments.experiment import Bench, Experiment, Rate, Target
from neuraldbg.capture.guest.module_tree import named_parameters, set_training
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_STEPS, _LEAST = 300, 60
"""Updates of an attempt, and the least number that says something."""
_SHARE, _SECONDS = 0.4, 2.0
"""Share of the seconds of all experiments that an attempt may take, and its seconds at most."""
_LEARNT = 0.3
"""Share of the first loss from which on the batch is learnt."""
_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
"""Optimizers whose rate is one for Adam."""
_ELEMENTS = 4_000_000
"""Parameters that are trained at most: their gradients and moments take memory beside the copy."""
_USUAL = Rate("Adam", 3e-3, 0.0)
"""The optimizer of the second attempt."""
_BETAS, _EPS = (0.9, 0.999), 1e-8
"""Of Adam, its defaults."""
_STILL = 8


def run(bench: Bench) -> dict[str, Any] | None:
    """Train the copy with the program's optimizer and, if it learns nothing, with Adam from the same weights."""
    trained = [(name, p) for name, p in named_parameters(bench.module) if p.requires_grad and p.is_floating_point()]
    if bench.rate is None or not trained or not any(target.output for target in bench.targets):
        return None
    if sum(p.numel() for _, p in trained) > _ELEMENTS:
        raise Unfit("it has too many parameters to train a copy")
    set_training(bench.module, on=True)
    before = [p.detach().clone() for _, p in trained]
    attempts: list[list[Any]] = []
    known = bench.rate.optimizer in _ADAPTIVE or bench.rate.optimizer == "SGD"
    for rate in (bench.rate, _USUAL) if known else (_USUAL,):  # a rate says nothing for another rule
        with torch.no_grad():
            for (_, p), kept in zip(trained, before, strict=True):
                p.copy_(kept)
        bench.began = clocks.perf_counter()
        try:
            found = _train(bench, [p for _, p in trained], rate)
        except Unfit:
            raise
        except Exception as error:
            let_pass(error, "making an experiment")
            raise Unfit(f"its copy cannot be trained ({type(error).__name__})") from error
        if found is None:
            return None
        attempts.append(found)
        if found[-1]:
            break
    layers = [name.rpartition(".")[0] for name, _ in trained]
    pairs = zip(layers, trained, before, strict=True)
    moved = {layer for layer, (_, p), kept in pairs if not torch.equal(p, kept)}
    still = [layer for layer in dict.fromkeys(layers) if layer not in moved]
    return {"attempts": attempts, "still": still[:_STILL]}


def _train(bench: Bench, parameters: Sequence[Tensor], rate: Rate) -> list[Any] | None:
    """Return an Attempt; None if no output of the copy is compared with a target. Raises Unfit."""
    rule, update = _rule(rate)
    began, losses = clocks.perf_counter(), []
    states: list[list[Tensor]] = [[] for _ in parameters]
    for step in range(_STEPS + 1):
        with torch.enable_grad(), torch.autograd.graph.disable_saved_tensors_hooks("a copy is trained"):
            loss = _loss(bench)
            if loss is None:
                return None
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]) or losses[-1] <= _LEARNT * losses[0] or step == _STEPS:
                break
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for p, gradient, state in zip(parameters, gradients, states, strict=True):
                if gradient is not None:
                    update(p, gradient.to_dense() if gradient.is_sparse else gradient, state, step + 1)
        if clocks.perf_counter() - began > min(_SECONDS, _SHARE * bench.seconds):
            if step + 1 < _LEAST:
                raise Unfit("it takes too long")
            break
    learnt = losses[-1] <= _LEARNT * losses[0]
    return [rule, rate.lr, len(losses) - 1, losses[0], losses[-1], learnt]


def _loss(bench: Bench) -> Tensor | None:
    """Return the sum of the losses of all outputs that are compared with a target; None if there is none."""
    found = []
    for name, output in bench.graded():
        for target in bench.targets:
            made = target.compared(bench.model, name, output)
            if made is not None and target.value is not None:
                found.append(_compare(target, made, target.value))
    known = [one for one in found if one is not None]
    return torch.stack(known).sum() if known else None


def _compare(target: Target, made: Tensor, value: Tensor) -> Tensor | None:
    """Return the mean loss of one output; None if the shapes do not fit."""
    kind = target.kind
    if kind.startswith("nll"):
        fits = made.dim() > 1 and made.shape[:1] + made.shape[2:] == value.shape
        return F.cross_entropy(made, value, ignore_index=target.ignore) if fits else None
    if made.shape != value.shape:
        return None
    value = value.to(made.dtype)
    if kind == "binarycrossentropy":
        return F.binary_cross_entropy(made, value)
    if kind == "binarycrossentropywithlogits":
        return F.binary_cross_entropy_with_logits(made, value)
    return F.smooth_l1_loss(made, value) if kind in ("smoothl1loss", "huberloss") else F.mse_loss(made, value)


def _rule(rate: Rate) -> tuple[str, Callable[[Tensor, Tensor, list[Tensor], int], None]]:
    """Return the name of the rule of an optimizer and the function that updates one tensor by it."""

    def sgd(p: Tensor, gradient: Tensor, state: list[Tensor], _: int) -> None:
        if rate.momentum:
            if not state:
                state.append(torch.zeros_like(p))
            gradient = state[0].mul_(rate.momentum).add_(gradient)
        p.add_(gradient, alpha=-rate.lr)

    def adam(p: Tensor, gradient: Tensor, state: list[Tensor], step: int) -> None:
        if not state:
            state += [torch.zeros_like(p), torch.zeros_like(p)]
        first, second = state
        first.mul_(_BETAS[0]).add_(gradient, alpha=1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        scale = (second / (1 - _BETAS[1] ** step)).sqrt_().add_(_EPS)
        p.addcdiv_(first, scale, value=-rate.lr / (1 - _BETAS[0] ** step))

    return ("SGD", sgd) if "SGD" in rate.optimizer else ("Adam", adam)


EXPERIMENT = Experiment("one_batch", run, forwards=3 * _LEAST, late=True, fresh=True)
