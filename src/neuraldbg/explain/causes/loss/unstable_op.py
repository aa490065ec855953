"""An operation in the loss has no finite value or gradient there: log 0, a division by 0, a root at 0.

What it is
    Some functions are infinite, or have an infinite slope, at values that do occur: ``log(0)``, ``x / 0``, the
    gradient of ``sqrt`` and of a norm at 0, ``exp`` above 88 in 32-bit numbers. One such element turns loss or
    gradient into NaN or infinity, and one step spreads it to every weight.

Symptoms
    Training is fine, then everything is NaN from one step to the next, without a rise before it.

Evidence
    The operands of these operations are read in the graph of the loss. At the first bad step the model's inputs and
    activations are still finite and of usual size, and an operand lies where the function breaks. With a learning
    rate that is too high updates and activations grow over several steps before anything overflows; with a bad
    batch the input itself is not finite.

What to do
    Keep the operand away from the edge (``clamp``, a small constant under the root), or use the combined stable
    function (``log_softmax``, ``logsumexp``, ``binary_cross_entropy_with_logits``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import NONFINITE, Cause
from neuraldbg.explain.evidence.inputs import beside, birth, outgrown, place
from neuraldbg.explain.evidence.operation_domains import broken
from neuraldbg.explain.evidence.wording import moved, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.first_nonfinite import Origin
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.experiment import NonfiniteBirth

STABLE = {
    "log": ("Keep the operand of log above zero, or use a function that never forms it.",
            "torch.log(x.clamp_min(1e-8))  # or log_softmax, logsumexp, binary_cross_entropy_with_logits"),
    "sqrt": ("The slope of a root at zero is infinite: add a small constant under it.", "torch.sqrt(x + 1e-8)"),
    "div": ("Keep the divisor away from zero.", "a / (b + 1e-8)  # or a / b.clamp_min(1e-8)"),
    "norm": ("The gradient of a norm at the zero vector is not defined: add a small constant.",
             "torch.sqrt(x.pow(2).sum(-1) + 1e-8)  # instead of x.norm(dim=-1)"),
    "pow": ("A power with an exponent below 1 has an infinite slope at zero.", "x.clamp_min(1e-8).pow(p)"),
    "exp": ("Bound the argument of exp, or stay in the logarithm.", "torch.exp(x.clamp_max(30))  # or logsumexp"),
    "std": ("The standard deviation of equal values (or of one value) has no finite gradient.",
            "torch.sqrt(x.var(dim, unbiased=False) + 1e-8)"),
    "softmax": ("A row in which everything is masked has no softmax: let every row see at least one position.",
                "scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)  # instead of -inf"),
    "acos": ("The slope of acos at its ends is infinite: stay inside.", "torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))"),
}  # fmt: skip
ALIASES = {
    "reciprocal": "div",
    "xlogy": "log",
    "atanh": "acos",
    "cosine": "norm",
    "rsqrt": "sqrt",
    "asin": "acos",
    "var": "std",
    "linalg": "norm",
    "log2": "log",
    "log10": "log",
    "scaled": "softmax",
    "safe": "softmax",
}


@dataclass(frozen=True)
class Edge:
    """An operand that lies outside the domain of its operation."""

    op: str
    operand: str
    layer: str
    what: str
    value: float
    edge: float


def judge(case: Case) -> Finding | None:
    """Weigh the operands of risky operations at the first non-finite step."""
    origin = case.origin
    if origin is None:
        return None
    if outgrown(case, origin.step) is not None:
        return None  # an overflow of float16, which is another cause
    # In order of certainty: the operation found in an experiment, an operand outside its domain, a name in the graph.
    edges = find_edges(case, origin)
    guessed = [op for op in case.loss_ops if any(word in op.lower() for word in ("log", "sqrt", "div", "norm", "pow"))]
    guessed = [
        op for op in guessed if "softmax" not in op.lower() and "crossentropy" not in op.lower().replace("_", "")
    ]
    born = _born(case, origin)
    if not edges and not guessed and born is None:
        return None
    weigh = Weighing()
    if born is not None:
        weigh.speaks(_birth_words(born, origin.step), 4.5, born.op)
    if edges:
        edge = edges[0]
        weigh.speaks(f"at step {origin.step} the {edge.operand} of {edge.op} {edge.what}", 4.0, edge.value, edge.edge)
    elif born is None:
        weigh.speaks(f"the loss contains {guessed[0]}, which can break", 0.7, guessed[0])
    _weigh_before(case, origin, weigh, inside=born is not None)
    op = born.op if born is not None else edges[0].op if edges else guessed[0].lower()
    kind = next((ALIASES.get(word, word) for word in (*ALIASES, *STABLE) if op.startswith(word)), "div")
    layer = (
        (born.layer if born is not None else "")
        or (edges[0].layer if edges else "")
        or next((term.layer for term in case.terms if term.layer), None)
    )
    if born is not None:
        detail = f"{op}{place(born.where)}"
    else:
        detail = f"{op} whose {edges[0].operand} {edges[0].what}" if edges else f"{op} in the loss"
    return weigh.conclude(
        f"an operation that has no finite value there: {detail}",
        Remedy(*STABLE[kind]),
        layer=layer if layer in case.layout.by_path else None,
        step=origin.step,
        failure=case.trouble.name or "non-finite value",
    )


def _born(case: Case, origin: Origin) -> NonfiniteBirth | None:
    """Return the origin of the first non-finite value if it is a risky operation; else None. Sums and products overflow
    only after something else made their operands large.
    """
    born = birth(case, "forward", "backward", "loss")
    if born is None or not beside(born, origin.step):
        return None
    return born if born.op.startswith((*STABLE, *ALIASES)) else None


def _birth_words(born: NonfiniteBirth, step: int) -> str:
    where, sample = place(born.where), born.sample
    which = f", in sample {sample} of the batch" if sample is not None else ""
    if born.phase == "backward":
        return f"at step {step}, made again on a copy, the backward of {born.op}{where} gave the first NaN{which}"
    if born.phase == "loss":
        return f"at step {step} the operand of {born.op} in the loss lies where it has no finite value or slope{which}"
    return f"at step {step}, made again on a copy, {born.op}{where} gave the first non-finite value{which}"


def _weigh_before(case: Case, origin: Origin, weigh: Weighing, *, inside: bool) -> None:
    """Weigh the state of the model at and before the first non-finite step."""
    if origin.has("input"):
        weigh.against(f"the input of step {origin.step} was already not finite", 6.0, origin.step)
    elif origin.has("activation") and not inside:
        said = f"at step {origin.step} activations were not finite before the loss was computed"
        weigh.against(said, 3.0, origin.step)
    elif not origin.has("activation") and origin.read:
        weigh.speaks(f"input and activations of step {origin.step} were finite", 1.5, origin.step)
    # In a run that blows up, every operation breaks in the end.
    growth, size = activation_growth(case, origin)
    if growth > 30 and size > 1e3:
        weigh.against(f"activations had grown {number(growth)} times before (to {number(size)}), so the run was "
                      "blowing up already", 3.0, growth, 30.0)  # fmt: skip
    elif growth <= 30:
        weigh.speaks("activations had not grown before", 0.7, growth, 30.0)
    ratio = case.scalar("update_ratio").finite().between(0, origin.step - 1).values
    if len(ratio) and ratio.max() < 0.1:
        weigh.speaks(f"updates before were of usual size: in a step at most {moved(float(ratio.max()))}", 0.7,
                     float(ratio.max()), 0.1)  # fmt: skip
    elif len(ratio) and ratio.max() > 1:
        weigh.against(f"updates before were as large as {moved(float(ratio.max()))}", 2.0,
                      float(ratio.max()), 1.0)  # fmt: skip
    if origin.step >= 3 and len(case.loss.finite) >= 3 and not case.loss.early_rise > 3:
        weigh.speaks(f"the loss was unremarkable for {plural(origin.step, 'step')} before", 0.5, origin.step)


def activation_growth(case: Case, origin: Origin) -> tuple[float, float]:
    """Return the growth factor of the largest activation from the first step to the origin, and its size there."""
    rows = case.layout.rows("activation")
    if not rows or origin.row == 0:
        return float("nan"), float("nan")
    low = np.abs(case.history.stat(rows, "min", "min")[: origin.row + 1])
    high = np.abs(case.history.stat(rows, "max", "max")[: origin.row + 1])
    size = np.nanmax(np.nan_to_num(np.maximum(low, high)), axis=1)
    return float(size[-1] / size[0]) if size[0] > 0 else float("nan"), float(size[-1])


def find_edges(case: Case, origin: Origin) -> list[Edge]:
    """Return the operands that lie outside the domain of their operation at the first non-finite step."""
    found = []
    for row in case.layout.rows("op"):
        site = case.layout.sites[row]
        if row >= case.history.sites or not case.history.stat(row, "count", "max")[origin.row] > 0:
            continue
        stats = {name: float(case.history.stat(row, name)[origin.row]) for name in ("zeros", "min", "max", "nonfinite")}
        stats["min"] = float(case.history.stat(row, "min", "min")[origin.row])
        stats["max"] = float(case.history.stat(row, "max", "max")[origin.row])
        op, _, operand = site.name.partition(".")
        verdict = broken(op.lower(), operand.lower(), stats, site.dtype)
        if verdict is not None:
            found.append(Edge(op, operand or "operand", site.module, *verdict))
    return found


CAUSE = Cause(
    module=__name__,
    title="Operation without a finite value or gradient",
    tier=Tier.SPECIFIC,
    explains=NONFINITE | {"loss_divergence", "loss_spike", "gradient_spike", "exploding_gradients"},
    judge=judge,
    page=__doc__ or "",
)
