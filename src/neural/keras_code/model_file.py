"""Write a network as one Python file for Keras 3: a `Plan` enters, the text of the file leaves.

It has the command line and the data of the PyTorch file, so that one command runs both.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural.errors import CheckFailed, Problem, Span
from neural.keras_code.layer_code import literal
from neural.keras_code.network_function import Written, network
from neural.keras_code.training_code import loss_code, metrics_code, optimizer_code, rate_by_epoch, targets_code
from neural.pytorch.code_layout import laid_out
from neural.pytorch.model_file import data_key, data_words, file_words, named_device
from neural.pytorch.module_source import copied
from neural.pytorch.network_class import identifier
from neural.pytorch.training_code import NoSuchTraining

if TYPE_CHECKING:
    from neural.plan import Plan

START = Span(1, 1, 1, 2)
MODULES = Path(__file__).parent / "modules"


def keras_source(plan: Plan, text: str = "", backend: str = "keras") -> str:
    """Return the source of a file that builds and trains the network with Keras on `tensorflow` or `jax`.

    With the backend `keras` it runs on what Keras is set to. `text` is that of the `.neural` file, whose lines errors
    quote. CheckFailed is raised with every layer that Keras cannot express.
    """
    written = Written(plan, text.split("\n"), backend=backend)
    model = network(written, [data_key(plan, each) for each in plan.inputs])
    parts: list[str] = []
    try:
        parts = _training_parts(plan, written)
    except NoSuchTraining as error:
        written.problems.append(Problem(str(error), plan.file, START, ""))
    if written.problems:
        raise CheckFailed(sorted(written.problems, key=lambda problem: problem.span))
    code = "\n\n\n".join([*copied(written.helpers, MODULES), *written.functions, model, *parts])
    lines = [broken for line in code.split("\n") for broken in laid_out(line)]
    return f"{_head(plan, code, backend)}\n\n\n" + "\n".join(lines) + '\n\n\nif __name__ == "__main__":\n    main()\n'


# ---------------------------------------------------------------- head


def _head(plan: Plan, code: str, backend: str) -> str:
    file = file_words(plan)
    chosen = "" if backend == "keras" else f'\nos.environ.setdefault("KERAS_BACKEND", "{backend}")\n'
    names = [name for name in ("layers", "ops") if re.search(rf"\b{name}\.", code)]
    imports = [
        "import argparse",
        "import contextlib",
        *(["import os"] if chosen else []),
        "from collections.abc import Mapping",
        *(["from typing import Any"] if re.search(r"\bAny\b", code) else []),
    ]
    lines = [
        f'"""The network {plan.name} of {file} for Keras 3, written by `neural compile`.',
        "",
        "Build and train it:",
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
        *chosen.split("\n"),
        *(["import keras"] if not chosen else ["import keras  # reads the backend from the environment"]),
        "import numpy as np",
        *([f"from keras import {', '.join(names)}"] if names else []),
        "",
        f"EPOCHS = {plan.training['epochs']}",
        f"BATCH_SIZE = {plan.training['batch_size']}",
        f"SEED = {plan.training['seed'] or 0}",
        f"DEVICE = {literal(_device_name(plan))}",
    ]
    if plan.training["mixed_precision"]:
        lines += ["", 'keras.config.set_dtype_policy("mixed_bfloat16")  # mixed_precision']
    return "\n".join(lines)


def _device_name(plan: Plan) -> str:
    """Return the device that the file asks for; a GPU is the choice of the backend if there is one."""
    named = named_device(plan)
    return named if named == "cpu" or (named.startswith("cuda:") and named != "cuda:0") else "auto"


# ---------------------------------------------------------------- training


def _training_parts(plan: Plan, written: Written) -> list[str]:
    metrics, helpers = metrics_code(plan)
    written.helpers.update(helpers)
    names = [identifier(data_key(plan, each)) for each in plan.inputs]
    parameters = ", ".join(f"{name}: np.ndarray" for name in names)
    inputs = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    parts = [
        [
            f"def predict(model: keras.Model, {parameters}) -> np.ndarray:",
            '    """Return the outputs of the trained model."""',
            f"    return model.predict({inputs}, verbose=0)",
        ],
        _arrays(plan),
        [
            "def compile_model(model: keras.Model) -> None:",
            '    """Give the model its optimizer, its loss and its metrics."""',
            "    model.compile(",
            f"        optimizer={optimizer_code(plan)},",
            f"        loss={loss_code(plan)},",
            *(_metrics(metrics)),
            "    )",
        ],
        _train(plan),
        _device(),
        _main(plan),
    ]
    return ["\n".join(part) for part in parts]


