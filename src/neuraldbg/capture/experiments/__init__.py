"""Experiments on a copy of the model, one file each. To register a member, add one line to ``MEMBERS``.

May import: layers, parameters, compiled, autograd, statistics, guest.

Some questions no record answers: does the output for one sample depend on another, does a model that predicts the next
token see that token, does the output depend on the input at all, is eval mode repeatable? The reader
``experiment_runner`` runs them on a copy of each model with a copy of the arguments of one training call of that step.
When a loss or a small gradient on the CPU is first not finite, ``first_nonfinite`` repeats the failed pass on a copy,
before the optimizer ruins the weights, and stops at the operation that made the first non-finite value: with the user's
line, the layer and the sample.

- The copy (``model_copy.py``) shares no tensor with the model. It is refused, with the reason recorded as a fact, where
  that cannot be shown to be safe: hooks of the program; special tensors; more than 32 million parameters; several
  processes; and code that names anything but what ``guest/purity.py`` lists: constants, functions and classes that are
  checked in turn, packages without outside effects. A list, a tensor, a generator, a logger or an object of the program
  is not on the list, nor is a store to a global or to a class. Custom autograd Functions follow the same rule.
- No experiment runs where the program would notice it: a function in torch's modules or classes whose code is not in
  torch's folder (``guest/own_code.py``), a ``TorchFunctionMode`` or ``TorchDispatchMode`` (that of
  ``torch.set_default_device`` is torch's own), hooks on all modules, packed saved tensors, inputs of a tensor class of
  the program. No ``__deepcopy__``, ``__reduce__`` or ``__getattr__`` of the program runs (``deep_copy.py``).
- The states of all random number generators (Python, numpy, torch on each device) are restored, and no warning is
  shown. The cache of ``parametrize.cached`` is replaced meanwhile: a copy shares its class, and so its place in that
  cache, with the model. Our wrappers of torch functions are off meanwhile, so that the copy is no model of the run.
- An experiment that would take longer than half a second, by the time of the user's own pass, is not started.
- A finding about dependence is made on the real weights, so that what is found exists. The one about absence (the input
  is ignored) is made on fresh random weights, since a collapsed model gives one answer for all inputs, too.
- ``NeuralDbg(probes=False)``, the setting ``capture.probes`` and ``neuraldbg run --no-probes`` disable all of this.

- ``experiment.py``: the contract of an experiment, and the objects that it works on
- ``model_copy.py``, ``deep_copy.py``: the copy of a model, made without running the program's code
- ``eval_random.py``: randomness in eval mode
- ``target_inside.py``: the target among the columns of the input
- ``batch_mixing.py``, ``sample_mixing.py``: samples that affect each other, and the layer where they mix
- ``causality.py``: positions that depend on later ones
- ``padding_mask.py``: inverted padding masks
- ``input_ignored.py``: inputs without effect on the output
- ``one_batch.py``: one batch learnt by heart
- ``first_nonfinite.py``: the operation that made the first non-finite value
- ``finite_differences.py``: custom autograd Functions against finite differences
- ``threads_beside.py``: the test for other threads that run during an experiment
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.capture.experiments.experiment import Experiment

MEMBERS = (
    "eval_random",
    "target_inside",
    "batch_mixing",
    "causality",
    "padding_mask",
    "input_ignored",
    "one_batch",
)
"""Modules of this package, in the order in which they run; each defines ``EXPERIMENT``. ``input_ignored`` changes the
weights of the copy, so the one after it has a copy of its own."""


def experiments() -> tuple[Experiment, ...]:
    """Return every experiment, in order."""
    return tuple(importlib.import_module(f"{__name__}.{member}").EXPERIMENT for member in MEMBERS)
