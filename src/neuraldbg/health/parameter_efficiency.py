"""Parameters against data: a RunRecord and the gap of its evaluations enter, a judgement or why there is none leaves.

Numbers of parameters and samples alone say little: networks with far more parameters than samples fit random labels,
and generalise on true ones (Zhang et al. 2017, arXiv:1611.03530). So what is judged is the measured gap, and two
cases in which a rule of the literature holds: a linear model, and a large language model.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.architecture import ArchitectureFact
from neuraldbg.nouns.facts.batch import BatchFact
from neuraldbg.nouns.facts.loss import LossFact
from neuraldbg.nouns.facts.params import ParamsFact
from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.layout import called
from neuraldbg.nouns.measures import count, percent
from neuraldbg.nouns.training_health import ArchitectureAnalysis, LayerParameters, ParameterEfficiency

if TYPE_CHECKING:
    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.training_dynamics import GeneralisationGap

LISTED = 12
"""Largest number of layers that are listed."""
LARGE = 0.5
"""Share of the parameters from which the layer that holds them is named. Source: our own choice."""
TOKENS = 20.0
"""Tokens for each parameter of a language model that is trained with the least computation (Hoffmann et al. 2022,
arXiv:2203.15556, "Chinchilla")."""
FITTED_FROM = 70_000_000
"""Parameters of the smallest model of that study: below it the rule was not tried."""
SAMPLES = 10
"""Samples for each parameter of a linear model: a classical rule of thumb (Peduzzi et al. 1996, J Clin Epidemiol
49:1373, for logistic regression)."""
WHY_NOT = (
    "cannot be judged from numbers alone: networks with more parameters than samples may generalise (Zhang et al. 2017)"
)


def samples_seen(run: RunRecord) -> int | None:
    """Return the samples of all steps of the first optimizer. None if no batch size was recorded.

    Steps whose batch size was not read, as some light steps, count with the mean of the others.
    """
    stream = run.streams[0] if run.streams else None
    series = run.scalar("batch_size", stream).finite()
    if not len(series):
        return None
    width = np.maximum(series.width, 1)
    steps = int(np.maximum(run.history.width[run.history.stream == stream], 1).sum())
    # A thinned row has the mean of the steps in it.
    total = float((series.values * width).sum()) / float(width.sum()) * steps
    return round(total) if 0 < total < 1e18 else None


def parameters_of(run: RunRecord, gap: GeneralisationGap | None) -> ParameterEfficiency:
    """Return parameters, data and what can be said about them."""
    layers = _layers(run)
    known = run.known(ArchitectureFact)
    total = known.total_parameters if known is not None else sum(layers.values()) or None
    seen, distinct = samples_seen(run), known.dataset_samples if known is not None else None
    judged, text, source = _judged(run, total, seen, distinct, gap)
    largest = sorted(layers.items(), key=lambda item: -item[1])[:LISTED]
    rows = tuple(LayerParameters(path, number, number / total if total else 0.0) for path, number in largest)
    return ParameterEfficiency(total, seen, distinct, _untrained(run), rows, judged, text, source)


def architecture_of(run: RunRecord, gap: GeneralisationGap | None) -> ArchitectureAnalysis:
    """Return the structure of the model, as it was recorded by hand or as far as it was read."""
    known, efficiency = run.known(ArchitectureFact), parameters_of(run, gap)
    layers, total = _layers(run), efficiency.parameters
    notes = []
    if efficiency.layers and efficiency.layers[0].share >= LARGE and len(layers) > 1:
        first = efficiency.layers[0]
        notes.append(f"{called(first.path) or 'the model itself'} holds {percent(first.share)} of the parameters")
    if efficiency.untrained:
        notes.append(f"{efficiency.untrained} named parameters ask for gradients, and training never reaches them")
    if known is None:
        types = Counter(layer.type for layer in run.layout.layers if layer.path in layers)
        return ArchitectureAnalysis(total, None, None, len(layers) or None, dict(types), efficiency, tuple(notes))
    trained = known.trainable_parameters
    if trained is not None and trained < known.total_parameters:
        notes.append(f"{percent(1 - trained / known.total_parameters)} of the parameters are frozen")
    return ArchitectureAnalysis(
        total, trained, known.model_size_mb, known.layer_count, known.layer_types, efficiency, tuple(notes)
    )


def _layers(run: RunRecord) -> dict[str, int]:
    """Return the number of parameters of each layer, from the record by hand or from the sizes of the tensors read."""
    known = run.known(ArchitectureFact)
    if known is not None and known.layers:
        return {row.path: row.parameters for row in known.layers if row.parameters}
    found: dict[str, int] = {}
    history = run.history
    for row in run.layout.rows("param"):
        if row >= history.sites:
            continue
        sizes = history.stat(row, "total")
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if len(sizes):
            path = run.layout.sites[row].module
            found[path] = found.get(path, 0) + int(sizes.min())
    return found


def _untrained(run: RunRecord) -> int:
    """Return the number of parameters (tensors) that training never reaches, though they ask for gradients."""
    params = run.known(ParamsFact)
    if params is None:
        return 0
    return len({*params.not_in_optimizer, *params.no_grad, *params.uncalled, *params.zero_lr})


def _judged(
    run: RunRecord, total: int | None, seen: int | None, distinct: int | None, gap: GeneralisationGap | None
) -> tuple[bool, str, str]:
    if total is None:
        return False, "cannot be judged: the number of parameters is not known", ""
    tokens = _tokens(run, seen)
    if tokens is not None and total >= FITTED_FROM:
        each = tokens / total
        said = f"{number_text(each)} tokens for each parameter; a run with the least computation has about {TOKENS:.0f}"
        return True, said, "language models from 70 million parameters on, Hoffmann et al. 2022"
    per = f"{number_text(distinct / total)} different samples for each parameter" if distinct and total else ""
    if gap is not None and gap.overfits:
        said = f"too many parameters for the data, or too little regularisation: {gap}"
        return True, f"{per}; {said}" if per else said, "measured gap between evaluation and training"
    if gap is not None and gap.word != "not enough data":
        said = f"no sign of too many parameters: the gap is {gap.word}, and evaluations have not become worse"
        return True, f"{per}; {said}" if per else said, "measured gap between evaluation and training"
    if distinct and _linear(run):
        enough = "enough" if distinct >= SAMPLES * total else "few"
        return True, f"{per}: {enough} for a linear model", f"rule of thumb of {SAMPLES} samples, Peduzzi et al. 1996"
    if tokens is not None:
        said = f"{number_text(tokens / total)} tokens for each of {count(total)} parameters; cannot be judged"
        rule = f"the rule of {TOKENS:.0f} was found on language models from {count(FITTED_FROM)} parameters on"
        return False, f"{said}: {rule}", ""
    return False, f"{per}; {WHY_NOT}" if per else WHY_NOT, ""


def _linear(run: RunRecord) -> bool:
    """Return True if the model is known to be one linear layer."""
    known = run.known(ArchitectureFact)
    if known is not None and known.layers:
        types = [row.type for row in known.layers if row.parameters]
        return len(types) == 1 and types[0] in ("Linear", "Dense") and not known.activation_functions
    types = [layer.type for layer in run.layout.layers if layer.leaf]
    return types == ["Linear"]


def _tokens(run: RunRecord, seen: int | None) -> int | None:
    """Return the tokens that a language model was trained on. None if it is none: it predicts each token of the
    vocabulary that its first embedding reads.
    """
    loss, batch = run.known(LossFact), run.known(BatchFact)
    if seen is None or loss is None or batch is None or len(loss.terms) != 1:
        return None
    term = loss.terms[0]
    sizes = {layer.settings.get("num_embeddings") for layer in run.layout.layers if layer.type == "Embedding"}
    lengths = [leaf.shape[1] for leaf in batch.inputs.values() if len(leaf.shape) == 2 and leaf.dtype.startswith("int")]
    if term.kind not in ("cross_entropy", "nll") or term.classes < 2 or term.classes not in sizes or not lengths:
        return None
    return seen * lengths[0]
