"""NeuralDBG: a flight recorder for neural-network training that says why a run failed.

Names are loaded when first used, so that reading a saved run never imports torch.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuraldbg.alerts import Alerts
    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.control.condition import Condition
    from neuraldbg.control.hook_triggers import HookAction, HookTrigger
    from neuraldbg.control.hooks import Hook, HookBuilder
    from neuraldbg.control.registered_hooks import register_hook
    from neuraldbg.control.trigger import TriggerEngine
    from neuraldbg.errors import NeuralDbgError, TrainingHalted
    from neuraldbg.job import Job
    from neuraldbg.nouns import Diagnosis, Event, Evidence, Hypothesis, Site, Step
    from neuraldbg.nouns.alert import Alert, AlertSeverity
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.record.ring import RingBuffer
    from neuraldbg.saved import Run, load
    from neuraldbg.session import NeuralDbg
    from neuraldbg.show.static.visualizer import DebugVisualizer, VisualizationConfig
    from neuraldbg.show.terminal.visualizer import TerminalVisualizer
    from neuraldbg.toolbox.debug_config import DebugConfig
    from neuraldbg.toolbox.debug_session import DebugSession, debug_session
    from neuraldbg.toolbox.model_diagnostics import ModelArchitectureInfo, ModelPerformanceMetrics
    from neuraldbg.toolbox.session_report import DebugReport

_HOME = {
    "Alert": "neuraldbg.nouns.alert",
    "AlertSeverity": "neuraldbg.nouns.alert",
    "Alerts": "neuraldbg.alerts",
    "Comparison": "neuraldbg.nouns.comparison",
    "Condition": "neuraldbg.control.condition",
    "DebugConfig": "neuraldbg.toolbox.debug_config",
    "DebugReport": "neuraldbg.toolbox.session_report",
    "DebugSession": "neuraldbg.toolbox.debug_session",
    "DebugVisualizer": "neuraldbg.show.static.visualizer",
    "Diagnosis": "neuraldbg.nouns",
    "Event": "neuraldbg.nouns",
    "Evidence": "neuraldbg.nouns",
    "Hook": "neuraldbg.control.hooks",
    "HookAction": "neuraldbg.control.hook_triggers",
    "HookBuilder": "neuraldbg.control.hooks",
    "HookManager": "neuraldbg.capture.layers.hook_manager",
    "HookTrigger": "neuraldbg.control.hook_triggers",
    "Hypothesis": "neuraldbg.nouns",
    "ModelArchitectureInfo": "neuraldbg.toolbox.model_diagnostics",
    "ModelPerformanceMetrics": "neuraldbg.toolbox.model_diagnostics",
    "NeuralDbg": "neuraldbg.session",
    "NeuralDbgError": "neuraldbg.errors",
    "RingBuffer": "neuraldbg.record.ring",
    "Job": "neuraldbg.job",
    "Run": "neuraldbg.saved",
    "Site": "neuraldbg.nouns",
    "Step": "neuraldbg.nouns",
    "TerminalVisualizer": "neuraldbg.show.terminal.visualizer",
    "TrainingHalted": "neuraldbg.errors",
    "TriggerEngine": "neuraldbg.control.trigger",
    "VisualizationConfig": "neuraldbg.show.static.visualizer",
    "debug_session": "neuraldbg.toolbox.debug_session",
    "load": "neuraldbg.saved",
    "register_hook": "neuraldbg.control.registered_hooks",
}

__all__ = [
    "Alert",
    "AlertSeverity",
    "Alerts",
    "Comparison",
    "Condition",
    "DebugConfig",
    "DebugReport",
    "DebugSession",
    "DebugVisualizer",
    "Diagnosis",
    "Event",
    "Evidence",
    "Hook",
    "HookAction",
    "HookBuilder",
    "HookManager",
    "HookTrigger",
    "Hypothesis",
    "Job",
    "ModelArchitectureInfo",
    "ModelPerformanceMetrics",
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
    "debug_session",
    "load",
    "register_hook",
]


__version__: str
"""The version of the installed distribution, "unknown" if it is run from its source."""

if not TYPE_CHECKING:  # a type checker sees the names above, and misses what is missing

    def __getattr__(name: str) -> Any:
        if name == "__version__":  # of the installed distribution: pyproject.toml alone names it
            from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (40 ms that only this needs)

            try:
                return version("neuraldbg")
            except PackageNotFoundError:
                return "unknown"
        home = _HOME.get(name)
        if home is None:
            message = f"module 'neuraldbg' has no attribute {name!r}"
            raise AttributeError(message)
        # What is imported stays. Python's collector, called again and again meanwhile, would search all of torch's
        # objects too, and find nothing: that took as long as the import itself (80 ms).
        collects = gc.isenabled()
        gc.disable()
        try:
            module = importlib.import_module(home)
        finally:
            if collects:
                gc.enable()
        return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
