"""A model that predicts the next token can see it, or attention sees only the padding.

What it is
    Each position of a sequence is trained to predict the token after it, so it must not see what comes later. The
    causal mask is missing, is not handed on, hides the wrong triangle, or some other part looks over the whole
    sequence: a bidirectional recurrence, a mean over time, a convolution with padding on both sides.
    A padding mask can be the wrong way round too: torch's attention leaves out what is True, other libraries keep it.
    Then every word is hidden and the padding is seen.

Symptoms
    The loss falls far below what the text allows, often close to zero. Generated text is nonsense, since what the
    model learnt to copy is not there when it generates.

Evidence
    By an experiment on a copy of the model. Where the targets are the inputs shifted by one, everything after a
    position is exchanged for other tokens; no output up to that position may move. A model with other targets (masked
    words, a label for the sentence) may look both ways, and is not tried. Positions that the loss does not count, such
    as the prompt of a prefix model, may look ahead as well.
    A padding mask that is given to attention is compared with where the rows of ids end in padding.

What to do
    Give the attention its causal mask, and make recurrences and convolutions causal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.inputs import agreed
from neuraldbg.explain.evidence.wording import percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import Causality, PaddingMask
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding


def judge(case: Case) -> Finding | None:
    """Weigh the experiment that changes later tokens in a copy of the model and compares earlier outputs."""
    # Where tokens of other samples change the outputs, samples are mixed: another fault, of other code.
    found = agreed(case, Causality, lambda one: one.leaks and not one.across)
    if found is None:
        return _padding(case)
    at, length, share = found.at, found.length, found.share
    layer = found.layer if found.layer in case.layout.by_path else None
    weigh = Weighing()
    weigh.speaks(
        f"in a copy of the model other tokens after position {at} of {length} changed {percent(share)} of the outputs "
        "up to it, each of which is to predict the token after it",
        7.0, share, 0.0,
    )  # fmt: skip
    # The experiment is proof; the layer only describes it. A right model of a text that repeats has a low loss, too.
    if layer:
        weigh.speaks(f"{called(layer)} ({found.type}) is the first layer that passes it on", 0.5, layer)
    return weigh.conclude(
        f"future tokens that the model can see: outputs up to position {at} depend on inputs after it",
        _remedy(found.type),
        layer=layer,
        step=0,
        failure=case.trouble.name or "leak of the targets into the input",
    )


def _padding(case: Case) -> Finding | None:
    """Weigh a padding mask that is inverted."""
    found = agreed(case, PaddingMask, lambda one: one.inverted)
    if found is not None and found.layer is None and not found.masks:
        return _blind_to_words(case)
    if found is None or found.layer is None:
        return None
    weigh, layer, kind = Weighing(), found.layer, found.type
    weigh.speaks(
        f"the padding mask that {called(layer)} ({kind}) is given hides the words and shows the padding", 5.5, layer
    )
    weigh.speaks("rows of ids end in runs of one id of different lengths, which are the padding", 0.7, "padding")
    return weigh.conclude(
        f"padding mask that is the wrong way round: {called(layer)} attends to nothing but padding",
        Remedy("Turn the mask over: True is what torch's attention leaves out.", "key_padding_mask=ids == pad_id"),
        layer=layer if layer in case.layout.by_path else None,
        step=0,
        failure=case.trouble.name or "attention that sees no word",
    )


def _blind_to_words(case: Case) -> Finding:
    """Weigh outputs that other words do not change, and other padding does."""
    weigh = Weighing()
    weigh.speaks(
        "in a copy of the model other words changed no output of the rows with padding, and other ids in the place of "
        "the padding did", 5.5, "words", "padding",
    )  # fmt: skip
    weigh.speaks("rows of ids end in runs of one id of different lengths, which are the padding", 0.7, "padding")
    return weigh.conclude(
        "padding mask that is the wrong way round: what the model returns depends on the padding and on no word",
        Remedy(
            "Turn the mask over. For scaled_dot_product_attention True is what takes part; for nn.MultiheadAttention "
            "it is what is left out.",
            "attn_mask = (ids != pad_id)[:, None, None, :]",
        ),
        step=0,
        failure=case.trouble.name or "attention that sees no word",
    )


def _remedy(kind: str) -> Remedy:
    if kind in ("LSTM", "GRU", "RNN"):
        return Remedy("Let the recurrence run forward only.", f"nn.{kind}(..., bidirectional=False)")
    if kind.startswith("Conv"):
        return Remedy("Pad on the left only, by the kernel's width less one.",
                      "x = F.pad(x, ((kernel_size - 1) * dilation, 0))  # and padding=0 in the layer")  # fmt: skip
    return Remedy(
        "Hide later positions: -inf (or True, for a boolean mask of torch's modules) above the diagonal, in every "
        "attention layer; and take no statistic over the whole sequence.",
        "mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))\n"
        "out = encoder(x, mask=mask, is_causal=True)\n"
        "# or F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    )


CAUSE = Cause(
    module=__name__,
    title="Model sees what it should predict",
    tier=Tier.CERTAIN,
    explains=frozenset(STALL),
    judge=judge,
    page=__doc__ or "",
    place="forward",
)
