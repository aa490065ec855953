"""The variables that a loss is the sum of."""

from __future__ import annotations

import linecache
import textwrap

import pytest

from neuraldbg.capture.guest.loss_summands import summands
from neuraldbg.capture.guest.source_trace import Source

TEXTS = {
    "a sum on the line": ("(recon + 0.1 * kl).backward()", [("recon",), ("kl",)]),
    "a sum of names": ("loss = recon + beta * kl\nloss.backward()", [("recon",), ("beta", "kl")]),
    "a difference": ("loss = fit - entropy\nloss.backward()", [("fit",), ("entropy",)]),
    "added one by one": ("loss = fit\nloss += penalty\nloss.backward()", [("fit",), ("penalty",)]),
    "one that is a sum itself": (
        "penalty = a + b\nloss = fit + penalty\nloss.backward()",
        [("fit",), ("penalty",), ("a",), ("b",)],
    ),
    "a mean of a sum": ("loss = (fit + penalty).mean()\nloss.backward()", [("fit",), ("penalty",)]),
    "scaled": ("scaler.scale(fit + penalty).backward()", [("fit",), ("penalty",)]),
    "a call beside a name": ("loss = fit(x) + penalty\nloss.backward()", [(), ("penalty",)]),
    "a weight and a call": ("loss = fit + beta * penalty(x)\nloss.backward()", [("fit",), ()]),
    "a product": ("loss = advantage * log_prob\nloss.backward()", []),
    "a difference that is averaged by its size": ("loss = (pred - target).abs().mean()\nloss.backward()", []),
    "one name": ("loss = fit(x)\nloss.backward()", []),
    "no backward": ("loss = a + b", []),
}


@pytest.mark.parametrize("name", TEXTS)
def test_summands_of_a_loss(name):
    text, wanted = TEXTS[name]
    text = "def train():\n" + textwrap.indent(text, "    ") + "\n"
    linecache.cache["<summands>"] = (len(text), None, text.splitlines(keepends=True), "<summands>")
    assert summands(Source("<summands>"), len(text.splitlines())) == wanted
