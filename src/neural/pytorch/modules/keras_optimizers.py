"""Optimizers that mean what Keras's do, where torch's own put epsilon or the learning rate elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class OneByOne(torch.optim.Optimizer):
    """Change one weight after the other."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.change(weight, weight.grad, self.state[weight], group)
        return loss

    def kept(self, state: dict[str, Any], name: str, weight: torch.Tensor) -> torch.Tensor:
        """Return what is kept from step to step, 0 to begin with."""
        if name not in state:
            state[name] = torch.zeros_like(weight)
        found: torch.Tensor = state[name]
        return found

    def change(self, weight: torch.Tensor, gradient: torch.Tensor, state: Any, group: Any) -> None:
        """Move one weight."""
        raise NotImplementedError


class Adam(OneByOne, torch.optim.Adam):
    """Add epsilon before the means of the first steps are corrected, as Keras does."""

    def change(self, weight: torch.Tensor, gradient: torch.Tensor, state: Any, group: Any) -> None:
        ahead, back = group["betas"]
        step = state["step"] = state.get("step", 0) + 1
        mean = self.kept(state, "exp_avg", weight).lerp_(gradient, 1 - ahead)
        square = self.kept(state, "exp_avg_sq", weight)
        square.mul_(back).addcmul_(gradient, gradient, value=1 - back)
        if group["amsgrad"]:
            most = self.kept(state, "max_exp_avg_sq", weight)
            square = torch.maximum(most, square, out=most)
        rate = group["lr"] * (1 - back**step) ** 0.5 / (1 - ahead**step)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.sub_(rate * mean / (square.sqrt() + group["eps"]))


class AdamW(Adam, torch.optim.AdamW):
    """The same, with weights that shrink in each step."""


class SGD(OneByOne, torch.optim.SGD):
    """Keep the learning rate in the momentum, as Keras does: a schedule changes what is added later alone."""

    def change(self, weight: torch.Tensor, gradient: torch.Tensor, state: Any, group: Any) -> None:
        rate, momentum = group["lr"], group["momentum"]
        moving = self.kept(state, "momentum_buffer", weight)
        moving.mul_(momentum).add_(gradient, alpha=rate)
        if group["nesterov"]:
            weight.sub_(moving, alpha=momentum).sub_(gradient, alpha=rate)
        else:
            weight.sub_(moving)


class RMSprop(OneByOne, torch.optim.RMSprop):
    """Add epsilon under the root, and keep the learning rate in the momentum, as Keras does."""

    def change(self, weight: torch.Tensor, gradient: torch.Tensor, state: Any, group: Any) -> None:
        rho = group["alpha"]
        square = self.kept(state, "square_avg", weight)
        square.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
        if group["centered"]:
            mean = self.kept(state, "grad_avg", weight)
            mean.mul_(rho).add_(gradient, alpha=1 - rho)
            square = square - mean.square()
        moving = group["lr"] * gradient / (square + group["eps"]).sqrt()
        if group["momentum"]:
            moving = self.kept(state, "momentum_buffer", weight).mul_(group["momentum"]).add_(moving)
        weight.sub_(moving)


class Adamax(OneByOne, torch.optim.Adamax):
    """Add epsilon to the largest gradient after it is kept, as Keras does."""

    def change(self, weight: torch.Tensor, gradient: torch.Tensor, state: Any, group: Any) -> None:
        ahead, back = group["betas"]
        state["step"] = state.get("step", 0) + 1
        mean = self.kept(state, "exp_avg", weight).lerp_(gradient, 1 - ahead)
        largest = self.kept(state, "exp_inf", weight).mul_(back)
        torch.maximum(largest, gradient.abs(), out=largest)
        weight.sub_(group["lr"] * mean / ((1 - ahead ** state["step"]) * (largest + group["eps"])))
