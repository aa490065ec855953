"""The settings of a session: validated, immutable, with one source of defaults.

The thresholds of a detector are in the detector's own file as a subclass of ``Thresholds``, each with the source of its
default, and are overridden by detector name: ``NeuralDbg(model, thresholds={"vanishing_gradients": {"floor": 1e-9}})``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from neuraldbg.arguments import mapping
from neuraldbg.checked_values import CheckedValues, Field, InvalidValues
from neuraldbg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "OVERHEAD",
    "CaptureSettings",
    "Field",
    "RecordSettings",
    "Settings",
    "Thresholds",
    "TriggerSettings",
    "settings_of",
    "validated",
]

OVERHEAD = 0.01
"""Share of the training's time that watching may take: users switch off a debugger that costs more."""


class Thresholds(CheckedValues):
    """The base of every group of settings: frozen; unknown names and invalid values are errors."""


class CaptureSettings(Thresholds):
    """The sites and facts that are read, and the cost of reading them."""

    overhead: float | None = Field(
        OVERHEAD,
        gt=0,
        le=1,
        description="The share of the training's time that watching may take; None reads every site at every step.",
    )
    allowance_s: float = Field(
        2.0,
        ge=0,
        description="Seconds of its own that a session may spend beyond that share, at its start: a quarter of them at "
        "once, the rest as long as watching takes at most a quarter of the training's time.",
    )
    every: int = Field(1, ge=1, description="Read layer statistics at every n-th step; losses are read at every step.")
    block_cap: int = Field(
        4_096,
        ge=64,
        description="Elements read of one tensor; a larger one is read in evenly spaced blocks. A compiled graph keeps "
        "about 1,024 of a tensor on the CPU.",
    )
    compiled: Literal["auto", "observe", "outside"] = Field(
        "auto",
        description="For torch.compile: `observe` reads inside the compiled graph, `outside` leaves the graph as it "
        "is and reads only parameters, gradients, inputs and the loss. `auto` reads inside graphs of the CPU, and "
        "leaves layers on a GPU alone: with an operator for each of them every step there took twice as long, light "
        "ones too.",
    )
    window: int = Field(
        20,
        ge=1,
        description="Steps without a positive output after which a unit counts as dead, if 300 rows of three steps "
        "were read since. Units are read in so many full steps at first, and in one of four steps of the run later.",
    )
    probes: bool = Field(
        True,
        description="Make a few cheap experiments on a copy of the model early in the run, to ask what it depends on.",
    )
    histograms: bool = Field(
        True,
        description="Take histograms of what is read, in a few steps that lie ever farther apart: at most 13 of "
        "the first thousand, 30 of the first million.",
    )
    max_calls: int = Field(8, ge=1, description="Calls of one module in a forward pass that keep sites of their own.")


class RecordSettings(Thresholds):
    """The amount of data that is kept in the run file and in memory."""

    budget_mb: int = Field(
        64, ge=4, le=65_536, description="Megabytes that the run file may take, and a quarter of that in memory."
    )
    batch_mb: int = Field(
        8,
        ge=0,
        le=65_536,
        description="Megabytes that the batches of unusual steps may take beside the run file; 0 keeps none.",
    )
    ring: int = Field(100, ge=1, description="Steps kept in the in-memory flight recorder (the crash dump), at most.")
    full_steps: int = Field(
        2048,
        ge=64,
        description="Recent steps kept at full resolution in the run file; of tables, what the budget holds.",
    )
    flush_s: float = Field(1.0, gt=0, description="Seconds after which recorded steps are on disk at the latest.")
    queue: int = Field(4096, ge=1, description="Steps that may wait for the writer, at most.")


class TriggerSettings(Thresholds):
    """The thresholds at which ``halt=True`` stops the training; the defaults are those of Neural Observer."""

    grad_threshold: float = Field(100.0, gt=0, description="Halt when a layer's gradient norm exceeds this.")
    spike_factor: float = Field(3.0, gt=1, description="Halt when the loss exceeds this many times its moving average.")


class Settings(Thresholds):
    """All settings of a session, in groups, and the overrides of detectors' thresholds."""

    capture: CaptureSettings = Field(default_factory=CaptureSettings)
    record: RecordSettings = Field(default_factory=RecordSettings)
    trigger: TriggerSettings = Field(default_factory=TriggerSettings)
    thresholds: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Overrides of detectors' thresholds, by detector name."
    )


S = TypeVar("S", bound=Thresholds)


def validated(cls: type[S], values: dict[str, Any], what: str = "setting") -> S:
    """Build a settings object. Raises ConfigError, which names each wrong key and its valid values."""
    mapping(values, f"{what}s")
    try:
        return cls(values)
    except InvalidValues as error:
        raise ConfigError("; ".join(f"{what} {one.name!r}: {one}" for one in error.problems)) from None


def settings_of(
    settings: Mapping[str, Any] | None,
    thresholds: Mapping[str, Mapping[str, Any]] | None,
    overhead: float | None,
    *,
    probes: bool,
) -> Settings:
    """Return the settings of a session; arguments of their own go before those in ``settings``."""
    values = dict(mapping(settings or {}, "settings"))
    own = {**({} if probes else {"probes": False}), **({} if overhead == OVERHEAD else {"overhead": overhead})}
    if own:
        values["capture"] = {**dict(values.get("capture") or {}), **own}
    if thresholds is not None:
        groups = mapping(thresholds, "thresholds").items()
        values["thresholds"] = {name: dict(mapping(group, f"thresholds of {name}")) for name, group in groups}
    return validated(Settings, values)
