"""Torch refuses an operation and the script ends: shapes, devices or dtypes that do not fit, or a graph used wrongly.

What it is
    Autograd frees a graph after its backward pass: what a later step still needs of it (a hidden state that was not
    detached, a loss that is added up over steps) cannot be differentiated again. It keeps values of the forward pass
    and refuses to use one that was overwritten in place since. Layers refuse inputs of another width, device or dtype
    than they were made for; an embedding refuses ids that its table has no row for.

Symptoms
    The script ends with a RuntimeError, often in its first or second step, or when a batch of another size comes.

Evidence
    The error itself, which is certain; the line of the program that led to it; the layer, where only one has the
    sizes of the message.

What to do
    It depends on the operation: detach what is carried from step to step, replace operations in place, print shapes
    and devices before the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.memory_growth import added, certain
from neuraldbg.explain.evidence.training_loop import brief, raised
from neuraldbg.explain.evidence.wording import plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.diagnosis import AS_WRITTEN
from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.refused_ids import RefusedIdsFact
from neuraldbg.nouns.layout import called
from neuraldbg.nouns.measures import size

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

PRINTED = "print(x.shape, x.dtype, x.device)  # before that line"


OUT_OF_MEMORY = r"out of memory|can't allocate memory"


@dataclass(frozen=True)
class Refusal:
    """One kind of error message of torch, with its meaning."""

    pattern: str
    """Regular expression that is searched for in the message; its named groups fill ``sentence``."""
    sentence: str
    """The fault, as a noun phrase."""
    text: str
    """What to do."""
    code: str


FREED = "Trying to backward through the graph a second time"
IDS = "index out of range in self"
"""The message of an embedding on the CPU."""
ONCE = Refusal(
    FREED,
    "graph that is differentiated twice in one step: the first backward pass freed it",
    "Add the losses that share the graph and call backward once, or keep the graph for the second call.",
    "(loss_a + loss_b).backward()\n# or: loss_a.backward(retain_graph=True); loss_b.backward()",
)
"""The meaning of ``FREED`` where no step was made before."""
SHAPES = (
    "Print the shapes before that line and compare them with what the layer or the operation was made for; a batch "
    "of another size than usual is often the last one of the data."
)
REFUSALS = (
    Refusal(
        FREED,
        "graph of an earlier step that is differentiated again: something made there, such as a hidden state or a sum "
        "of losses, is used in this step, and its graph is freed",
        "Detach what is carried from one step to the next. If two losses of one step share a graph, add them and call "
        "backward once; retain_graph=True only for that, since a kept graph grows with every step.",
        "hidden = tuple(h.detach() for h in hidden)  # an LSTM's; of a GRU: hidden = hidden.detach()\n"
        "total += loss.item()  # not total += loss",
    ),
    Refusal(
        r"modified by an inplace operation: \[[\w.]+ \[(?P<sizes>[\d, ]*)\]\], which is output \d+ of "
        r"(?:AsStrided|T)Backward\d*,",
        "weights of shape ({sizes}) that changed between forward and backward pass, as by an optimizer step",
        "Call backward on a loss before any optimizer steps on the weights that it was computed with, or compute it "
        "again.",
        "loss_a.backward()\nloss_b.backward()\noptimizer_a.step()\noptimizer_b.step()",
    ),
    Refusal(
        r"modified by an inplace operation: \[[\w.]+ \[(?P<sizes>[\d, ]*)\]\](?:, which is output \d+ of (?P<op>\w+?)"
        r"(?:Backward\d*)?,)?",
        "value of shape ({sizes}){of} that the backward pass needs and that was overwritten in place",
        "Make a new tensor in place of changing that one: no +=, no function that ends in _, no assignment to a part.",
        "x = x + y  # not x += y\nx = torch.relu(x)  # not torch.relu_(x) or nn.ReLU(inplace=True)",
    ),
    Refusal(
        "leaf Variable that requires grad is being used in an in-place operation",
        "weights that are changed in place while autograd follows them",
        "Change weights by an optimizer, or under torch.no_grad().",
        "with torch.no_grad():\n    weight.mul_(0.99)",
    ),
    Refusal(
        "grad can be implicitly created only for scalar outputs",
        "loss that is no single number",
        "Reduce the loss to one number before the backward pass.",
        "loss.mean().backward()",
    ),
    Refusal(
        r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x(?P<given>\d+) and (?P<wanted>\d+)x(?P<out>\d+)\)",
        "input of {given} features for a layer that was made for {wanted}",
        "Make the layer for the width of what it is given, or find out why that has another width.",
        "nn.Linear({given}, {out})  # not nn.Linear({wanted}, {out})",
    ),
    Refusal(
        r"expected input\[(?P<sizes>[\d, ]+)\] to have (?P<wanted>\d+) channels, but got (?P<given>\d+) channels",
        "input of {given} channels, shape ({sizes}), for a layer that was made for {wanted}",
        "Make the layer for the channels of what it is given; images with the channels last need permute(0, 3, 1, 2).",
        "x = x.permute(0, 3, 1, 2)  # (N, H, W, C) to (N, C, H, W)",
    ),
    Refusal(
        r"Expected input batch_size \((?P<given>\d+)\) to match target batch_size \((?P<wanted>\d+)\)",
        "loss of {given} predictions and {wanted} targets",
        "Bring predictions to (N, C) and targets to (N): a view with a fixed size moves samples into another axis.",
        "loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())",
    ),
    Refusal(
        r"The size of tensor a \((?P<given>\d+)\) must match the size of tensor b \((?P<wanted>\d+)\) at non-singleton "
        r"dimension (?P<axis>\d+)",
        "tensors of {given} and {wanted} elements along axis {axis} that are combined element by element",
        SHAPES,
        PRINTED,
    ),
    Refusal(
        r"shape '\[(?P<sizes>[-\d, ]+)\]' is invalid for input of size (?P<given>\d+)",
        "view as ({sizes}) of {given} elements, which do not fit",
        SHAPES,
        "x = x.flatten(1)  # or x.view(x.shape[0], -1): no fixed batch size",
    ),
    Refusal(
        r"Sizes of tensors must match except in dimension|Expected hidden\[?\d?\]? size|must have same (?:final )?dim|"
        r"input\.size\(-1\) must be equal to input_size|Given normalized_shape|The expanded size of the tensor|"
        r"size mismatch|shapes? .{0,60}(?:mismatch|do not match|not aligned)",
        "tensors whose shapes do not fit",
        SHAPES,
        PRINTED,
    ),
    Refusal(
        r"Expected all tensors to be on the same device|Input type \(torch\.cuda.*weight type|"
        r"Input type \(torch\.\w+Tensor\) and weight type \(torch\.cuda",
        "tensors that are on different devices",
        "Move the model and each batch to one device; tensors made inside of forward take the device of the input.",
        "model.to(device)\nx, y = x.to(device), y.to(device)\nmask = torch.ones(n, device=x.device)",
    ),
    Refusal(
        r"expected scalar type (?P<wanted>\w+) but found (?P<given>\w+)|"
        r"must have the same dtype|Found dtype \w+ but expected \w+|"
        r"Input type \(\w+\) and bias type|expected m1 and m2 to have the same dtype",
        "tensors of different dtypes",
        "Convert the batch to the dtype of the weights, or the target to the one that the loss wants.",
        "x = x.float()  # weights are float32\ny = y.long()  # class ids",
    ),
    Refusal(
        OUT_OF_MEMORY,
        "memory that is used up",
        "Take smaller batches, keep numbers and not tensors of past steps (loss.item()), evaluate under "
        "torch.no_grad().",
        "total += loss.item()",
    ),
)


def judge(case: Case) -> Finding | None:
    """Weigh the message of the error that ended the script, if it is one of torch's that are known."""
    message = raised(case)
    if IDS in message and message.startswith("IndexError"):
        return _weigh_ids(case, message)
    for refusal in REFUSALS:
        found = re.search(refusal.pattern, message)
        if found is not None:
            first = refusal.pattern == FREED and case.run.steps == 0
            return _weigh(case, ONCE if first else refusal, found, message)
    return None


