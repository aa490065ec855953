"""The session as its report and its pictures see it: what they ask it for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from neuraldbg.nouns import Diagnosis, RunRecord, Series
    from neuraldbg.toolbox.debug_config import DebugConfig
    from neuraldbg.toolbox.gradient_debugger import GradientDebugger
    from neuraldbg.toolbox.hand_hooks import HandHooks
    from neuraldbg.toolbox.tensor_inspector import TensorInspector


class SessionParts(Protocol):
    """A session by hand, with its parts."""

    config: DebugConfig

    @property
    def gradient_debugger(self) -> GradientDebugger: ...

    @property
    def tensor_inspector(self) -> TensorInspector: ...

    @property
    def hooks(self) -> HandHooks: ...

    @property
    def folder(self) -> Path | None: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...

    def metric(self, name: str) -> Series: ...

    def record(self) -> RunRecord: ...

    def diagnose(self) -> Diagnosis: ...

    def uses(self, part: str) -> bool: ...
