"""Pictures of numbers that a person gives, from any framework: arrays enter, files leave.

    plots = DebugVisualizer(VisualizationConfig(output_directory="plots"))
    plots.plot_tensor_distribution("weights", model.fc1.weight)
    plots.plot_gradient_flow("fc1", steps, norms)
    plots.create_dashboard(plots.get_plot_names())

A picture is made only of the numbers that were given; those that are NaN or infinite are counted and said. Needs the
extra ``plot``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg import arguments
from neuraldbg.errors import ConfigError
from neuraldbg.nouns.csv import harmless
from neuraldbg.nouns.json import jsonable
from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.format.array_input import numbers
from neuraldbg.show.forms import Bar, Bars, Heat, Line, Lines, Scale, View
from neuraldbg.show.static.canvas import FORMATS, encoded, put
from neuraldbg.show.static.counting import counted
from neuraldbg.show.static.draw import figure
from neuraldbg.show.static.gallery import page_of
from neuraldbg.show.static.theme import theme_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from neuraldbg.show.forms import Floats, Ints

STEP = "step"
"""The column of the steps, where numbers are written to a file."""
LONGEST = 80
"""Characters of a file's name."""


LARGEST_IN = 200
"""Largest side of a picture, in inches."""


@dataclass(frozen=True)
class VisualizationConfig:
    """The output directory, formats and look of pictures; invalid values raise ConfigError.

    >>> config = VisualizationConfig(output_directory="plots", formats=("png", "svg"), theme="dark")
    """

    output_directory: str | os.PathLike[str] = "neuraldbg-plots"
    """Folder for the pictures, created with the first one."""
    formats: tuple[str, ...] = ("png",)
    """Formats of the files, one file each: ``png``, ``svg``, ``pdf``."""
    theme: str = "light"
    """``light`` or ``dark``."""
    size_in: tuple[float, float] | None = None
    """Width and height in inches; None for a size that fits the picture."""

    def __post_init__(self) -> None:
        arguments.path(self.output_directory, "output_directory")
        arguments.texts(self.formats, "formats")
        if self.size_in is not None:
            sides = tuple(arguments.positive(side, "size_in, in inches") for side in arguments.several(self.size_in))
            if len(sides) != 2 or max(sides) > LARGEST_IN:
                raise ConfigError(f"size_in: give width and height, at most {LARGEST_IN} inches, not {self.size_in!r}")
        known = [suffix[1:] for suffix in FORMATS]
        wrong = [one for one in self.formats if one not in known]
        if wrong or not self.formats:
            raise ConfigError(f"formats {', '.join(map(repr, wrong)) or '()'}: give one or more of {', '.join(known)}")
        theme_of(self.theme)


@dataclass(frozen=True)
class _Plot:
    view: View
    columns: Mapping[str, npt.NDArray[Any]]
    """The numbers in the picture, by name."""
    files: tuple[Path, ...] = field(default=())


