"""The detect stage: steps in, events out, one detector per symptom. To register one, add a line to ``DETECTORS``.

Detectors take steps in order, in constant memory, over all sites at once. They see symptoms and name no cause. A regime
has hysteresis: it begins, lasts and ends (``episodes.py``).

**Blocks.** Full steps that are delivered together are judged together (``block.py``). A detector with ``pass_over``
returns how many of the next steps have no event, from all their tables at once, and learns from these as if it had
observed them; ``Watch.observe`` then calls it only for the others. Each detector goes ahead as far as it can, without
waiting for another. Events, and the state of a detector, are bitwise the same as for steps that come one by one:
``tests/detect/test_block.py`` compares both on runs with every kind of trouble.

**Light steps**, whose sites were not read, go only to the detectors of scalars (loss, gradient norm), which take some
10 microseconds together. The others conclude nothing from a light step: their windows and levels are of steps that were
read. "So many steps in a row" means that all readings of so many steps were bad, and that a quarter of them, or three,
were read. A NaN or a gradient spike in a light step has no layer. ``explain`` counts in the same way (``Case.held``,
``early``, ``unbroken``): a reading holds for the unread steps after it, and nothing is claimed about a step that was
not read (``Origin.read``, ``Case.blind``). ``benchmarks/accuracy_thinned.py`` measures the effect on accuracy.

- ``detector.py``: the contract of a detector
- ``watch.py``: all detectors over the steps of a run, and the bounded list of events
- ``episodes.py``: events that begin, last and end, from masks of bad and calm places
- ``block.py``, ``lookahead.py``: full steps that are judged together, and how far each detector is ahead
- ``layer_rows.py``: rows of a table in data-flow order, gradients by layer
- ``readings.py``: values of a step that several detectors share
- ``progress.py``: level, start and noise of a loss; a sorted window of values
- ``activation_scale.py``: activations that grow or shrink from layer to layer in the first steps
- ``dead_units.py``: rectified units that never fire
- ``exploding_gradients.py``, ``vanishing_gradients.py``: gradients of a layer that are too large or too small
- ``gradient_spike.py``: the gradient norm of single steps
- ``loss_divergence.py``, ``loss_plateau.py``, ``loss_spike.py``: the loss
- ``non_finite.py``: NaN and infinity
- ``saturation.py``: bounded activations at their bounds
- ``unchanged_parameters.py``, ``update_ratio.py``: updates that are lost, too small or too large
- ``weight_scale.py``: weights that are too large
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
from neuraldbg.detect.weight_scale import WeightScale

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
    WeightScale,
)
"""All detectors, by name."""

__all__ = ["DETECTORS"]
