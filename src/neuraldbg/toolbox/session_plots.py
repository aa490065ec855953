"""Pictures of a session by hand, as files and as text: drawn by those who draw any numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.errors import ConfigError
from neuraldbg.show.static.visualizer import DebugVisualizer, VisualizationConfig
from neuraldbg.show.terminal.visualizer import TerminalVisualizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from neuraldbg.nouns import Series
    from neuraldbg.toolbox.session_parts import SessionParts

_FOLDER = "plots"
_MOST = 8
"""Gradients of layers that are drawn by themselves at most."""


class SessionPlots:
    """Draws what a session has recorded. Pictures are files in the folder ``plots`` of the run, or in
    ``neuraldbg-plots`` if it is in memory; ``ascii_...`` returns text for a terminal.

    >>> session = debug_session()
    >>> for step in range(4):
    ...     number = session.tensor_inspector.inspect_tensor([0.5, 1.0, 2.0], "my_tensor")
    ...     session.record_step(step, loss=1 / (step + 1), gradients={"layer_1": [0.1, 0.2]}, accuracy=0.5)
    >>> print(session.plots.ascii_loss())
    loss
    ...
    """

    def __init__(self, session: SessionParts) -> None:
        self._session = session
        folder = session.config.folder
        place = VisualizationConfig().output_directory if folder is None else folder / _FOLDER
        self.visualizer = DebugVisualizer(VisualizationConfig(output_directory=place))
        """The visualizer that writes the pictures: it knows their names and files."""
        self.terminal = TerminalVisualizer(80, 24)
        """The visualizer that draws text."""

    def plot_loss(self) -> Path:
        """Draw the loss over steps, with that of evaluations if there were any. Raises ConfigError without a loss.

        >>> session.plots.plot_loss().name
        'loss_metrics.png'
        """
        run = self._session.record()
        loss = self._loss()
        told = {"loss": loss}
        if len(seen := run.scalar("eval_loss")):
            told["evaluation"] = seen
        return self._together("loss", told)

    def plot_metric(self, name: str) -> Path:
        """Draw a metric over steps. Raises ConfigError for one that was not recorded, with those that were.

        >>> session.plots.plot_metric("accuracy").name
        'accuracy_metrics.png'
        """
        return self._together(name, {name: self._session.metric(name)})

    def plot_gradient_flow(self, layer: str) -> Path:
        """Draw the L2 norms of the newest gradients of a layer, by the name under which they were recorded.

        >>> session.plots.plot_gradient_flow("layer_1").name
        'layer_1_gradient_flow.png'
        """
        steps, norms = self._gradients(layer)
        return self.visualizer.plot_gradient_flow(layer, steps, norms)

    def plot_layers(self) -> Path:
        """Draw the newest gradient norm of each layer as a bar.

        >>> session.plots.plot_layers().suffix
        '.png'
        """
        flow = self._session.gradient_debugger.analyze_gradient_flow()
        if not flow.layers:
            raise ConfigError(_NO_GRADIENTS)
        return self.visualizer.plot_layer_comparison("gradient norm", {k: one.norm for k, one in flow.layers.items()})

    def plot_tensor_distribution(self, tensor_id: int, bins: int = 50) -> Path:
        """Draw the values of an inspected tensor as a histogram. Raises ConfigError if they are not kept any more.

        >>> session.plots.plot_tensor_distribution(0).name
        'my_tensor_distribution.png'
        """
        info = self._session.tensor_inspector.get_tensor_info(tensor_id)
        values = self._session.tensor_inspector.values(tensor_id)
        return self.visualizer.plot_tensor_distribution(info.name, values, bins)

    def ascii_loss(self) -> str:
        """Return the loss over steps as text.

        >>> session.plots.ascii_loss().count("loss") > 0
        True
        """
        loss = self._loss()
        return self.terminal.ascii_line_plot(loss.steps, loss.values, "loss")

    def ascii_gradient_flow(self, layer: str) -> str:
        """Return the L2 norms of the newest gradients of a layer as text.

        >>> "layer_1" in session.plots.ascii_gradient_flow("layer_1")
        True
        """
        steps, norms = self._gradients(layer)
        return self.terminal.ascii_line_plot(steps, norms, f"gradient of {layer}")

    def ascii_histogram(self, tensor_id: int, bins: int = 10) -> str:
        """Return the values of an inspected tensor as a histogram in text.

        >>> "my_tensor" in session.plots.ascii_histogram(0)
        True
        """
        info = self._session.tensor_inspector.get_tensor_info(tensor_id)
        return self.terminal.ascii_histogram(self._session.tensor_inspector.values(tensor_id), bins, info.name)

    def draw_all(self) -> Path | None:
        """Draw loss, metrics and gradients, as far as they were recorded, and a page that shows all pictures. Return
        the page, None without anything to draw.

        >>> session.plots.draw_all().suffix
        '.html'
        """
        run = self._session.record()
        if len(run.scalar("loss")):
            self.plot_loss()
        for name in self._session.metrics:
            self.plot_metric(name)
        flows: Sequence[str] = self._session.gradient_debugger.names if self._session.uses("gradient_debugger") else ()
        for name in flows[:_MOST]:
            self.plot_gradient_flow(name)
        if flows:
            self.plot_layers()
        names = self.visualizer.get_plot_names()
        return self.visualizer.create_dashboard(names) if names else None

    def _together(self, name: str, told: dict[str, Series]) -> Path:
        steps = np.unique(np.concatenate([one.steps for one in told.values()]))
        values = {}
        for key, one in told.items():
            filled = np.full(len(steps), np.nan)
            filled[np.searchsorted(steps, one.steps)] = one.values
            values[key] = filled
        return self.visualizer.plot_training_metrics(name, steps, values)

    def _loss(self) -> Series:
        loss = self._session.record().scalar("loss")
        if not len(loss):
            raise ConfigError("no loss was recorded: give record_step or record_performance one")
        return loss

    def _gradients(self, layer: str) -> tuple[list[int], list[float]]:
        steps, norms = self._session.gradient_debugger.history(layer)
        if not steps:
            known = ", ".join(self._session.gradient_debugger.names[:10])
            raise ConfigError(f"no gradient of {layer!r} was recorded; known are {known}" if known else _NO_GRADIENTS)
        return steps, norms


_NO_GRADIENTS = "no gradient was recorded: give record_step or record_gradient_flow some"
