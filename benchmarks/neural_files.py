"""A table of the `.neural`, `.nr` and `.rnr` files below a folder: read, checked, built, trained, why not.

python benchmarks/neural_files.py FOLDER [--most PARAMETERS] [--keras]

A network is trained for three steps on made-up data. One with more parameters than --most (3e7) is built, and takes one
step, on torch's device `meta`, which computes shapes and no numbers: the table says `shapes`.
With --keras, the column `keras` says whether the Keras file builds the same parameters and shape, on torch.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from neural import NeuralError, SourceError, checked, compile_plan, load, read
from neural.language.reader import EXTENSIONS

if TYPE_CHECKING:
    from neural import Plan, SourceFile


STEPS, BATCH, LENGTH = 3, 2, 7
"""Steps, samples of a step, and the size of an axis that only the data tell."""


@dataclass(frozen=True)
class Row:
    """Hold one line of the table."""

    file: str
    network: str
    read: bool = True
    checked: bool = True
    built: str = ""
    """`yes`, `no` or "" if there is nothing to build."""
    trained: str = ""
    """`yes`, `no`, or `shapes` if it was too large for numbers."""
    keras: str = ""
    """`yes`, `no`, `written` if it was too large to be built, or "" if it was not asked for."""
    layers: int = 0
    parameters: int = 0
    approximated: int = 0
    why: str = ""


def why(error: NeuralError) -> str:
    """Return the first problem in one line."""
    if isinstance(error, SourceError):
        first = error.problems[0]
        return f"line {first.span.line}: {first.message}"
    return str(error)


def rows(path: Path, name: str, most: float, *, with_keras: bool = False) -> list[Row]:
    """Return one row for each network of a file, or one for a file without any."""
    try:
        source = read(path)
    except NeuralError as error:
        return [Row(name, "", read=False, checked=False, why=why(error))]
    if not source.networks:
        return [Row(name, "", why="research, no network" if source.research else "no network")]
    names = dict.fromkeys(each.name for each in source.networks)
    return [row(source, name, network, most, with_keras=with_keras) for network in names]


def row(source: SourceFile, name: str, network: str, most: float, *, with_keras: bool) -> Row:
    """Return the row of one network."""
    try:
        plan = checked(source, network)
    except NeuralError as error:
        return Row(name, network, checked=False, why=why(error))
    built, trained, reason, keras = "no", "no", "", ""
    try:
        module = load(compile_plan(plan, source.text), network)
        small = plan.parameter_count <= most
        with torch.device("cpu" if small else "meta"):
            model = module.build_model()
        built = "yes"
        train(module, model, plan, small=small)
        trained = "yes" if small else "shapes"
    except NeuralError as error:
        reason = why(error)
    except Exception as error:  # noqa: BLE001 (a fault of ours is a line of the table)
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
    if with_keras:
        keras, other = built_by_keras(plan, source.text, most)
        reason = reason or other
    return Row(
        name,
        network,
        built=built,
        trained=trained,
        keras=keras,
        layers=len(plan.layers),
        parameters=plan.parameter_count,
        approximated=sum(note.approximated for note in plan.notes),
        why=reason,
    )


def built_by_keras(plan: Plan, text: str, most: float) -> tuple[str, str]:
    """Return the column `keras`, and why it is not `yes`."""
    try:
        module = load(compile_plan(plan, text, "keras"), plan.name)
        if plan.parameter_count > most:
            return "written", ""
        model: Any = module.build_model()
        seeds = sum(each.shape[0] for each in model.non_trainable_variables if "seed_generator" in each.path)
        found, shape = model.count_params() - seeds, tuple(model.output_shape[1:])
        if (found, shape) != (plan.parameter_count, tuple(plan.layers[-1].shape)):
            return "no", f"Keras: {found} parameters and the output {shape}"
    except NeuralError as error:
        return "no", f"Keras: {why(error)}"
    except Exception as error:  # noqa: BLE001 (a fault of ours is a line of the table)
        return "no", f"Keras: {type(error).__name__}: {error}".split("\n", 1)[0]
    return "yes", ""


def train(module: Any, model: torch.nn.Module, plan: Plan, *, small: bool) -> None:
    """Train a model by its own `train` for some steps, or one step for its shapes alone."""
    found = sum(each.numel() for each in model.parameters())
    buffers = {key: each for key, each in model.named_buffers() if key.rpartition(".")[2].startswith("running")}
    found += sum(each.numel() for each in buffers.values())
    if found != plan.parameter_count:
        message = f"{found} parameters were built, and {plan.parameter_count} planned"
        raise ValueError(message)
    split = plan.training["validation_split"]
    data = made_data(plan, BATCH if not small else int(STEPS * BATCH / (1 - split)) + 1)
    if small:
        with contextlib.redirect_stdout(io.StringIO()):
            numbers = module.train(model, data, epochs=1, batch_size=BATCH, device="cpu")
        if not numbers or numbers[0]["loss"] != numbers[0]["loss"]:
            message = f"the loss is {numbers}"
            raise ValueError(message)
        return
    inputs, targets = module.tensors(data)
    optimizer = module.make_optimizer(model)
    loss = module.loss_function(model(*(each.to("meta") for each in inputs)), targets.to("meta"))
    loss.backward()
    optimizer.step()


def made_data(plan: Plan, samples: int) -> dict[str, torch.Tensor]:
    """Return random inputs and targets as the network takes them."""
    words = [layer.parameters["input_dim"] for layer in plan.walk() if layer.type == "Embedding"]
    data = {}
    for each in plan.inputs:
        shape = (samples, *(size or LENGTH for size in each.shape))
        name = "x" if len(plan.inputs) == 1 else each.name
        data[name] = torch.randint(0, min(words, default=1), shape) if each.ids else torch.randn(shape)
    shape = (samples, *(size or LENGTH for size in plan.layers[-1].shape))
    classes = torch.randint(0, shape[-1], shape[:-1])
    cross = plan.loss.type in {"categorical_crossentropy", "sparse_categorical_crossentropy"}
    data["y"] = classes if cross else torch.randint(0, 2, shape).float()
    return data


def main() -> int:
    parser = argparse.ArgumentParser(description="A table of the files below a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=float, default=3e7, help="parameters above which only shapes are computed")
    parser.add_argument("--keras", action="store_true", help="build each network by its Keras file, too")
    options = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "torch")
    folder = options.folder
    torch.manual_seed(0)
    paths = sorted(path for path in folder.rglob("*") if path.suffix in EXTENSIONS and path.is_file())
    began = time.perf_counter()
    table = [
        row
        for path in paths
        for row in rows(path, str(path.relative_to(folder)), options.most, with_keras=options.keras)
    ]
    taken = time.perf_counter() - began
    width = max((len(row.file) for row in table), default=4)
    head = "read  checked  built  trained  keras    layers     parameters  approximated  why not"
    print(f"{'file':<{width}}  {'network':<29}  {head}")
    for row in table:
        yes = ("yes" if row.read else "no", "yes" if row.checked else "no")
        numbers = f"{row.layers:>6}  {row.parameters:>13,}  {row.approximated:>12}"
        words = f"{yes[0]:<4}  {yes[1]:<7}  {row.built:<5}  {row.trained:<7}  {row.keras:<7}  {numbers}  {row.why}"
        print(f"{row.file:<{width}}  {row.network:<29}  {words}".rstrip())
    files = {row.file for row in table}
    unread = {row.file for row in table if not row.read}
    unchecked = {row.file for row in table if not row.checked}
    print(
        f"\n{len(files)} files: {len(files) - len(unread)} read, {len(files) - len(unchecked)} checked; "
        f"{sum(row.checked for row in table)} of {len(table)} networks or research, "
        f"{sum(row.built == 'yes' for row in table)} built, {sum(row.trained == 'yes' for row in table)} trained and "
        f"{sum(row.trained == 'shapes' for row in table)} run for their shapes alone; {taken:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
