"""Write a network as one Python file that needs torch alone: a `Plan` enters, the text of the file leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.errors import CheckFailed, Problem, Span
from neural.plan import shape_text
from neural.pytorch.code_layout import laid_out
from neural.pytorch.metrics_code import metric_functions
from neural.pytorch.module_source import copied
from neural.pytorch.network_class import Written, identifier, input_name, network
from neural.pytorch.training_code import (
    NoSuchTraining,
    clip_code,
    loss_code,
    optimizer_code,
    schedule_code,
    taken_over,
    targets_code,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neural.plan import InputPlan, Plan

START = Span(1, 1, 1, 2)
SOFTMAX = {"softmax": "torch.softmax({}, dim=-1)", "sigmoid": "torch.sigmoid({})"}


def model_source(plan: Plan, text: str = "") -> str:
    """Return the source of a file that builds and trains the network.

    `text` is that of the `.neural` file, whose lines errors quote. CheckFailed is raised with every layer that torch
    cannot express.
    """
    written = Written(plan, text.split("\n"))
    activation = taken_over(plan)
    name, _ = network(written, logits=bool(activation))
    try:
        parts = [*_model_parts(plan, written, name, activation), *_training_parts(plan, written, activation)]
    except NoSuchTraining as error:
        written.problems.append(Problem(str(error), plan.file, START, ""))
    if written.problems:
        raise CheckFailed(sorted(written.problems, key=lambda problem: problem.span))
    helpers = copied({"initialize", *written.helpers})
    code = "\n\n\n".join([*helpers, *written.classes, *parts])
    lines = [broken for line in code.split("\n") for broken in laid_out(line)]
    return f"{_head(plan, code)}\n\n\n" + "\n".join(lines) + '\n\n\nif __name__ == "__main__":\n    main()\n'


# ---------------------------------------------------------------- head


def _head(plan: Plan, code: str) -> str:
    file = file_words(plan)
    imports = ["import argparse", "import json", *(["import math"] if re.search(r"\bmath\.", code) else [])]
    types = [name for name in ("Callable", "Mapping") if re.search(rf"\b{name}\b", code)]
    typing = ["from typing import Any"] if re.search(r": Any\b", code) else []
    functional = ["from torch.nn import functional as F"] if re.search(r"\bF\.", code) else []
    return "\n".join(
        [
            f'"""The network {plan.name} of {file}, written by `neural compile`. Build and train it:',
            "",
            "    python THIS_FILE --data FILE.npz",
            "",
            "Arrays of the file:",
            *data_words(plan),
            '"""',
            "",
            "from __future__ import annotations",
            "",
            *imports,
            f"from collections.abc import {', '.join(types)}",
            *typing,
            "",
            "import torch",
            "from torch import nn",
            *functional,
            "from torch.utils.data import DataLoader, TensorDataset",
            "",
            f"EPOCHS = {plan.training['epochs']}",
            f"BATCH_SIZE = {plan.training['batch_size']}",
            f"SEED = {plan.training['seed'] or 0}",
            f"DEVICE = {_device(plan)}",
        ]
    )


def file_words(plan: Plan) -> str:
    """Return the name of the `.neural` file as a docstring can hold it."""
    name = Path(plan.file).name.replace("\\", "").replace('"""', "")
    return name.encode("utf-8", "replace").decode()  # a name on a disk may be of any bytes


def data_words(plan: Plan) -> list[str]:
    """Return one line for each array of a data file."""
    shapes = [
        f"`{data_key(plan, each)}`: {'ids' if each.ids else 'numbers'} of the shape {_samples(each.shape)}."
        for each in plan.inputs
    ]
    return [*shapes, f"`y`: {_target_words(plan)}."]


def _samples(shape: Sequence[int | None]) -> str:
    return shape_text((None, *shape)).replace("None", "samples", 1).replace("None", "any")


def _target_words(plan: Plan) -> str:
    shape = plan.layers[-1].shape
    match plan.loss.type:
        case "sparse_categorical_crossentropy":
            return f"numbers of classes of the shape {_samples(shape[:-1])}"
        case "categorical_crossentropy":
            return f"one-hot classes of the shape {_samples(shape)}, or their numbers"
        case _:
            return f"numbers of the shape {_samples(shape)}"


def named_device(plan: Plan) -> str:
    """Return the network's own device, or the first one of its layers, "auto" if none is named."""
    named = [plan.device, plan.training["device"], *(layer.device for layer in plan.walk())]
    return next((each for each in named if each), "auto")


def _device(plan: Plan) -> str:
    """Return the expression of the device: the network's own, that of its layers, or a GPU if there is one."""
    device = named_device(plan)
    if device == "cpu":
        return '"cpu"'
    if device == "mps":
        return '"mps" if torch.backends.mps.is_available() else "cpu"'
    name, _, number = (device if device.startswith("cuda:") else "cuda").partition(":")
    name = f"{name}:{number}" if number else name
    return f'"{name}" if torch.cuda.device_count() > {number or 0} else "cpu"'


# ---------------------------------------------------------------- the model


