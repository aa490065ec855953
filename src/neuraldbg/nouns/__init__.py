"""The values that flow between the stages: frozen, plain, free of torch. Every other module may import them.

- ``site.py``: a site, and the statistics that are read there
- ``layout.py``: layers, sites, and the data flow between layers
- ``step.py``: one optimizer step
- ``histogram.py``: histograms of a site's values
- ``fact.py``: a fact about the program; its kinds are in ``facts/``
- ``event.py``: an event, as detectors find it
- ``run.py``: the record of a whole run
- ``diagnosis.py``: verdict, hypotheses and causal chain
- ``comparison.py``: the comparison of two runs
- ``crash.py``: the crash dump
- ``json.py``, ``csv.py``: values as strict JSON, text as cells of a table
- ``html.py``, ``curve.py``: parts of a value's HTML in a notebook
"""

from neuraldbg.nouns.crash import CrashRow, crash_json
from neuraldbg.nouns.diagnosis import (
    SCHEMA,
    VERDICTS,
    Chain,
    ChainEdge,
    ChainNode,
    CodeLine,
    Diagnosis,
    Evidence,
    Hypothesis,
    Remedy,
    Unjudged,
)
from neuraldbg.nouns.event import TRANSITIONS, Event
from neuraldbg.nouns.fact import Fact, FactKey
from neuraldbg.nouns.histogram import BINS, EDGES, Histograms, StepHistograms
from neuraldbg.nouns.json import Json, jsonable
from neuraldbg.nouns.layout import Edge, Layer, Layout
from neuraldbg.nouns.run import RUN_SCHEMA, History, Outcome, RunInfo, RunRecord, Series, Slab
from neuraldbg.nouns.site import KINDS, STATS, Site, column
from neuraldbg.nouns.step import SCALARS, Step

__all__ = [
    "BINS",
    "EDGES",
    "KINDS",
    "RUN_SCHEMA",
    "SCALARS",
    "SCHEMA",
    "STATS",
    "TRANSITIONS",
    "VERDICTS",
    "Chain",
    "ChainEdge",
    "ChainNode",
    "CodeLine",
    "CrashRow",
    "Diagnosis",
    "Edge",
    "Event",
    "Evidence",
    "Fact",
    "FactKey",
    "Histograms",
    "History",
    "Hypothesis",
    "Json",
    "Layer",
    "Layout",
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
    "jsonable",
]