def _weigh_ids(case: Case, message: str) -> Finding:
    """Weigh an id that the table of an embedding has no row for."""
    weigh, fact = Weighing(), case.run.known(RefusedIdsFact)
    weigh.speaks(f"the script ended with {brief(message)}", 7.0, message.partition(":")[0])
    if fact is None:
        sentence = "id that the table of an embedding has no row for"
        text, code = (
            "Compare the ids with the size of the table.",
            "print(ids.min(), ids.max(), embedding.num_embeddings)",
        )
        layer = None
    else:
        layer = fact.layer or None
        name, last = called(layer) if layer else "an embedding", fact.rows - 1
        over = fact.high > last
        odd, verb = fact.high if over else fact.low, "is" if fact.number == 1 else "are"
        sentence = f"id {odd} for the table of {name}, which has the {fact.rows:,} rows 0 to {last}"
        weigh.speaks(
            f"of the {fact.ids:,} ids of that call, {fact.low} to {fact.high}, {fact.number:,} {verb} outside of the "
            f"table, first in sample {fact.sample} of the batch", 0.5, odd, last if over else 0,
        )  # fmt: skip
        if fact.calls > 1:
            weigh.speaks(f"{fact.calls:,} batches ended so", 0.3, fact.calls)
        elif case.run.steps:
            weigh.speaks(f"no batch of the {plural(case.run.steps, 'step')} before it had such an id", 0.3, 0)
        if over:
            text = (
                "Make the table for the largest id that can come (the vocabulary of all data, not of those that were "
                "seen first), or give ids that it does not know a row of their own."
            )
            code = (
                f"nn.Embedding({fact.high + 1}, {fact.width})  # not nn.Embedding({fact.rows}, {fact.width})\n"
                f"# or, with row {last} for unknown ids:\nids = ids.clamp(max={last})"
            )
        else:
            text = "Ids below 0 are no rows: give padding and unknown words rows of their own."
            code = f"ids = ids + {-fact.low}  # and nn.Embedding({fact.rows - fact.low}, {fact.width}, padding_idx=0)"
    return weigh.conclude(
        sentence, Remedy(text, code), layer=layer, step=case.run.steps, failure="crash", at=_line(case),
        doing="the error is raised", title="Id outside of the table of an embedding",
    )  # fmt: skip


