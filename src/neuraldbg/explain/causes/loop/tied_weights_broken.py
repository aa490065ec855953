"""Two weights that should be one tensor are trained separately.

What it is
    Weight tying makes one tensor serve twice: the embedding of the words is also the output matrix, or a decoder uses
    the transpose of its encoder. It holds only while both layers have the same ``nn.Parameter``. Copying the values,
    wrapping a copy into a new ``nn.Parameter``, or assigning a new weight after tying makes two tensors, which begin
    equal and drift apart.

Symptoms
    The model has more parameters than meant, fits worse per parameter, and the saved weights no longer fit a model that
    is tied. Nothing fails.

Evidence
    Before the first step the weights of embeddings and linear layers of the same shape are compared, and linear
    layers with the transposes of others. Two random matrices are never equal to the last bit, so equal ones in two
    storages were copied. ``load_state_dict(assign=True)`` may make two of one parameter; that is seen. A
    declaration (``tie_word_embeddings=True``) counts too, by itself only a little. Whole blocks that are copied,
    target networks and averaged models are not compared. Weights that are really shared are no fault, nor is a
    decoder that only begins as the transpose of its encoder, unless the model says that it ties them.

What to do
    Assign the parameter itself, and build the optimizer afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.graph_wiring import access
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.ties import TiesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.ties import WeightPair


def judge(case: Case) -> Finding | None:
    """Weigh the clearest pair of weights that are trained apart and were tied, began equal or are declared as tied."""
    fact = case.run.known(TiesFact)
    pairs = [p for p in fact.pairs if not p.equal and all(p.trained)] if fact is not None else []
    pairs.sort(key=lambda pair: (not pair.untied, not pair.started_equal, not pair.declared))
    return _weigh(pairs[0]) if pairs else None


def _weigh(pair: WeightPair) -> Finding:
    a, b, turned = pair.a, pair.b, " transposed" if pair.transposed else ""
    weigh = Weighing()
    # The surest sign first: one parameter that became two, equal values at the start, a switch in the configuration.
    if pair.untied:
        weigh.speaks(f"they were one parameter until {pair.untied} gave them tensors of their own", 6.0)
        weigh.speaks("nothing tied them again before they were trained", 0.5)
    if pair.started_equal:
        same = f"{b} was equal to {a}{turned} to the last bit before the first step, in a storage of its own"
        weigh.speaks(same, 4.3)
        apart = f"they have drifted apart by {percent(pair.distance)} of their size"
        weigh.speaks(apart, 0.7, round(pair.distance, 6), 0.0)
        if pair.transposed and not pair.declared:
            # Sparse autoencoders begin like this by design, and need not stay equal.
            weigh.against(
                "a decoder may begin as the transpose of its encoder on purpose; nothing says they are tied", 4.0
            )
    if pair.declared:
        # Libraries set such a switch by default, so alone it is weak evidence.
        named = not pair.declared.startswith("config")
        weight = 3.3 if named or pair.started_equal else 2.2
        weigh.speaks(f"{pair.declared} is True", weight, pair.declared)
    if not pair.started_equal:
        weigh.speaks(f"{a} and {b} are two tensors of one shape", 0.2)
    code = f"{access(b, 'model')} = {access(a, 'model')}  # the parameter itself, before the optimizer is made"
    if pair.transposed:
        code = f"# in forward(), with one parameter:\nx = F.linear(x, {access(a)}.t(), {access(owner(b))}.bias)"
    return weigh.conclude(
        f"weights that should be tied and are two tensors: {a} and {b} are trained separately",
        Remedy(
            f"Let {owner(b)!r} use the parameter of {owner(a)!r} itself, not a copy of its values.",
            code,
            () if pair.transposed else (once_made(code),),
        ),
        layer=owner(b),
        step=0,
        failure="weights drifting apart",
    )


CAUSE = Cause(
    module=__name__,
    title="Tied weights are separate tensors",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    place="layer",
    page=__doc__ or "",
)
