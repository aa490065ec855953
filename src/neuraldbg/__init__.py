"""NeuralDBG: a flight recorder for neural-network training that says why a run failed.

Names are loaded when first used, so that reading a saved run never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.control.trigger import TriggerEngine
    from neuraldbg.errors import NeuralDbgError, TrainingHalted
    from neuraldbg.nouns import Diagnosis, Event, Evidence, Hypothesis, Site, Step
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.record.ring import RingBuffer
    from neuraldbg.saved import Run
    from neuraldbg.session import NeuralDbg
    from neuraldbg.show.static.visualizer import DebugVisualizer, VisualizationConfig
    from neuraldbg.show.terminal.visualizer import TerminalVisualizer

_HOME = {
    "Comparison": "neuraldbg.nouns.comparison",
    "DebugVisualizer": "neuraldbg.show.static.visualizer",
    "Diagnosis": "neuraldbg.nouns",
    "Event": "neuraldbg.nouns",
    "Evidence": "neuraldbg.nouns",
    "HookManager": "neuraldbg.capture.layers.hook_manager",
    "Hypothesis": "neuraldbg.nouns",
    "NeuralDbg": "neuraldbg.session",
    "NeuralDbgError": "neuraldbg.errors",
    "RingBuffer": "neuraldbg.record.ring",
    "Run": "neuraldbg.saved",
    "Site": "neuraldbg.nouns",
    "Step": "neuraldbg.nouns",
    "TerminalVisualizer": "neuraldbg.show.terminal.visualizer",
    "TrainingHalted": "neuraldbg.errors",
    "TriggerEngine": "neuraldbg.control.trigger",
    "VisualizationConfig": "neuraldbg.show.static.visualizer",
}

__all__ = [
    "Comparison",
    "DebugVisualizer",
    "Diagnosis",
    "Event",
    "Evidence",
    "HookManager",
    "Hypothesis",
    "NeuralDbg",
    "NeuralDbgError",
    "RingBuffer",
    "Run",
    "Site",
    "Step",
    "TerminalVisualizer",
    "TrainingHalted",
    "TriggerEngine",
    "VisualizationConfig",
]


if not TYPE_CHECKING:  # a type checker sees the names above, and misses what is missing

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            message = f"module 'neuraldbg' has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
