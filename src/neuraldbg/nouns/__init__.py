"""The values that flow between the stages: frozen, plain, free of torch. Every other module may import them.

- ``site.py``: a site, and the statistics that are read there
- ``accumulators.py``: the raw row that a tensor's numbers are added to, and the statistics that it becomes
- ``layout.py``: layers, sites, and the data flow between layers
- ``step.py``: one optimizer step
- ``histogram.py``: histograms of a site's values
- ``fact.py``: a fact about the program; its kinds are in ``facts/``
- ``event.py``: an event, as detectors find it
- ``alert.py``: an alert, which a person gets while the training runs
- ``run.py``: the record of a whole run
- ``loss_names.py``: the names of its losses, if there are several
- ``diagnosis.py``: verdict, hypotheses and causal chain
- ``explanations.py``: the list of hypotheses that a person is given
- ``profile.py``: where time and memory of a run went
- ``training_dynamics.py``, ``training_health.py``: where a training goes, and how healthy it is
- ``robust_statistics.py``: noise, order and slope of a few numbers
- ``measures.py``: shares, times, sizes and rates as a person would write them
- ``step_spans.py``: a typical step laid out over time
- ``comparison.py``: the comparison of two runs
- ``crash.py``: the crash dump
- ``json.py``, ``csv.py``: values as strict JSON, text as cells of a table
- ``html.py``, ``curve.py``: parts of a value's HTML in a notebook
"""

from neuraldbg.nouns.crash import CrashRow, crash_json
from neuraldbg.nouns.diagnosis import (
    SCHEMA,
    UNKNOWN,
    VERDICTS,
    Chain,
    ChainEdge,
    ChainNode,
    CodeLine,
    Diagnosis,
    Edit,
    Evidence,
    Hypothesis,
    Observation,
    Remedy,
    Unjudged,
)
from neuraldbg.nouns.event import EVENT_KINDS, TRANSITIONS, Event
from neuraldbg.nouns.explanations import Explanations
from neuraldbg.nouns.fact import Fact, FactKey
from neuraldbg.nouns.histogram import BINS, EDGES, Histograms, StepHistograms
from neuraldbg.nouns.json import Json, jsonable
from neuraldbg.nouns.layout import Edge, Layer, Layout
from neuraldbg.nouns.run import RUN_SCHEMA, History, Outcome, RunInfo, RunRecord, Series, Slab
from neuraldbg.nouns.site import KINDS, STATS, Site, column
from neuraldbg.nouns.step import METRIC, RANGED, SCALARS, Step, ends_of, metric_names, nonfinite_of

__all__ = [
    "BINS",
    "EDGES",
    "EVENT_KINDS",
    "KINDS",
    "METRIC",
    "RANGED",
    "RUN_SCHEMA",
    "SCALARS",
    "SCHEMA",
    "STATS",
    "TRANSITIONS",
    "UNKNOWN",
    "VERDICTS",
    "Chain",
    "ChainEdge",
    "ChainNode",
    "CodeLine",
    "CrashRow",
    "Diagnosis",
    "Edge",
    "Edit",
    "Event",
    "Evidence",
    "Explanations",
    "Fact",
    "FactKey",
    "Histograms",
    "History",
    "Hypothesis",
    "Json",
    "Layer",
    "Layout",
    "Observation",
    "Outcome",
    "Remedy",
    "RunInfo",
    "RunRecord",
    "Series",
    "Site",
    "Slab",
    "Step",
    "StepHistograms",
    "Unjudged",
    "column",
    "crash_json",
    "ends_of",
    "jsonable",
    "metric_names",
    "nonfinite_of",
]
