"""Metrics: predictions and targets enter, a number leaves. Predictions are what the network gives, as probabilities."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F


def one_hot_targets(predicted: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the targets in the shape of the predictions: class numbers become rows with one 1."""
    if targets.ndim == predicted.ndim - 1:
        return F.one_hot(targets.long(), predicted.shape[-1])
    return targets


def categorical_accuracy(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of samples whose largest prediction is at the largest target."""
    return (predicted.argmax(dim=-1) == targets.argmax(dim=-1)).float().mean().item()


def sparse_categorical_accuracy(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of samples whose largest prediction is that of their class."""
    return (predicted.argmax(dim=-1) == targets).float().mean().item()


def binary_accuracy(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of predictions on the right side of 0.5."""
    return ((predicted > 0.5) == (targets > 0.5)).float().mean().item()


def top_k_accuracy(predicted: torch.Tensor, targets: torch.Tensor, k: int = 5) -> float:
    """Return the share of samples whose class is among the `k` largest predictions."""
    right = one_hot_targets(predicted, targets).argmax(dim=-1, keepdim=True)
    best = predicted.topk(min(k, predicted.shape[-1]), dim=-1).indices
    return (best == right).any(dim=-1).float().mean().item()


def precision(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of predictions above 0.5 that are right."""
    chosen, right = predicted > 0.5, one_hot_targets(predicted, targets) > 0.5
    return ((chosen & right).sum() / chosen.sum().clamp(min=1)).item()


def recall(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of what is right that was predicted above 0.5."""
    chosen, right = predicted > 0.5, one_hot_targets(predicted, targets) > 0.5
    return ((chosen & right).sum() / right.sum().clamp(min=1)).item()


def f1_score(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the harmonic mean of precision and recall."""
    one, other = precision(predicted, targets), recall(predicted, targets)
    return 2 * one * other / (one + other) if one + other else 0.0


def auc(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of pairs of a right and a wrong answer in which the right one has the larger prediction."""
    right = one_hot_targets(predicted, targets).flatten() > 0.5
    scores = predicted.flatten()
    good, bad = scores[right], scores[~right].sort().values
    below = torch.searchsorted(bad, good) + torch.searchsorted(bad, good, right=True)
    return (below.sum() / (2 * max(len(good) * len(bad), 1))).item()


def mean_absolute_error(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean distance."""
    return (predicted - one_hot_targets(predicted, targets)).abs().mean().item()


def mean_squared_error(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean of the squared distances."""
    return (predicted - one_hot_targets(predicted, targets)).square().mean().item()


def root_mean_squared_error(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the square root of the mean of the squared distances."""
    return math.sqrt(mean_squared_error(predicted, targets))


def r2_score(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of the targets' variance that the predictions explain."""
    wanted = one_hot_targets(predicted, targets).float()
    rest, spread = (predicted - wanted).square().sum(dim=0), (wanted - wanted.mean(dim=0)).square().sum(dim=0)
    return (1 - rest / spread.clamp(min=1e-7)).mean().item()


def cosine_similarity(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean cosine of the angle between prediction and target."""
    return F.cosine_similarity(predicted, one_hot_targets(predicted, targets).float(), dim=-1).mean().item()


def crossentropy(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean of the logarithms of the right classes' probabilities, with the other sign."""
    shares = (predicted / predicted.sum(dim=-1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
    return -(one_hot_targets(predicted, targets) * shares.log()).sum(dim=-1).mean().item()


def binary_crossentropy(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the cross entropy of single probabilities."""
    wanted = one_hot_targets(predicted, targets).float()
    return F.binary_cross_entropy(predicted.clamp(1e-7, 1 - 1e-7), wanted).item()


def perplexity(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the number of equally likely classes that would be as hard to tell."""
    return math.exp(crossentropy(predicted, targets))


def kl_divergence(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the divergence of the predictions from the targets."""
    wanted = one_hot_targets(predicted, targets).float().clamp(1e-7, 1)
    return (wanted * (wanted / predicted.clamp(1e-7, 1)).log()).sum(dim=-1).mean().item()


def hinge(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean distance to the margin, for targets of -1 and 1; 0 counts as -1."""
    wanted = one_hot_targets(predicted, targets).float()
    wanted = torch.where(wanted == 0, -1.0, wanted)
    return F.relu(1 - wanted * predicted).mean().item()
