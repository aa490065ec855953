"""The output does not depend on the input.

What it is
    Somewhere between input and output the data gets lost: a variable that is overwritten, a tensor of zeros or noise
    that is passed on instead, a branch that is never taken, a mask that hides everything.

Symptoms
    The loss goes down to what one constant answer gives (the mean of the targets, the frequencies of the classes) and
    stays there. All predictions are alike.

Evidence
    A network that has collapsed (dead units, exploded weights) also gives one answer, but it could see its input. So
    the experiment is made on a copy with fresh random weights: the inputs of all samples are exchanged, noise is added,
    in eval mode and in training mode. If the output is the same to the last bit, no weights whatever would let it see
    the input. One output of several can be blind as well: a decoder that is given noise in the place of the code. An
    input that is zero in every batch is named as well, whatever the model does with it, and so is one that becomes a
    constant in mid-run and stays one. Of several arguments one that
    varies and changes nothing is named with less confidence; masks, lengths and indices are left alone.

What to do
    Follow the input through ``forward``: print a sum of each intermediate value for two different batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.inputs import agreed
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import InputIgnored
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.new_inputs import NewInputs
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.experiment import IgnoredOutput


def judge(case: Case) -> Finding | None:
    """Weigh the experiment that changes the inputs of a copy of the model and compares its outputs."""
    if (change := case.new_inputs) is not None and change.constant:
        return _constant_since(case, change)
    found = agreed(case, InputIgnored, lambda one: one.ignored)
    if found is None:
        return _one_of_several(case)
    # Zero inputs and outputs of pure noise have sentences of their own.
    layer = found.layer if found.layer in case.layout.by_path else None
    weigh = Weighing()
    if found.zeros:
        return _zeros(case, weigh)
    if found.output is not None:
        return _blind(case, weigh, found.output)
    weigh.speaks(
        "in a copy of the model with fresh weights, other inputs gave the same output to the last bit, in eval and in "
        "training mode", 6.5, "same", "same",
    )  # fmt: skip
    if layer:
        weigh.speaks(f"{called(layer)} is the first layer whose input changed and whose output did not", 0.5, layer)
    else:
        weigh.speaks("no layer was given anything that depends on the input", 0.3, "none")
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    code = (
        "with torch.no_grad():\n    a, b = model(x), model(x.roll(1, 0))\n"
        "assert not torch.equal(a, b), 'the output does not depend on the input'"
    )
    return weigh.conclude(
        f"input that has no effect on the output: it gets lost "
        f"{f'in {called(layer)}' if layer else 'before the first layer'}",
        Remedy("Find where forward drops its input: it is overwritten, replaced by a constant, or masked out.", code),
        layer=layer,
        step=0,
        failure=case.trouble.name or "one answer for every input",
    )


def _constant_since(case: Case, change: NewInputs) -> Finding:
    """Weigh inputs that become one constant in mid-run."""
    weigh = Weighing()
    change.weigh(weigh, 6.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    return weigh.conclude(
        f"input that has no effect on the output: {change.said}, so that all samples are alike",
        Remedy("Find where the data is lost on its way to the model: a file or shard without data, a transform that "
               "returns nothing.", "print(x.abs().max())  # just before model(x), and back from there"),
        step=change.until,
        since=change.since,
        failure=case.trouble.name or "one answer for every input",
        explains=BLOW_UP,
    )  # fmt: skip


def _one_of_several(case: Case) -> Finding | None:
    """Weigh an argument of the model that has no effect, while others have one."""
    found = agreed(case, InputIgnored, lambda one: one.leaves)
    if found is None:
        return None
    leaf, weigh = found.leaves[0], Weighing()
    named = f"argument {int(leaf) + 1}" if leaf.isdigit() else f"argument {leaf!r}"
    weigh.speaks(
        f"in a copy of the model with fresh weights, other values of {named} gave the same output to the last bit, and "
        "other values of the rest did not", 3.5, "same", "same",
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"input that has no effect on the output: {named} of the model varies from sample to sample and is not used",
        Remedy(f"Find where forward should use {named}: another name may stand there by mistake.",
               "print(inspect.getsource(type(model).forward))"),
        step=0,
        failure=case.trouble.name or "input that is not used",
    )  # fmt: skip


def _zeros(case: Case, weigh: Weighing) -> Finding:
    weigh.speaks("every value of the batches that the model was given is zero", 3.5, 0.0, 0.0)
    fed = [stats for stats in case.inputs if not stats.integer]
    if fed and all(stats.low == stats.high == 0 for stats in fed):
        weigh.speaks("it was so at the first steps, and whenever the model was tried", 0.5, 0.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    return weigh.conclude(
        "input that has no effect on the output: it is zero throughout, so that all samples are alike",
        Remedy("Find where the data is lost on its way to the model.",
               "print(x.abs().max())  # just before model(x), and back from there"),
        step=0,
        failure=case.trouble.name or "one answer for every input",
    )  # fmt: skip


def _blind(case: Case, weigh: Weighing, output: IgnoredOutput) -> Finding:
    named = f"output {output.name!r}" if output.name else "output"
    weigh.speaks(
        f"in a copy of the model with fresh weights, other inputs gave the same {named} to the last bit, and other "
        "outputs moved", 5.0, "same", "same",
    )  # fmt: skip
    weigh.speaks(
        f"it has the shape of what the loss compares it with ({list(output.shape)}), and no other output has", 1.0
    )
    weigh.speaks("it differs from sample to sample, by noise that the model draws", 0.5)
    return weigh.conclude(
        f"input that has no effect on the {named} of the model, which is made of noise alone",
        Remedy("Pass on the tensor computed from the input: noise is added to it and does not replace it.",
               "z = mu + std * torch.randn_like(std)  # not the noise alone"),
        step=0,
        failure=case.trouble.name or "output made of noise",
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Output does not depend on the input",
    tier=Tier.CERTAIN,
    explains=frozenset(STALL),
    judge=judge,
    page=__doc__ or "",
    place="forward",
    entails=frozenset({"dead_relu"}),
)