def _model_parts(plan: Plan, written: Written, name: str, activation: str) -> list[str]:
    parameters = ", ".join(f"{identifier(data_key(plan, each))}: torch.Tensor" for each in plan.inputs)
    names = ", ".join(identifier(data_key(plan, each)) for each in plan.inputs)
    answer = SOFTMAX[activation].format(f"model({names})") if activation else f"model({names})"
    parts = [
        [
            f"def build_model() -> {name}:",
            '    """Return the model with new random weights."""',
            f"    return {name}()",
        ],
        [
            "@torch.no_grad()",
            f"def predict(model: nn.Module, {parameters}) -> torch.Tensor:",
            f'    """Return {"probabilities" if activation else "the outputs"} of the trained model."""',
            "    model.eval()",
            f"    return {answer}",
        ],
    ]
    if written.penalties:
        terms = [
            f"    {'penalty = ' if not place else 'penalty = penalty + '}{term}"
            for place, term in enumerate(written.penalties)
        ]
        parts.append(
            [
                f"def regularization(model: {name}) -> torch.Tensor:",
                '    """Return what large weights add to the loss."""',
                *terms,
                "    return penalty",
            ]
        )
    return ["\n".join(part) for part in parts]


def data_key(plan: Plan, given: InputPlan) -> str:
    """Return the name of an input in a data file: `x` if there is only one."""
    return "x" if len(plan.inputs) == 1 else input_name(plan, given)


# ---------------------------------------------------------------- training


def _training_parts(plan: Plan, written: Written, activation: str) -> list[str]:
    loss = loss_code(plan)
    written.helpers.update(loss.helpers)
    metrics = metric_functions(plan)
    written.helpers.update(metrics.values())
    optimizer = optimizer_code(plan)
    written.helpers.update(optimizer.helpers)
    schedule, by_epoch = schedule_code(plan)
    logits = "logits" if activation or plan.loss.parameters.get("from_logits") else "outputs"
    parts = [
        [
            "def loss_function(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:",
            f'    """Return the {plan.loss.type.replace("_", " ")} of {logits} and targets."""',
            *(f"    {line}" for line in loss.statements),
        ],
        [
            "def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:",
            f'    """Return {plan.optimizer.type} for all weights."""',
            f"    return {optimizer.expression}",
        ],
    ]
    if plan.schedule is not None:
        parts.append(
            [
                "def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:",
                f'    """Return {plan.schedule.type}, which steps after each {"epoch" if by_epoch else "batch"}."""',
                *(f"    {line}".rstrip() for line in schedule),
            ]
        )
    split = plan.training["validation_split"]
    parts.append(_tensors(plan))
    if split or metrics:
        parts.append(
            _evaluate(
                metrics,
                activation,
                "the model is not trained on" if split else "the model is trained on",
                " + regularization(model)" if written.penalties else "",
            )
        )
    parts += [_train(plan, written, by_epoch), _main(plan)]
    return ["\n".join(part) for part in parts]


def _tensors(plan: Plan) -> list[str]:
    kinds = {True: "long", False: "float"}
    reads = [f'torch.as_tensor(data["{data_key(plan, each)}"]).{kinds[each.ids]}()' for each in plan.inputs]
    return [
        "def tensors(data: Mapping[str, object]) -> tuple[list[torch.Tensor], torch.Tensor]:",
        '    """Return the inputs and the targets as the model and the loss take them."""',
        *(f"    {line}" for line in targets_code(plan)),
        f"    return [{', '.join(reads)}], y",
    ]


def _evaluate(metrics: dict[str, str], activation: str, data: str, penalty: str) -> list[str]:
    loss = "loss_function(output, target)"
    found = [f'"loss": ({loss}{penalty}).item()' if penalty else f'"loss": {loss}.item()']
    found += [f'"{name}": {function}(predicted, target)' for name, function in metrics.items()]
    shown = [f"predicted = {SOFTMAX[activation].format('output')}"] if activation and metrics else []
    if metrics and not activation:
        shown = ["predicted = output"]
    body = [
        "model.eval()",
        "outputs, targets = [], []",
        "for *inputs, target in DataLoader(data, batch_size=batch_size):",
        "    outputs.append(model(*(each.to(device) for each in inputs)))",
        "    targets.append(target.to(device))",
        "output, target = torch.cat(outputs), torch.cat(targets)",
        *shown,
        f"return {{{', '.join(found)}}}",
    ]
    return [
        "@torch.no_grad()",
        "def evaluate(model: nn.Module, data: TensorDataset, batch_size: int, device: str) -> dict[str, float]:",
        f'    """Return the loss{" and the metrics" if metrics else ""} of data that {data}."""',
        *(f"    {line}" for line in body),
    ]


