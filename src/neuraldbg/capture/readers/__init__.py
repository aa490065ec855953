"""The readers of facts about the program, one file each. To register a member, add one line to ``MEMBERS``.

May import: loop, experiments, layers, parameters, compiled, contracts, autograd, statistics, guest. The folders are the
categories of the causes that use the facts: ``architecture``, ``data``, ``distributed``, ``loop``, ``loss``,
``optimisation``, ``precision``.

- ``reader.py``: the contract of a reader
- ``experiment_runner.py``: the reader that runs experiments on a copy of the model
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.errors import TrainingHalted
from neuraldbg.ranks import own_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

MEMBERS: tuple[str, ...] = (
    "architecture.attention_entropy",
    "architecture.batch_norm",
    "architecture.dead_unit_indices",
    "architecture.dropout",
    "architecture.equal_weights",
    "architecture.nonlinearities",
    "architecture.output_variety",
    "architecture.token_similarity",
    "architecture.unit_symmetry",
    "data.batches",
    "data.dataset_writes",
    "data.targets",
    "distributed.replicas",
    "experiment_runner",
    "loop.accumulation",
    "loop.averaged_copies",
    "loop.clipping",
    "loop.custom_backward",
    "loop.evaluation_modes",
    "loop.evaluation_scores",
    "loop.function_contracts",
    "loop.graph_cuts",
    "loop.loop_order",
    "loop.lr_schedule",
    "loop.memory_in_use",
    "loop.optimizer_resets",
    "loop.source_lines",
    "loop.tied_weights",
    "loop.unregistered_weights",
    "loop.unused_values",
    "loss.first_nonfinite",
    "loss.loss_conflict",
    "loss.named_terms",
    "loss.term_reach",
    "optimisation.gradient_agreement",
    "optimisation.second_moments",
    "precision.grad_scaler",
)
"""Modules of this package, sorted; each defines ``READER``."""
OF_JOBS = frozenset({"distributed.replicas"})
"""Members that a program of one process has no use for."""
MOMENTS = (
    "resumes",
    "call_begins",
    "call_ends",
    "backward_begins",
    "backward_of_leaf",
    "backward_ends",
    "step_begins",
    "step_ends",
    "step_closes",
    "summarise",
    "stop",
)


_ALWAYS = frozenset({"resumes", "summarise", "stop"})
"""Moments that belong to no step."""


class Readers:
    """All readers of a session. An error in one is counted and costs the others nothing."""

    def __init__(self, scene: Scene, members: tuple[str, ...] = MEMBERS) -> None:
        self.scene = scene
        several = own_rank().world > 1
        self.all: tuple[Reader, ...] = tuple(
            importlib.import_module(f"{__name__}.{member}").READER(scene)
            for member in members
            if several or member not in OF_JOBS
        )
        self._sort()
        scene.join = self.join

    def join(self, reader: Reader) -> None:
        """Add a reader while the session runs: its patches are not set."""
        self.all = (*self.all, reader)
        self._sort()

    def _sort(self) -> None:
        self._at = {moment: self._overridden(moment) for moment in MOMENTS}
        self._always = {moment: self._overridden(moment, sampled=False) for moment in MOMENTS}
        self._light = {moment: self._vigilant(moment) for moment in MOMENTS}

    def _overridden(self, moment: str, *, sampled: bool = True) -> list[Callable[..., None]]:
        told = [one for one in self.all if sampled or moment not in one.sampled]
        return [getattr(one, moment) for one in told if getattr(type(one), moment) is not getattr(Reader, moment)]

    def _vigilant(self, moment: str) -> list[Callable[..., None]]:
        return [getattr(one, moment) for one in self.all if moment in one.vigilant]

    def at(self, moment: str, *args: Any) -> None:
        """Call a moment of every reader that overrides it; in a light step, of those that watch light steps."""
        scene = self.scene
        if not scene.switch.in_full_step() and moment not in _ALWAYS:
            acts = self._light[moment]
        elif not scene.reading and moment != "summarise":
            acts = self._always[moment]
        else:
            if self._at[moment]:
                with np.errstate(all="ignore"):
                    self._tell(self._at[moment], args)
            return
        if acts:
            self._tell(acts, args)

    def _tell(self, acts: list[Callable[..., None]], args: tuple[Any, ...]) -> None:
        with unheard():
            for act in acts:
                try:
                    act(*args)
                except TrainingHalted:
                    raise
                except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
                    self.scene.tally.caught(act.__self__.doing)  # type: ignore[attr-defined]

    def patches(self) -> list[Patch]:
        """Return the functions of torch that the readers wrap."""
        return [patch for one in self.all for patch in one.patches()]


for _member in MEMBERS:  # with the package, so that a session does not begin with thirty imports
    if _member not in OF_JOBS:
        importlib.import_module(f"{__name__}.{_member}")
