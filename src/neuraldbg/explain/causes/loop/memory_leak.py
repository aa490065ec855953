"""Tensors of past steps are kept with their graphs: memory grows from step to step and does not come back.

What it is
    A loss, an output or a hidden state holds the autograd graph that made it, and the graph holds every tensor that a
    backward pass would need. Whatever keeps such a tensor beyond its step keeps all of that: ``losses.append(loss)``,
    ``total_loss += loss``, a cache that ``forward`` fills, a state that is carried on without ``detach()``. A hook that
    is registered in every step and never removed grows in the same way, and slows each step down.

Symptoms
    Resident or device memory rises with every step; steps become slower; a run ends after hours with an
    out-of-memory error, on a batch that is no larger than those before. What the model learns is not harmed.

Evidence
    Tensors are counted at several steps: autograd numbers the operations of its graphs, so it is known in which steps
    they were made. Something leaks if operations of all intervals between the last counts are alive at about the same
    rate. The variable that holds them and the line that adds to it are read from the program. Growth that has an end
    is left alone: a window, a buffer with a capacity, a cache that is looked up first. Counting needs ``profile=True``
    (``--profile``), or a run whose memory has grown for long.

What to do
    Keep numbers: ``loss.item()``. Keep tensors without their graph: ``x.detach()``. Evaluate under ``torch.no_grad()``.
    Remove a hook by the handle that registering it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.memory_growth import HOOK, added, certain, growth
from neuraldbg.explain.evidence.wording import number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.measures import size

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.growth import Survivors

GENERAL = "losses.append(loss.item())\noutputs.append(out.detach())\nhidden = hidden.detach()"
"""Code of the remedy where the line of the program has no simple one."""
HOOKS = "handle = module.register_forward_hook(hook)\n# at the end of the step:\nhandle.remove()"


def judge(case: Case) -> Finding | None:
    """Weigh the tensors and hooks that live on; the one that takes most leads."""
    found, known = certain(case), growth(case)
    if not found or known is None:
        return None
    first, weigh = found[0], Weighing()
    for one in found[:3]:
        assert one.kept is not None
        weigh.speaks(
            f"`{one.holder}` keeps {_kinds(one)}: {added(one)} are added and none is released, as "
            f"{plural(known.counts, 'count')} from step {known.first:,} to {known.last:,} show",
            6.5 if one is first else 0.5,
            round(one.per_step, 3),
        )
    if known.resident_per_step is not None and known.resident_per_step >= 1:
        weigh.speaks(f"resident memory grew by {size(known.resident_per_step)} a step", 0.3, known.resident_per_step)
    if known.device_per_step is not None and known.device_per_step >= 1:
        weigh.speaks(f"memory of the device grew by {size(known.device_per_step)} a step", 0.5, known.device_per_step)
    others = f", and {plural(len(found) - 1, 'other place')}" if len(found) > 1 else ""
    if first.type == HOOK:
        sentence = f"hooks that pile up at `{first.holder}`{others}: {added(first)}"
    else:
        sentence = f"tensors of past steps that `{first.holder}` keeps with their graphs{others}: {added(first)}"
    return weigh.conclude(
        sentence,
        _remedy(first),
        step=known.first,
        failure="growing memory",
        at=first.kept,
        doing="what grows is kept",
    )


def _kinds(one: Survivors) -> str:
    """Write what is kept: "tensors of shape (16, 16) with their graphs"."""
    if one.type == HOOK:
        return "hooks"
    shape = f"of shape ({', '.join(map(str, one.shape))})" if one.shape else "of one number"
    if one.alive == 1:
        return f"a tensor {shape} whose graph reaches back over all steps"
    return f"{number(one.alive)} tensors {shape} with their graphs"


def _remedy(one: Survivors) -> Remedy:
    if one.type == HOOK:
        return Remedy("Register the hook once, before the loop, or remove it at the end of the step.", HOOKS)
    end = "number" if not one.shape else "tensor without its graph"
    call = ".item()" if not one.shape else ".detach()"
    return Remedy(f"Keep the {end}: `{call}` is missing where `{one.holder}` is added to.", one.mended or GENERAL)


CAUSE = Cause(
    module=__name__,
    title="Memory grows: graphs of past steps are kept",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
    apart=True,
)
