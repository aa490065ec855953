"""The settings of a session for numbers by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg import arguments
from neuraldbg.config import Field, Thresholds
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


class DebugConfig(Thresholds):
    """The settings of a ``DebugSession``. Raises ConfigError for an unknown name or an invalid value.

    >>> DebugConfig(max_tracked_tensors=100, sampling_rate=0.1).max_gradient_history
    200
    """

    enable_tensor_inspection: bool = Field(True, description="Whether `tensor_inspector` reads what it is given.")
    enable_gradient_debugging: bool = Field(True, description="Whether `gradient_debugger` reads what it is given.")
    enable_model_diagnostics: bool = Field(True, description="Whether `model_diagnostics` keeps what it is given.")
    enable_visualization: bool = Field(
        False, description="Whether `stop` draws pictures into `output_dir`/plots. Needs the extra `plot`."
    )
    max_tracked_tensors: int = Field(
        1000, ge=1, le=1_000_000, description="Inspected tensors whose statistics are kept, and sites of the run."
    )
    max_gradient_history: int = Field(
        200, ge=8, le=1_000_000, description="Newest gradients of a layer from which its trend is computed."
    )
    output_dir: str | None = Field(None, description="Folder of the run file; None keeps the run in memory.")
    sampling_rate: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the steps, evenly spaced from step 0 on, in which whole tensors are read; in the others "
        "4,096 elements of each are.",
    )
    kept_mb: int = Field(
        64, ge=0, le=65_536, description="Megabytes of values that are kept for `compare`, the newest tensors first."
    )
    budget_mb: int = Field(64, ge=4, le=65_536, description="Megabytes that the run file may take.")

    def __init__(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> None:
        given = {**(values or {}), **named}
        if given.get("output_dir") is not None:
            given["output_dir"] = str(arguments.path(given["output_dir"], "output_dir"))
        super().__init__(given)
        if self.enable_visualization and self.output_dir is None:
            raise ConfigError("enable_visualization needs a folder for the pictures: give output_dir, too")

    @property
    def folder(self) -> Path | None:
        """Folder of the run file. None keeps the run in memory.

        >>> DebugConfig(output_dir="debug_output").folder.name
        'debug_output'
        """
        return Path(self.output_dir) if self.output_dir is not None else None


def whole_in(step: int, rate: float) -> bool:
    """Return True for a step in which whole tensors are read: a share ``rate`` of the steps, evenly spaced from 0 on.

    >>> [step for step in range(10) if whole_in(step, 0.3)]
    [0, 4, 7]
    """
    share = Fraction(rate).limit_denominator(1_000_000)  # 10 * 0.1 is below 1 for some rates
    return math.floor(step * share) != math.floor((step - 1) * share)
