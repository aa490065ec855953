"""The reader of attention: entropy of its weights and size of its scores, for a few samples, heads and queries.

Read from the graph of the loss: the saved result of a softmax over positions, or the saved queries and keys of fused
attention.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from neuraldbg.capture.loop.moments import Backward

_HEADS, _QUERIES = 8, 16
_PLACES = 24
_KEYS = 4
"""Keys that a query must have for its entropy to mean something."""
_MOST_KEYS = 4096
_LOW = 0.05


class Attention(Reader):
    """Reads the attention of one training pass when facts are read."""

    sampled = frozenset({"backward_begins"})

    def backward_begins(self, backward: Backward) -> None:
        """Read every softmax over positions and every fused attention that the walk collected."""
        if backward.walk is None:
            return
        places: list[dict[str, Any]] = []
        seen: set[Any] = set()
        with torch.no_grad():
            for name, layer, node in backward.walk.noted:
                if len(places) == _PLACES:
                    break
                if name in ("mul", "nativedropout") or node in seen:
                    continue
                seen.add(node)
                found = _read(name, node)
                if found is not None:
                    places.append({"layer": layer, **found})
        if places:
            self.scene.log(FactKey.ATTENTION, {"step": self.scene.step, "places": places})


def _read(name: str, node: Any) -> dict[str, Any] | None:
    try:
        if name.startswith("scaleddotproduct"):
            return _fused(node)
        weights = saved(node, "result")
        return _softmax(weights) if weights is not None else None
    except (AttributeError, RuntimeError) as error:  # freed, changed in place, or different in another torch
        let_pass(error, "reading attention entropy")
        return None


def _softmax(result: Tensor) -> dict[str, Any] | None:
    """Read weights of shape (batch, heads, queries, keys) or (batch * heads, queries, keys)."""
    if result.dim() not in (3, 4) or min(result.shape[-2:]) < _KEYS or result.shape[-1] > _MOST_KEYS:
        return None
    if result.dim() == 3 and result.shape[-1] != result.shape[-2]:
        return None  # a distribution over classes at each position
    heads = (result[0] if result.dim() == 4 else result)[:_HEADS].detach()
    queries = _some(heads.shape[-2])
    weights = heads[:, queries].float()
    keys = heads.shape[-1]
    at = torch.as_tensor(queries, device=weights.device)[:, None]
    beyond = torch.arange(keys, device=weights.device)[None, :] > at
    causal = heads.shape[-2] == keys and float((weights * beyond).abs().sum()) == 0.0
    return _told(weights, queries, keys, causal=causal, logit=None)


def _fused(node: Any) -> dict[str, Any] | None:
    """Compute scores for a few queries from (batch, heads, positions, channels)."""
    q, k = saved(node, "query"), saved(node, "key")
    if q is None or k is None:
        return None
    q, k = q.detach(), k.detach()
    if q.dim() != 4 or k.shape[-2] < _KEYS or k.shape[-2] > _MOST_KEYS:
        return None
    heads, keys = min(_HEADS, q.shape[1]), k.shape[-2]
    queries = _some(q.shape[-2])
    mine = [h * k.shape[1] // q.shape[1] for h in range(heads)]  # grouped queries share keys
    scale = getattr(node, "_saved_scale", None) or 1 / math.sqrt(q.shape[-1])
    scores = q[0, :heads][:, queries].float() @ k[0, mine].float().transpose(-1, -2) * float(scale)
    causal = bool(getattr(node, "_saved_is_causal", False))
    mask = saved(node, "attn_mask")
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if causal:
        at = torch.as_tensor(queries, device=scores.device)[:, None]
        allowed &= torch.arange(keys, device=scores.device)[None, :] <= at
    if mask is not None:
        mine_mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], keys)[0, :heads][:, queries]
        allowed &= mine_mask if mine_mask.dtype == torch.bool else mine_mask > -1e4
    logit = float(scores.masked_fill(~allowed, 0.0).abs().max())
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num(0.0)
    return _told(weights, queries, keys, causal=causal, logit=round(logit, 3))


def _some(count: int) -> list[int]:
    """Return up to _QUERIES positions, the last among them: it may attend to all others."""
    step = max(1, count // _QUERIES)
    return list(range(count - 1, -1, -step))[:_QUERIES]


def _told(
    weights: Tensor, queries: list[int], keys: int, *, causal: bool, logit: float | None
) -> dict[str, Any] | None:
    """Return the fact's entry for weights of shape (heads, queries, keys)."""
    allowed = torch.as_tensor([at + 1 if causal else keys for at in queries], device=weights.device)
    keep = allowed >= _KEYS
    if not bool(keep.any()):
        return None
    entropy = -(weights.clamp_min(1e-38).log() * weights).sum(-1)[:, keep] / allowed[keep].log()
    by_head = entropy.mean(-1)
    return {
        "heads": int(weights.shape[0]),
        "keys": keys,
        "entropy": round(float(by_head.mean()), 4),
        "low": round(float((by_head < _LOW).float().mean()), 4),
        "logit": logit,
    }


READER = Attention
