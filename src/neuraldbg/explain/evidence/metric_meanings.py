"""The meaning of a metric of the program's own as the words of its name tell it."""

from __future__ import annotations

import re
from typing import NamedTuple

OF_CLASSES = frozenset({"acc", "accuracy", "top1"})
"""Words of metrics that are the share of right classes."""
SHARES = OF_CLASSES | {
    "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "miou", "precision", "r2", "recall", "rouge", "ssim",
}  # fmt: skip
"""Words of metrics that should rise, and are 1 at best, or 100 if they are written as percentages."""
RISING = SHARES | {"psnr", "return", "reward"}
"""Words of all metrics that should rise."""
FALLING = frozenset({"cer", "error", "fid", "loss", "mae", "mse", "perplexity", "ppl", "rmse", "wer"})
"""Words of metrics that should fall."""
_TURNED = frozenset({"inverse", "minus", "neg", "negative"})
"""Words by which a metric may be another with its sign changed."""
HELD_OUT = frozenset({"dev", "eval", "evaluation", "heldout", "holdout", "test", "val", "valid", "validation"})
"""Words of metrics of data that are not trained on."""
WORSE = 0.05
"""Share of the best value by which a metric that gets worse must fall below its best level."""
ROSE = 0.1
"""Share of its lowest level by which a metric that should fall must rise above it."""
_WORDS = re.compile(r"[A-Za-z]+[0-9]*"), re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""Words between other characters (``val/acc``, ``mAP50``), and those that begin with a capital (``valAccuracy``)."""


class Meaning(NamedTuple):
    """The meaning of a metric as its name tells it."""

    rises: bool
    """True if it should rise, False if it should fall."""
    share: bool
    """True if it is 1, or 100, at best."""
    classes: bool
    """True if it is a share of right classes."""
    held_out: bool
    """True if it is of data that are not trained on."""


def meaning_of(name: str) -> Meaning | None:
    """Return the meaning of a metric by the words of its name; None if they tell none, or two that contradict."""
    words = {word.lower() for pattern in _WORDS for word in pattern.findall(name)}
    words |= {word.rstrip("0123456789") for word in words if word not in SHARES}  # mAP50
    words |= {word.removesuffix("s") for word in words if word.removesuffix("s") in RISING | FALLING}
    up, down = words & RISING, words & FALLING
    if bool(up) == bool(down) or words & _TURNED:
        return None
    several = any(word.startswith("top") for word in words - {"top1"})  # top5: a guess is right more often
    return Meaning(bool(up), bool(words & SHARES), bool(words & OF_CLASSES) and not several, bool(words & HELD_OUT))
