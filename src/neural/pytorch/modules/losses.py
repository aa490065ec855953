"""Losses of Keras for which torch has no function."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def crossentropy_of_shares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of outputs that are made to sum to 1, with one-hot targets."""
    shares = (outputs / outputs.sum(dim=-1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
    return -(targets * shares.log()).sum(dim=-1).mean()


def log_cosh(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean logarithm of the hyperbolic cosine of the distance."""
    distance = outputs - targets
    return (distance + F.softplus(-2 * distance) - 0.6931471805599453).mean()


def signed(targets: torch.Tensor) -> torch.Tensor:
    """Return targets of 0 and 1 as -1 and 1, others as they are."""
    binary = ((targets == 0) | (targets == 1)).all()
    return torch.where(binary, 2 * targets - 1, targets)


def divergence(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the divergence of Kullback and Leibler, of probabilities."""
    wanted, found = targets.clamp(1e-7, 1), outputs.clamp(1e-7, 1)
    return (wanted * (wanted / found).log()).sum(dim=-1).mean()
