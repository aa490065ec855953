"""Steps enter, events leave: the symptoms of a training run, each found by a detector of its own.

A new detector is one file and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.detect.activation_scale import ActivationScale
from neuraldbg.detect.dead_units import DeadUnits
from neuraldbg.detect.exploding_gradients import ExplodingGradients
from neuraldbg.detect.gradient_spike import GradientSpike
from neuraldbg.detect.loss_divergence import LossDivergence
from neuraldbg.detect.loss_plateau import LossPlateau
from neuraldbg.detect.loss_spike import LossSpike
from neuraldbg.detect.non_finite import NonFinite
from neuraldbg.detect.saturation import Saturation
from neuraldbg.detect.unchanged_parameters import UnchangedParameters
from neuraldbg.detect.update_ratio import UpdateRatio
from neuraldbg.detect.vanishing_gradients import VanishingGradients

if TYPE_CHECKING:
    from neuraldbg.detect.detector import Detector

DETECTORS: tuple[type[Detector], ...] = (
    ActivationScale,
    DeadUnits,
    ExplodingGradients,
    GradientSpike,
    LossDivergence,
    LossPlateau,
    LossSpike,
    NonFinite,
    Saturation,
    UnchangedParameters,
    UpdateRatio,
    VanishingGradients,
)
"""All detectors, by name."""

__all__ = ["DETECTORS"]