def _metrics(metrics: list[str]) -> list[str]:
    if not metrics:
        return []
    return [f"        metrics=[{', '.join(metrics)}],"]


def _arrays(plan: Plan) -> list[str]:
    kinds = {True: "int32", False: "float32"}
    reads = [f'np.asarray(data["{data_key(plan, each)}"]).astype("{kinds[each.ids]}")' for each in plan.inputs]
    single = len(reads) == 1
    inputs = reads[0] if single else f"[{', '.join(reads)}]"
    kind = "np.ndarray" if single else "list[np.ndarray]"
    return [
        f"def arrays(data: Mapping[str, object]) -> tuple[{kind}, np.ndarray]:",
        f'    """Return the input{"" if single else "s"} and the targets as the model and the loss take them."""',
        *(f"    {line}" for line in targets_code(plan)),
        f"    return {inputs}, y",
    ]


def _train(plan: Plan) -> list[str]:
    training: Any = plan.training
    split, patience, rate = training["validation_split"], training["early_stopping"], rate_by_epoch(plan)
    lines = ["inputs, targets = arrays(data)", "compile_model(model)"]
    x, y, held = "inputs", "targets", []
    if split:
        x = "inputs[{}]" if len(plan.inputs) == 1 else "[each[{}] for each in inputs]"
        late = x.format("kept:")
        lines += [
            f"kept = int(len(targets) * {round(1 - split, 12):g})  # the samples after these are for validation",
            f"held = ({late}, targets[kept:]) if kept < len(targets) else None",
        ]
        x, y, held = x.format(":kept"), "targets[:kept]", ["    validation_data=held,"]
    shown = 'f"epoch {epoch + 1}/{epochs}: " + ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())'
    lines += ["", "def show(epoch: int, numbers: Mapping[str, float]) -> None:", f"    print({shown})", ""]
    callbacks = ["keras.callbacks.LambdaCallback(on_epoch_end=show)"]
    if patience:
        monitor = '"val_loss" if held else "loss"' if split else '"loss"'
        callbacks.append(f"keras.callbacks.EarlyStopping(monitor={monitor}, patience={int(patience)})")
    if rate:
        callbacks.append(f"keras.callbacks.LearningRateScheduler(lambda epoch, _: {rate})")
    lines += [
        "history = model.fit(",
        f"    {x},",
        f"    {y},",
        "    epochs=epochs,",
        "    batch_size=batch_size,",
        *held,
        *([] if training["shuffle"] else ["    shuffle=False,"]),
        f"    callbacks=[{', '.join(callbacks)}],",
        "    verbose=0,",
        ")",
        "return history.history",
    ]
    return [
        "def train(",
        "    model: keras.Model,",
        "    data: Mapping[str, object],",
        "    *,",
        "    epochs: int = EPOCHS,",
        "    batch_size: int = BATCH_SIZE,",
        ") -> dict[str, list[float]]:",
        '    """Train the model, and return the numbers of all epochs by their names."""',
        *(f"    {line}".rstrip() for line in lines),
    ]


def _device() -> list[str]:
    return [
        "def placed(device: str) -> contextlib.AbstractContextManager[object]:",
        '    """Return the scope of a device such as `cpu` or `cuda:1`; `auto` is the choice of the backend."""',
        '    if device == "auto":',
        "        return contextlib.nullcontext()",
        "    # No number if none is given: Keras on torch takes `cpu:0` for another device than `cpu`.",
        '    return keras.device(device.replace("cuda", "gpu"))',
    ]


def _main(plan: Plan) -> list[str]:
    names = " and ".join(data_key(plan, each) for each in plan.inputs)
    path = plan.training["save_path"]
    lines = [
        'parser = argparse.ArgumentParser(description="Build and train the model.")',
        f'parser.add_argument("--data", required=True, help="a file .npz with {names} and y")',
        'parser.add_argument("--epochs", type=int, default=EPOCHS)',
        'parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)',
        'parser.add_argument("--seed", type=int, default=SEED)',
        'parser.add_argument("--device", default=DEVICE)',
        "options = parser.parse_args()",
        "keras.utils.set_random_seed(options.seed)",
        "with placed(options.device), np.load(options.data) as data:",
        "    model = build_model()",
        "    train(model, data, epochs=options.epochs, batch_size=options.batch_size)",
    ]
    if path:
        name = path if path.endswith(".weights.h5") else re.sub(r"\.\w+$", "", path) + ".weights.h5"
        lines.append(f"model.save_weights({literal(name)})")
    return [
        "def main() -> None:",
        '    """Train a new model on the data of a file."""',
        *(f"    {line}".rstrip() for line in lines),
    ]
