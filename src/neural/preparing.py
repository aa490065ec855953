"""From a file and data to a program that trains: the compiled model and its arrays in the folder `.neural`.

Every command that trains runs this program by its command line, so that a user can run it by hand, too.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.building import compile_plan
from neural.check.checker import checked
from neural.data import samples_for
from neural.errors import FileUnreadable
from neural.language.reader import read
from neural.workspace import Workspace, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.data import Samples
    from neural.language.tree import SourceFile
    from neural.plan import Plan, Search


MADE_UP = "made-up data"


@dataclass(frozen=True)
class Prepared:
    """Hold a program that trains a network, and what was decided on the way to it."""

    plan: Plan
    source: SourceFile
    """The file that the network is in."""
    script: Path
    """The Python file that builds and trains the network."""
    arguments: tuple[str, ...]
    """What follows the script on its command line."""
    samples: Samples
    said: tuple[str, ...]
    """Sentences for the user: the network, the data, what was changed so that they fit."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Options of `neuraldbg` for a run of it: every picture says of made-up data that they are."""
        return (f"--note={MADE_UP}",) if self.samples.synthetic else ()

    @property
    def line(self) -> str:
        """The command line by which a shell runs the program."""
        return shlex.join(["python", str(self.script), *self.arguments])


@dataclass(frozen=True)
class Wanted:
    """Hold what the command line asks for; None leaves it to the file."""

    network: str | None = None
    data: Path | None = None
    dataset: str | None = None
    download: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    seed: int | None = None
    device: str | None = None
    backend: str = "pytorch"

    def training(self, plan: Plan) -> dict[str, Any]:
        """Return the settings of the training: those of the file, with what the command line replaces."""
        asked = {name: getattr(self, name) for name in ("epochs", "batch_size", "seed")}
        return {**plan.training, **{name: value for name, value in asked.items() if value is not None}}


def prepare(
    file: str | Path,
    wanted: Wanted | None = None,
    *,
    choose: Callable[[Search], Any] | None = None,
    name: str | None = None,
    workspace: Workspace | None = None,
) -> Prepared:
    """Write the program that trains a network of `file`, and its data; see `checked` for `choose`.

    `name` is that of the two files, by default that of `file`. Raises CheckFailed for what cannot be built, and
    a NeuralError for data that are missing or do not fit.
    """
    wanted, workspace = wanted or Wanted(), workspace or Workspace()
    source = read(file)
    plan = checked(source, wanted.network, choose=choose)
    text = compile_plan(plan, source.text, wanted.backend)
    dataset = wanted.dataset
    if dataset is None and wanted.data is None:
        dataset = bundled_for(plan)
    training = wanted.training(plan)
    samples = samples_for(
        replace(plan, training=training),
        data=wanted.data,
        dataset=dataset,
        download=wanted.download,
        seed=training["seed"] or 0,
    )
    stem = name or _program_name(Path(file).stem) + ("" if wanted.backend == "pytorch" else f"-{wanted.backend}")
    script, arrays = workspace.path(f"{stem}.py"), workspace.path(f"{stem}-data.npz")
    try:
        write_whole(script, text)
        samples.save(arrays)
    except OSError as error:
        raise FileUnreadable(f"{error.filename or script} could not be written: {error.strerror or error}") from None
    options = {
        "--epochs": wanted.epochs,
        "--batch-size": wanted.batch_size,
        "--seed": wanted.seed,
        "--device": wanted.device,
    }
    given = [f"{option}={value}" for option, value in options.items() if value is not None]
    said = (
        f"{file}: network {plan.name}, {plan.parameter_count:,} parameters, as {script}",
        *(f"{file}:{note.line}: {note.text}" for note in plan.notes),
        f"data: {samples.source}, {len(samples.arrays['y']):,} samples, as {arrays}",
        *samples.notes,
    )
    return Prepared(plan, source, script, ("--data", str(arrays), *given), samples, said)


def _program_name(stem: str) -> str:
    """Return the name of a program: none by which an import of it, or of what it imports, would find itself."""
    packages = [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
    known = stem in sys.stdlib_module_names or PathFinder.find_spec(stem, packages) is not None
    return f"{stem}_model" if known else stem


_BUNDLED = (
    # input without the batch, outputs, name
    ((64,), 10, "digits"),
    ((8, 8), 10, "digits"),
    ((4,), 3, "iris"),
    ((13,), 3, "wine"),
    ((30,), 2, "breast_cancer"),
    ((30,), 1, "breast_cancer"),
    ((10,), 1, "diabetes"),
)


def bundled_for(plan: Plan) -> str | None:
    """Return the name of a data set of scikit-learn that a network is made for by its shapes, None if there is none."""
    if len(plan.inputs) != 1 or plan.inputs[0].ids:
        return None
    shape, output = plan.inputs[0].shape, plan.layers[-1].shape
    if len(shape) == 3 and shape[-1] in (1, 3) and output[-1] == 10:  # images of ten classes
        return "digits"
    return next((name for at, outputs, name in _BUNDLED if at == shape and outputs == output[-1]), None)