def _weigh(case: Case, refusal: Refusal, found: re.Match[str], message: str) -> Finding:
    parts = {name: value or "" for name, value in found.groupdict().items()}
    parts["of"] = f", the output of {parts['op'].lower()}," if parts.get("op") else ""
    weigh = Weighing()
    weigh.speaks(f"the script ended with {brief(message)}", 7.0, message.partition(":")[0])
    by_hand = (case.run.info.coverage.get("unread") or {}).get(AS_WRITTEN)
    if by_hand and "inplace" in refusal.pattern:
        weigh.against(f"at a stop of the debugger, {by_hand}: the script itself may be right", 4.5, by_hand)
    layer = _layer(case, parts)
    if layer is not None:
        weigh.speaks(f"{called(layer)} is the only layer of that size", 0.5, layer)
    remedy = Remedy(refusal.text, refusal.code.format(**parts) if parts.get("wanted") else refusal.code)
    if refusal.pattern == OUT_OF_MEMORY:
        remedy = _weigh_memory(case, weigh) or remedy
    return weigh.conclude(
        refusal.sentence.format(**parts),
        remedy,
        layer=layer,
        step=case.run.steps,
        failure="crash",
        at=_line(case),
        doing="the error is raised",
    )


def _weigh_memory(case: Case, weigh: Weighing) -> Remedy | None:
    """Add what was measured of memory; return a remedy that follows from it, None if nothing does."""
    for one in certain(case)[:1]:
        line = f", by the line {one.kept.text}" if one.kept is not None else ""
        weigh.speaks(f"`{one.holder}` keeps {added(one)}{line}", 1.0, one.holder)
        text = f"`{one.holder}` keeps the graphs of past steps: keep numbers, or tensors without their graph."
        return Remedy(text, one.mended or "losses.append(loss.item())")
    found: FootprintFact | None = case.run.known(FootprintFact)
    if found is None or found.peak is None:
        return None
    # Without profile=True activations are not measured, nor is the moment of the peak.
    names = ("parameters", "gradients", "optimizer", "activations")
    held = {name: value for name in names if (value := getattr(found, name)) is not None}
    most = max(held, key=lambda name: held[name])
    at = f" ({found.peak_at})" if found.peak_at else ""
    kind = "optimizer state" if most == "optimizer" else most
    weigh.speaks(
        f"a step needed {size(found.peak)} at its peak{at}, {size(held[most])} of them {kind}, at step {found.step}",
        0.5,
        found.peak,
    )
    return None


def _layer(case: Case, parts: dict[str, str]) -> str | None:
    """Return the only layer with the sizes of the message, None if there is none or several."""
    if not parts.get("wanted") or not parts.get("given", "").isdigit():
        return None
    wanted = int(parts["wanted"])
    names = ("in_features", "in_channels") if not parts.get("out") else ("in_features",)
    found = [layer for layer in case.layout.layers if any(layer.settings.get(name) == wanted for name in names)]
    if parts.get("out"):
        found = [layer for layer in found if layer.settings.get("out_features") == int(parts["out"])]
    return found[0].path if len(found) == 1 else None


def _line(case: Case) -> SourceLine | None:
    file, _, number = case.run.info.outcome.where.rpartition(":")
    return SourceLine(file, int(number), case.run.info.outcome.text) if file and number.isdigit() else None


CAUSE = Cause(
    module=__name__,
    title="Operation that torch refuses",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
)