def _train(plan: Plan, written: Written, by_epoch: bool) -> list[str]:
    training: Any = plan.training
    split = training["validation_split"]
    lines = ["inputs, targets = tensors(data)"]
    if split:
        lines += [
            f"kept = int(len(targets) * {round(1 - split, 12):g})  # the samples after these are for validation",
            "trained = TensorDataset(*(each[:kept] for each in inputs), targets[:kept])",
            "held = TensorDataset(*(each[kept:] for each in inputs), targets[kept:])",
        ]
    else:
        lines.append("trained = TensorDataset(*inputs, targets)")
    if training["shuffle"]:
        lines += [
            "order = torch.Generator().manual_seed(seed)",
            "loader = DataLoader(trained, batch_size=batch_size, shuffle=True, generator=order)",
        ]
    else:
        lines.append("loader = DataLoader(trained, batch_size=batch_size)")
    lines += ["model.to(device)", "optimizer = make_optimizer(model)"]
    lines += ["schedule = make_schedule(optimizer)"] if plan.schedule is not None else []
    patience = _patience(training["early_stopping"])
    lines += ['best, waited = float("inf"), 0'] if patience else []
    lines += ["history: list[dict[str, float]] = []", "for epoch in range(epochs):"]
    lines += [f"    {line}" for line in _epoch(plan, written, by_epoch)]
    if patience:
        lines += [f"    {line}" for line in _stopping(patience, bool(split))]
    lines.append("return history")
    seed = "seed: int = SEED, " if training["shuffle"] else ""
    return [
        "def train(",
        "    model: nn.Module,",
        "    data: Mapping[str, object],",
        "    *,",
        "    epochs: int = EPOCHS,",
        "    batch_size: int = BATCH_SIZE,",
        *([f"    {seed.rstrip()[:-1]},"] if seed else []),
        "    device: str = DEVICE,",
        ") -> list[dict[str, float]]:",
        '    """Train the model, and return the numbers of each epoch."""',
        *(f"    {line}" for line in lines),
    ]


def _epoch(plan: Plan, written: Written, by_epoch: bool) -> list[str]:
    penalty = " + regularization(model)" if written.penalties else ""
    forward = [
        "outputs = model(*(each.to(device) for each in batch))",
        f"loss = loss_function(outputs, target.to(device)){penalty}",
    ]
    if plan.training["mixed_precision"]:
        mixed = "with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):"
        forward = [mixed, *(f"    {line}" for line in forward)]
    step = ["schedule.step()"] if plan.schedule is not None else []
    inner = [
        "optimizer.zero_grad()",
        *forward,
        "loss.backward()",
        *clip_code(plan),
        "optimizer.step()",
        *([] if by_epoch else step),
        "total += loss.item() * len(target)",
    ]
    lines = [
        "model.train()",
        "total = 0.0",
        "for *batch, target in loader:",
        *(f"    {line}" for line in inner),
        *(step if by_epoch else []),
        'numbers = {"loss": total / len(trained)}',
    ]
    if plan.training["validation_split"]:
        lines += [
            "if len(held):",
            "    found = evaluate(model, held, batch_size, device)",
            '    numbers |= {f"val_{name}": value for name, value in found.items()}',
        ]
    elif metric_functions(plan):
        lines.append("numbers = {**evaluate(model, trained, batch_size, device), **numbers}")
    shown = (
        'print(f"epoch {epoch + 1}/{epochs}: " + ", ".join(f"{name} {value:.4f}" for name, value in numbers.items()))'
    )
    return [*lines, "history.append(numbers)", shown]


def _patience(value: Any) -> int:
    """Return the epochs without a better loss after which training stops, 0 if it does not; `true` is Keras's 1."""
    return int(value) if value else 0


def _stopping(patience: int, split: bool) -> list[str]:
    loss = 'numbers.get("val_loss", numbers["loss"])' if split else 'numbers["loss"]'
    return [
        f"current = {loss}",
        "best, waited = (current, 0) if current < best else (best, waited + 1)",
        f"if waited >= {patience}:  # epochs without a better loss",
        "    break",
    ]


def _main(plan: Plan) -> list[str]:
    training: Any = plan.training
    path = training["save_path"]
    options = ["epochs=options.epochs", "batch_size=options.batch_size"]
    options += ["seed=options.seed"] if training["shuffle"] else []
    options += ["device=options.device"]
    names = " and ".join(data_key(plan, each) for each in plan.inputs)
    lines = [
        "import numpy as np  # the model itself needs torch alone",
        "",
        'parser = argparse.ArgumentParser(description="Build and train the model.")',
        f'parser.add_argument("--data", required=True, help="a file .npz with {names} and y")',
        'parser.add_argument("--epochs", type=int, default=EPOCHS)',
        'parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)',
        'parser.add_argument("--seed", type=int, default=SEED)',
        'parser.add_argument("--device", default=DEVICE)',
        'parser.add_argument("--history", help="a file .json for the numbers of each epoch")',
        "options = parser.parse_args()",
        "torch.manual_seed(options.seed)",
        "model = build_model()",
        "with np.load(options.data) as data:",
        f"    history = train(model, data, {', '.join(options)})",
        "if options.history:",
        '    with open(options.history, "w") as file:',
        "        json.dump(history, file)",
    ]
    lines += [f"torch.save(model.state_dict(), {json.dumps(path)})"] if path else []
    return [
        "def main() -> None:",
        '    """Train a new model on the data of a file."""',
        *(f"    {line}".rstrip() for line in lines),
    ]
