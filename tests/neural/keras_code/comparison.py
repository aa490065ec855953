"""Build networks by both generated files, and compare them: a JSON list of files enters, a JSON list leaves.

As a script it runs Keras on torch, apart from the tests, as Keras reads its backend once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def compare(file: str, name: str, network: str | None = None, *, train: bool = False) -> dict[str, Any]:
    """Return what both models have and give, and the largest difference of their outputs."""
    import keras
    import numpy as np
    import torch
    from tests.neural.keras_code.weights_between import copy
    from tests.neural.pytorch.made_data import made_data

    from neural import SourceError, checked, compile_plan, load, parse

    plan = checked(parse(file, name), network)
    found: dict[str, Any] = {"name": name, "network": plan.name, "planned": plan.parameter_count}
    try:
        source = compile_plan(plan, file, "keras")
    except SourceError as error:
        return found | {"refused": str(error)}
    try:
        torch_source = compile_plan(plan, file)
    except SourceError as error:
        torch_source, found["torch_refused"] = "", str(error)
    keras.utils.set_random_seed(5)
    keras.backend.clear_session()
    module = load(source, plan.name)
    model = module.build_model()
    found["keras"] = int(sum(np.prod(each.shape) for each in model.weights if "seed_generator" not in each.path))
    found["shape"] = list(model.output_shape[1:])
    data = made_data(plan, 7 if train else 2, seed=1)
    rng = np.random.default_rng(2)
    for weight in model.weights:  # random biases and moving averages, so that a wrong place is seen
        if weight.path.rpartition("/")[2] in {"bias", "beta", "moving_mean"}:
            weight.assign(rng.normal(0, 0.3, weight.shape))
        elif weight.path.rpartition("/")[2] in {"gamma", "moving_variance"}:
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
    inputs, _ = module.arrays(arrays_of(data))
    given = module.predict(model, *(inputs if isinstance(inputs, list) else [inputs]))
    if torch_source:
        torch.manual_seed(5)
        other = load(torch_source, plan.name)
        twin = other.build_model()
        found["torch"] = sum(each.numel() for each in twin.parameters()) + sum(
            each.numel()
            for key, each in twin.named_buffers()
            if not key.endswith("num_batches_tracked") and not key.endswith("table")
        )
        found["copied"] = copy(plan.layers, twin, model.get_layer)
        tensors, _ = other.tensors(data)
        wanted = other.predict(twin, *tensors).numpy()
        module.compile_model(model)
        outputs, (_, targets) = twin.eval()(*tensors), other.tensors(data)
        found["losses"] = [
            float(model.loss(keras.ops.convert_to_tensor(module.arrays(arrays_of(data))[1]), given)),
            other.loss_function(outputs, targets).item(),
        ]
        found["torch_shape"] = list(wanted.shape[1:])
        found["difference"] = float(np.abs(wanted - given).max() / max(1.0, np.abs(wanted).max()))
    if train:
        with contextlib.redirect_stdout(io.StringIO()):
            history = module.train(model, arrays_of(data), epochs=2, batch_size=2)
        found["loss"] = history["loss"]
        found["optimizer"], rate = model.optimizer.get_config(), model.optimizer._learning_rate
        steps = [float(rate(step)) for step in range(12)] if callable(rate) else []
        found["rates"] = steps or history.get("learning_rate", [])
        found["optimizer"].pop("learning_rate" if callable(rate) else "", None)
    return found


def arrays_of(data: dict[str, Any]) -> dict[str, Any]:
    return {key: each.numpy() for key, each in data.items()}


def main() -> None:
    sys.path.insert(0, str(ROOT))
    results = []
    for each in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        try:
            results.append(compare(**each))
        except Exception as error:  # noqa: BLE001 (each network has its own result)
            results.append(
                {"name": each["name"], "network": each.get("network"), "error": f"{type(error).__name__}: {error}"}
            )
        Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")  # also what a time limit cuts off is known


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "torch")
    main()
