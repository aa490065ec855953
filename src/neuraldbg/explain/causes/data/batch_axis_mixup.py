"""Samples of a batch are mixed with each other: the batch axis is used as another one.

What it is
    A layer takes the batch for something else. Recurrent and attention layers of torch expect (time, batch, features)
    unless ``batch_first=True`` is set; a softmax over axis 0 normalises over the samples; ``view`` where
    ``transpose`` is meant cuts the samples into pieces and joins those of different samples.

Symptoms
    No error, since the shapes fit. The model learns slowly, or not at all, or well in training and badly with another
    batch size or one sample at a time.

Evidence
    By an experiment on a copy of the model, in eval mode, where batch norm does not mix. One sample is exchanged for
    another, and the output for no other sample may move. Some models mix samples on purpose (similarities within a
    batch, graphs, statistics over the batch). So the cause is named only where the loss has one target for each row of
    the input, or the rows end in padding, or a recurrent layer of the same model has ``batch_first=True``,
    which makes axis 0 the batch, and where the part that takes it for something else is known, or where the
    pieces of samples are glued together.
    In a model that predicts the next token, other tokens for every other sample may change nothing for the samples
    between: if they do, and even the outputs of earlier positions change, samples are mixed, and the future is not
    what the model sees.
    Samples that do not reach each other may still depend on their places in the batch, as where codes of positions are
    added along axis 0: all samples are turned by one place, and the outputs must turn with them. Models that hold
    something for each row, and random numbers, are left out.

What to do
    Name the axis: ``batch_first=True``, ``dim=-1``, ``transpose`` in the place of ``view``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.inputs import agreed, experiments, place
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import BatchMixing, Causality
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.experiment import AxisOperation, MeetingPlace, MixingLayer

GLUED = 0.3
"""Least effect on another sample, relative to that on the sample itself, if pieces of samples are joined."""
TABLE = 2
RECURRENT = ("RNN", "LSTM", "GRU")
RESHAPES = ("view", "unsafe_view", "reshape_alias")
"""Operations that keep the order of numbers; a reshape of turned axes is a clone and a view."""


def judge(case: Case) -> Finding | None:
    """Weigh the experiments that exchange one sample of a batch and compare the outputs of the others."""
    if agreed(case, BatchMixing, lambda one: one.mixed) is not None:
        # Effects change with the weights during the run: the first trial with a finding counts.
        trials = (_weigh(case, one) for one in experiments(case, BatchMixing) if one.mixed)
        found = next((found for found in trials if found is not None), None)
        if found is not None:
            return found
    by_place = agreed(case, BatchMixing, lambda one: one.placed)
    if by_place is not None and by_place.why_batch:
        return _by_place(case, by_place)
    across = agreed(case, Causality, lambda one: one.across)
    return _next_tokens(case, across) if across is not None else None


def _by_place(case: Case, value: BatchMixing) -> Finding:
    """Weigh an output for a sample that depends on the sample's place in the batch."""
    weigh, met = Weighing(), value.place
    weigh.speaks(
        f"in a copy of the model, the {value.rows} samples turned by one place did not give the outputs turned by one "
        "place, though no sample reaches another", 3.5, True, False,
    )  # fmt: skip
    weigh.speaks(f"axis 0 of the input is the batch: {value.why_batch}", 1.5, value.rows)
    where = met.where if met is not None else None
    if where is not None and met is not None:
        weigh.speaks(f"the first result that depends on the place is that of {_named(met)}{place(where)}", 0.5, met.op)
    return weigh.conclude(
        f"outputs that depend on a sample's place in the batch: something is added along the batch axis{place(where)}",
        Remedy(
            "Add codes of positions along the axis of time, and nothing along that of the samples.",
            "x = x + self.pe[:, : x.size(1)]  # of shape (1, time, features), for (batch, time, features)",
        ),
        at=where,
        doing="the place of a sample enters",
        step=0,
        failure=case.trouble.name or "samples that are told apart by their places",
    )


def _next_tokens(case: Case, value: Causality) -> Finding:
    """Weigh the tokens of other samples that change what a model of the next token predicts."""
    weigh = Weighing()
    weigh.speaks(
        f"in a copy of the model, other tokens after position {value.at} of {value.length} in every other sample "
        "changed outputs of the samples between them, and up to that position", 5.0, value.share, 0.0,
    )  # fmt: skip
    weigh.speaks("the targets are the inputs shifted by one, so each row of them is a sample", 1.5, value.length)
    return _joined(case, weigh, value.place)


def _weigh(case: Case, value: BatchMixing) -> Finding | None:
    ops = value.axis_ops
    if not value.why_batch:
        return None
    weigh = Weighing()
    others = {"later": "those after it", "some": "some of the others", "all": "all others"}
    weigh.speaks(
        f"in a copy of the model, one sample exchanged for another changed the outputs of {others[value.pattern]}",
        2.0, value.strength, 1e-3,
    )  # fmt: skip
    weigh.speaks(f"axis 0 of the input is the batch: {value.why_batch}", 1.5, value.rows)
    # A layer or an operation that mixes samples is named, the most exact place first.
    if value.layers:
        return _layer(case, weigh, value.layers[0])
    met = value.place
    if met is not None and met.at == "output" and met.type in RECURRENT:
        return _recurrent(case, weigh, met)
    # A softmax over many samples changes each of the others a little, some by less than the threshold.
    wide = value.pattern == "all" or (value.pattern == "some" and "softmax" in (ops[0].op if ops else ""))
    if ops and wide and (value.dims > TABLE or value.steady):
        return _operation(case, weigh, ops[0])
    # Each row of a reshaped batch may hold pieces of all samples, so the operation counts for more than the pattern.
    reshaped = met is not None and met.op in RESHAPES
    if value.dims > TABLE and value.strength > GLUED and (value.pattern == "some" or reshaped):
        if value.pattern == "some":
            weigh.speaks("only some samples reach others, as when pieces of them are joined", 2.0, value.pattern)
        return _joined(case, weigh, met)
    return None


