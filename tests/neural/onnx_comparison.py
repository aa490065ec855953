"""Export networks to ONNX, and compare what onnxruntime and torch compute: JSON enters, JSON leaves.

As a script it runs apart from the tests, as an exporter leaves much behind in its process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def compare(file: str, name: str, folder: Path) -> dict[str, Any]:
    """Return the differences of the outputs for batches of 1 and 5, of trained weights."""
    import onnxruntime
    import torch
    from tests.neural.pytorch.made_data import made_data

    from neural import checked, compile_plan, load, parse
    from neural.onnx_export import export

    plan = checked(parse(file, name))
    module = load(compile_plan(plan, file), plan.name)
    torch.manual_seed(3)
    model = module.build_model()
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.2)
    torch.save(model.state_dict(), folder / f"{name}.pt")
    export(plan, folder / f"{name}.onnx", file, weights=folder / f"{name}.pt")
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
    found: dict[str, Any] = {
        "name": name,
        "inputs": [[each.name, each.shape] for each in session.get_inputs()],
        "outputs": [each.name for each in session.get_outputs()],
        "differences": [],
    }
    for samples, length in ((1, 9), (5, 12)):
        inputs, _ = module.tensors(made_data(plan, samples, length, seed=samples))
        wanted = module.predict(model, *inputs).numpy()
        given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
        found["differences"].append(float(abs(session.run(None, given)[0] - wanted).max()))
        found["sums"] = wanted.sum(axis=-1).tolist()
    return found


def main() -> None:
    sys.path.insert(0, str(ROOT))
    results = []
    for each in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        try:
            results.append(compare(**each, folder=Path(sys.argv[2]).parent))
        except Exception as error:  # noqa: BLE001 (each network has its own result)
            results.append({"name": each["name"], "error": f"{type(error).__name__}: {error}"})
        Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
