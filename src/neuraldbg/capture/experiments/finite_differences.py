"""The check of a custom autograd Function against finite differences, on small copies of its arguments.

A class and the arguments of one call enter; a judgement leaves. Directional derivatives are compared in fixed
directions, in double precision, with central differences at two widths: where these two disagree the function is not
smooth, and nothing is judged. A Function that passes its gradient straight through (rounding, clipping, gradient
reversal) intends that, and is not judged either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.experiments.model_copy import check_surroundings
from neuraldbg.capture.guest.program_objects import class_member, is_a, sequence
from neuraldbg.capture.guest.purity import Unfit, check
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTHS = (1e-4, 1e-5)
"""Widths of the difference relative to the input's size. Central differences are exact to the square of the width, and
to the rounding error (1e-16) divided by it: 1e-8 and better for a smooth function in double precision."""
SMOOTH = 1e-3
"""Relative difference between the results of both widths up to which a function counts as smooth."""
WRONG = 1e-2
"""Relative error from which a gradient counts as wrong: six orders above that of the differences themselves."""
DIRECTIONS = 3


@dataclass(frozen=True)
class Judgement:
    """The result of comparing a gradient with finite differences."""

    judged: bool
    reason: str = ""
    input: int = 0
    """Position of the argument with the largest error."""
    analytic: float = 0.0
    numeric: float = 0.0
    error: float = 0.0


def compare(function: type[torch.autograd.Function], args: Sequence[Any]) -> Judgement:
    """Compare a Function's gradients with finite differences. ``args`` are copies; the tensors among them that require
    a gradient are tested.
    """
    try:
        check_surroundings()
        check(*(class_member(function, name) for name in ("forward", "backward", "setup_context")))
        return _compare(function, args)
    except Unfit as reason:
        return Judgement(False, str(reason))
    except Exception as error:  # noqa: BLE001 (the program's own code, given what it may not expect)
        let_pass(error, "checking derivatives")
        return Judgement(False, f"it cannot be called with small copies in double precision ({type(error).__name__})")


def _compare(function: type[torch.autograd.Function], args: Sequence[Any]) -> Judgement:
    tested = [i for i, x in enumerate(args) if is_a(x, Tensor) and x.is_floating_point() and x.requires_grad]
    if not tested:
        raise Unfit("no input requires a gradient")
    # A Function that is random, not finite, or an identity by design cannot be judged by differences.
    base = [_double(x) if is_a(x, Tensor) else x for x in args]
    value, again = _value(function, base), _value(function, base)
    if not torch.equal(value, again):
        raise Unfit("it is random")
    if not value.isfinite().all():
        raise Unfit("its output is not finite")
    if any(value.shape == base[i].shape and torch.equal(value, base[i]) for i in tested):
        raise Unfit("it returns its input, so its gradient is meant to differ")
    # A scalar is a loss: many are written for an incoming gradient of one, and are right for it.
    weight = torch.ones_like(value) if value.numel() == 1 else _direction(value, 17)
    # The largest error over inputs and directions is the judgement.
    analytic = _gradients(function, base, tested, weight)
    worst = Judgement(True)
    for place, gradient in zip(tested, analytic, strict=True):
        if gradient is None:
            continue  # declared to have none: the parameter without gradient shows that
        if gradient.shape == weight.shape and _passed_through(gradient, weight):
            raise Unfit("it passes the gradient straight through, so that is meant")
        for number in range(DIRECTIONS):
            direction = _direction(base[place], number)
            numeric = _difference(function, base, place, direction, weight)
            got = float((gradient * direction).sum())
            if not math.isfinite(got):
                raise Unfit("its gradient is not finite")
            error = abs(got - numeric) / max(abs(got), abs(numeric), 1e-8)
            if numeric == 0.0 and got != 0.0:
                raise Unfit("it is flat where its gradient is not: a surrogate gradient")
            if error > worst.error:
                worst = Judgement(True, "", place, got, numeric, error)
    return worst


def _double(x: Tensor) -> Tensor:
    return x.detach().double() if x.is_floating_point() else x.detach()


def _value(function: Any, args: Sequence[Any]) -> Tensor:
    """Return the output of a call, several outputs concatenated."""
    output = function.apply(*[x.clone() if is_a(x, Tensor) else x for x in args])
    return _joined(output).detach()


def _joined(output: Any) -> Tensor:
    parts = sequence(output) if is_a(output, (tuple, list)) else (output,)
    tensors = [x for x in parts if is_a(x, Tensor) and x.is_floating_point()]
    if not tensors:
        raise Unfit("it returns no floating tensor")
    return tensors[0] if len(tensors) == 1 else torch.cat([x.reshape(-1) for x in tensors])


def _gradients(function: Any, base: Sequence[Any], tested: list[int], weight: Tensor) -> list[Tensor | None]:
    with torch.enable_grad():
        given = [x.clone().requires_grad_(i in tested) if is_a(x, Tensor) else x for i, x in enumerate(base)]
        # An operation before it, as in a program: an in-place Function must not be given a leaf.
        joined = _joined(function.apply(*[x * 1 if i in tested else x for i, x in enumerate(given)]))
        if not joined.requires_grad:
            raise Unfit("it is marked as not differentiable")
        wanted = [given[i] for i in tested]
        return list(torch.autograd.grad(joined, wanted, weight, allow_unused=True))


def _difference(function: Any, base: Sequence[Any], place: int, direction: Tensor, weight: Tensor) -> float:
    """Return the derivative of <weight, output> along a direction of one input. Raises Unfit if it is not smooth."""
    found = []
    size = max(float(base[place].abs().mean()), 1e-3)
    for width in WIDTHS:
        step = width * size
        sides = []
        for sign in (1, -1):
            moved = list(base)
            moved[place] = base[place] + sign * step * direction
            sides.append(float((_value(function, moved) * weight).sum()))
        found.append((sides[0] - sides[1]) / (2 * step))
    scale = max(abs(found[0]), abs(found[1]))
    if scale and abs(found[0] - found[1]) > SMOOTH * scale and scale > 1e-8:
        raise Unfit("it is not smooth at this input")
    return found[1] if scale > 1e-8 else 0.0


def _passed_through(gradient: Tensor, weight: Tensor) -> bool:
    """Return True if all non-zero elements of a gradient are one multiple of the incoming gradient."""
    share = gradient / weight
    kept = share[share != 0]
    return bool(kept.numel() == 0 or (kept - kept.reshape(-1)[0]).abs().max() <= 1e-9 * kept.abs().max())


def _direction(x: Tensor, number: int) -> Tensor:
    """Return fixed numbers between 0.5 and 1.5 in size and of both signs; no random generator is used."""
    n = torch.arange(x.numel(), dtype=torch.float64, device=x.device)
    wave = torch.cos(2.399963 * (n + 1) * (number + 1) + number)  # the golden angle never repeats
    return (torch.sign(wave) * (0.5 + wave.abs())).reshape(x.shape)