def _joined(case: Case, weigh: Weighing, met: MeetingPlace | None) -> Finding:
    """Name the operation that joins pieces of several samples, or that leaves samples along another axis."""
    swapped = met is not None and met.swapped
    where = met.where if met is not None and (swapped or met.op in RESHAPES) else None
    if met is not None and where is not None and swapped:
        weigh.speaks(f"samples lie along another axis than the first from {_named(met)} on{place(where)}", 2.0, met.op)
    elif met is not None and where is not None:
        weigh.speaks(f"{_named(met)} joins pieces of several samples{place(where)}", 2.0, met.op)
    if met is not None and met.at == "input" and met.layer:
        weigh.speaks(f"{called(met.layer)} ({met.type}) is the first that is given pieces of several samples", 0.5)
    how = "another axis than the first holds the samples" if swapped else "pieces of different samples are joined"
    remedy = Remedy(
        "Change the order of axes with transpose or permute, and change it back before the shape is restored: view and "
        "reshape keep the order of the numbers.",
        "x = x.transpose(1, 2)  # not x.view(n, features, time)",
    )
    if swapped:
        remedy = Remedy("Turn the axes back, so that the first one holds the samples again, as in the targets.",
                        "out = out.transpose(0, 1)  # (batch, time, features)")  # fmt: skip
    return weigh.conclude(
        f"samples of a batch that are mixed: {how}{place(where)}",
        remedy,
        layer=_known(case, met.layer if met is not None else ""),
        at=where,
        doing="samples are mixed",
        step=0,
        failure=case.trouble.name or "samples that are mixed",
    )  # fmt: skip


def _named(met: MeetingPlace) -> str:
    return "a view or reshape" if met.op in RESHAPES else f"a {met.op}"


def _layer(case: Case, weigh: Weighing, first: MixingLayer) -> Finding:
    path, kind, shape = first.layer, first.type, first.shape
    given = "x".join(str(size) for size in shape)
    weigh.speaks(
        f"{called(path)} ({kind}, batch_first=False) is given {given} and so takes the {shape[0]} samples for "
        "steps of time", 3.5, given,
    )  # fmt: skip
    return weigh.conclude(
        f"samples of a batch that are mixed: {called(path)} takes the {shape[0]} samples of the batch for "
        f"steps of time and the {shape[1]} steps for a batch",
        Remedy("Set batch_first=True, or give the layer (time, batch, features).",
               f"nn.{kind}(..., batch_first=True)\n# or: out = layer(x.transpose(0, 1))"),
        layer=_known(case, path),
        step=0,
        failure=case.trouble.name or "samples that are mixed",
    )  # fmt: skip


def _recurrent(case: Case, weigh: Weighing, met: MeetingPlace) -> Finding:
    path, kind = met.layer, met.type
    weigh.speaks(f"samples are separate in the input of {called(path)} ({kind}), and mixed in its output", 3.5, kind)
    return weigh.conclude(
        f"samples of a batch that are mixed: {called(path)} takes the samples of the batch for steps "
        "of time",
        Remedy("Give the layer its axes in the order that it was made for, or change batch_first.",
               f"nn.{kind}(..., batch_first=False)  # for (time, batch, features); True for (batch, time, features)"),
        layer=_known(case, path),
        step=0,
        failure=case.trouble.name or "samples that are mixed",
    )  # fmt: skip


def _known(case: Case, path: str) -> str | None:
    """Return the path of a layer, or of its parent if the layer itself is not in the layout; None if neither is."""
    paths = (path, path.rpartition(".")[0])
    return next((each for each in paths if each and each in case.layout.by_path), None)


def _operation(case: Case, weigh: Weighing, op: AxisOperation) -> Finding:
    name = op.op
    weigh.speaks(f"a {name.replace('_', ' ')} runs over axis 0{place(op.where)}", 3.0, name)
    return weigh.conclude(
        f"samples of a batch that are mixed: {name.replace('_', ' ')} over axis 0{place(op.where)}, which is the batch",
        Remedy("Apply it over the classes or positions of one sample.", f"F.{name}(x, dim=-1)"),
        layer=op.layer if op.layer in case.layout.by_path else None,
        at=op.where,
        doing="it is applied",
        step=0,
        failure=case.trouble.name or "samples that are mixed",
    )


CAUSE = Cause(
    module=__name__,
    title="Samples of a batch mixed with each other",
    tier=Tier.CERTAIN,
    explains=frozenset(STALL),
    judge=judge,
    page=__doc__ or "",
    place="layer",
)
