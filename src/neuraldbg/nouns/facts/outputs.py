"""TODO outputs."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: How much the outputs of a called model, or part of one, vary over the batch: {"part": str, "model": str, "batch": int, "inputs": [VARIETY], "outputs": [VARIETY]} with VARIETY = {"leaf": str, "shape": [int], "across": float (rms over features of the standard deviation over the samples), "scale": float (rms of all values), "alike": float (mean cosine between samples), "log_z": float | None (mean logsumexp over the last axis, of floats with at least 2 columns)}.
@dataclass(frozen=True, kw_only=True)
class Variety:
    """TODO."""

    leaf: str = ""
    shape: tuple[Count, ...] = ()
    across: float | None = None
    scale: float | None = None
    alike: float | None = None
    log_z: float | None = None


@dataclass(frozen=True, kw_only=True)
class OutputsFact(Known):
    """TODO."""

    KEY: ClassVar = "outputs"
    IDENTITY: ClassVar = "part"

    part: str = ""
    model: str = ""
    batch: Count | None = None
    inputs: tuple[Variety, ...] = ()
    outputs: tuple[Variety, ...] = ()