class DebugVisualizer:
    """Draws lists, numpy arrays and tensors, and remembers what it drew by name.

    Every ``plot_...`` returns the path of its picture, in the first of the configured formats. The same plot drawn
    again replaces the file. They raise ConfigError for values that are no numbers, for lengths that do not fit each
    other, and for a folder that cannot be written, and MissingExtra without the extra ``plot``.

    >>> plots = DebugVisualizer(VisualizationConfig(output_directory="plots"))
    """

    def __init__(self, config: VisualizationConfig | None = None) -> None:
        if config is not None and not isinstance(config, VisualizationConfig):
            raise ConfigError(f"config: give a VisualizationConfig, not a {type(config).__name__}")
        self.config = config or VisualizationConfig()
        self._plots: dict[str, _Plot] = {}

    def plot_tensor_distribution(self, name: str, values: Any, bins: int = 50) -> Path:
        """Draw a histogram of all values of a tensor.

        >>> plots.plot_tensor_distribution("weights", model[0].weight).name
        'weights_distribution.png'
        """
        found = numbers(values, "values")
        title = f"Distribution of {name}: {found.size:,} values"
        view = counted(title, found, bins, _lost(found))
        columns = {"from": view.edges[:-1], "to": view.edges[1:], "count": view.counts}
        return self._drawn(f"{name}_distribution", view, columns)

    def plot_gradient_flow(self, name: str, steps: Any, gradients: Any) -> Path:
        """Draw the gradient's size over steps, one number a step.

        >>> plots.plot_gradient_flow("fc1", [0, 1, 2], [0.1, 0.08, 0.06]).name
        'fc1_gradient_flow.png'
        """
        return self._lines(f"{name}_gradient_flow", f"Gradient flow of {name}", steps, {name: gradients}, "gradient")

    def plot_training_metrics(self, name: str, steps: Any, metrics: Mapping[str, Any]) -> Path:
        """Draw metrics over steps as one line each, on one axis: give those that are of one kind.

        >>> plots.plot_training_metrics("losses", [0, 1], {"train": [2.3, 1.1], "validation": [2.4, 1.3]}).name
        'losses_metrics.png'
        """
        return self._lines(f"{name}_metrics", f"Training metrics: {name}", steps, metrics, "value")

    def plot_layer_comparison(self, name: str, values: Mapping[str, float]) -> Path:
        """Draw one number of each layer as a bar, in the order that is given.

        >>> plots.plot_layer_comparison("gradient norm", {"fc1": 0.5, "fc2": 1.5}).suffix
        '.png'
        """
        found = numbers(list(values.values()), "values")
        view = Bars(
            name="layers",
            title=f"{name} of each layer",
            layers=tuple(values),
            bars=(Bar(name, np.where(np.isnan(found), np.inf, found)),),  # a NaN would mean that there is no value
            scale=Scale(name, log=wide(found)),
            notes=_lost(found),
            empty="" if len(found) else "no values were given",
        )
        return self._drawn(f"{name}_layers", view, {"layer": np.array(list(values), dtype=object), "value": found})

    def plot_layer_heatmap(self, name: str, steps: Any, values: Mapping[str, Any]) -> Path:
        """Draw one number of each layer at each step as cells, layers in the order that is given.

        >>> plots.plot_layer_heatmap("rms", [0, 1], {"fc1": [0.5, 0.4], "fc2": [1.5, 1.2]}).name
        'rms_heatmap.png'
        """
        at, rows = _over_steps(steps, values)
        cells = np.stack([rows[layer] for layer in rows]) if rows else np.zeros((0, len(at)))
        view = Heat(
            name="layers",
            title=f"{name} of each layer",
            layers=tuple(rows),
            steps=at,
            width=np.ones(len(at), np.int64),
            values=np.where(np.isfinite(cells), cells, np.nan),
            nonfinite=~np.isfinite(cells),
            scale=Scale(name, log=wide(cells)),
            reduce="max",
            notes=_lost(cells),
            empty="" if cells.size else "no values were given",
        )
        return self._drawn(f"{name}_heatmap", view, {STEP: at, **rows})

    def get_plot_names(self) -> list[str]:
        """Return the names of the plots that were drawn, in their order.

        >>> plots.get_plot_names()[:2]
        ['weights_distribution', 'fc1_gradient_flow']
        """
        return list(self._plots)

    def get_plot_files(self, plot: str) -> tuple[Path, ...]:
        """Return the files of a plot, one for each format. Raises ConfigError for a name that was not drawn.

        >>> [file.name for file in plots.get_plot_files("weights_distribution")]
        ['weights_distribution.png']
        """
        return self._known(plot).files

    def export_plot_data(self, plot: str, path: str | os.PathLike[str]) -> Path:
        """Write the numbers in a plot to a .json or .csv file, and return its path.

        In a .csv file a name that a spreadsheet would run as a formula has an apostrophe in front. Raises ConfigError
        for another suffix or an unknown plot.

        >>> plots.export_plot_data("fc1_gradient_flow", "fc1.csv").name
        'fc1.csv'
        """
        drawn, where = self._known(plot), Path(path)
        columns = {name: values.tolist() for name, values in drawn.columns.items()}
        if where.suffix.lower() == ".json":
            body = {"plot": plot, "title": drawn.view.title, "notes": drawn.view.notes, "columns": columns}
            text = json.dumps(jsonable(body), indent=2, allow_nan=False) + "\n"
        elif where.suffix.lower() == ".csv":
            text = _table(columns)
        else:
            raise ConfigError(f"cannot write data to {str(where)!r}: its name must end in .json, .csv")
        return put(where, text.encode("utf-8", "backslashreplace"))  # names may hold what UTF-8 cannot say

    def create_dashboard(self, plots: Iterable[str] | None = None, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one HTML page with the pictures of these plots, by default all of them; it needs no other file.

        ``path`` is by default ``dashboard.html`` in the output directory. Raises ConfigError if nothing was drawn.

        >>> plots.create_dashboard(plots.get_plot_names()).name
        'dashboard.html'
        """
        names = list(self._plots if plots is None else plots)
        if not names:
            raise ConfigError("there is no plot to show: draw one first")
        pictures = []
        for name in names:
            view = self._known(name).view
            made = figure(view, size_in=self.config.size_in, theme=self.config.theme)
            pictures.append((name, view, encoded(made, "png")))
        where = Path(path) if path is not None else Path(self.config.output_directory) / "dashboard.html"
        return put(where, page_of(pictures, self.config.theme).encode())

    def _lines(self, plot: str, title: str, steps: Any, series: Mapping[str, Any], label: str) -> Path:
        at, found = _over_steps(steps, series)
        lines = []
        for name, values in found.items():
            there = np.isfinite(values)
            lines.append(Line(name, at, np.where(there, values, np.nan), nonfinite=at[~there]))
        every = np.concatenate([np.zeros(0), *found.values()])
        view = Lines(
            name="series",
            title=title,
            lines=tuple(lines),
            y=Scale(label, log=wide(every)),
            notes=_lost(every),
            empty="" if len(every) else "no values were given",
        )
        return self._drawn(plot, view, {STEP: at, **found})

    def _drawn(self, plot: str, view: View, columns: Mapping[str, npt.NDArray[Any]]) -> Path:
        made = figure(view, size_in=self.config.size_in, theme=self.config.theme)
        folder = Path(self.config.output_directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot create the folder {str(folder)!r}: {error}") from None
        files = tuple(
            put(folder / f"{_file_name(plot)}.{suffix}", encoded(made, suffix)) for suffix in self.config.formats
        )
        self._plots[plot] = _Plot(view, columns, files)
        return files[0]

    def _known(self, plot: str) -> _Plot:
        if plot not in self._plots:
            raise ConfigError(f"there is no plot {plot!r}: {', '.join(self._plots) or 'none was drawn yet'}")
        return self._plots[plot]


def _over_steps(steps: Any, series: Mapping[str, Any]) -> tuple[Ints, dict[str, Floats]]:
    """Return steps and values in the order of the steps; ConfigError where a value has no step."""
    at = numbers(steps, "steps")
    if not (np.isfinite(at).all() and (at == np.round(at)).all()):
        raise ConfigError("steps are no whole numbers")
    order = np.argsort(at, kind="stable")
    if STEP in series:
        raise ConfigError(f"{STEP!r} is what the steps are called: give these values another name")
    found = {}
    for name, given in series.items():
        values = numbers(given, f"the values of {name!r}")
        if len(values) != len(at):
            raise ConfigError(f"there are {len(at)} steps and {len(values)} values of {name!r}: each step needs one")
        found[str(name)] = values[order]
    return at[order].astype(np.int64), found


def _table(columns: Mapping[str, list[Any]]) -> str:
    """Return columns as the text of a CSV file, without a name that a spreadsheet would run as a formula."""
    lines = io.StringIO(newline="")
    rows = [columns, *zip(*columns.values(), strict=True)]
    csv.writer(lines).writerows([harmless(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return lines.getvalue()


def _lost(values: Floats) -> tuple[str, ...]:
    nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    return (f"{nan + infinite:,} of {values.size:,} values are not finite: {nan:,} NaN, {infinite:,} infinite",) * bool(
        nan + infinite
    )


def _file_name(plot: str) -> str:
    """Return a name that every file system accepts; a changed name stays different from all others."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", plot)[:LONGEST]
    return plain if plain == plot else f"{plain}-{hashlib.sha256(plot.encode('utf-8', 'replace')).hexdigest()[:8]}"
