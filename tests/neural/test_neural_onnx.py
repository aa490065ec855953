"""ONNX files: what onnxruntime computes is what `predict` gives."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.neural import onnx_comparison
from tests.neural.sample_files import network

from neural import FileUnreadable, checked, compile_plan, load, parse
from neural.errors import NotExported
from neural.onnx_export import export

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
pytestmark = [
    pytest.mark.xdist_group("onnx files"),  # one process computes for all of them
    pytest.mark.skipif(
        any(importlib.util.find_spec(each) is None for each in PACKAGES), reason="onnx is not installed"
    ),
]

FILES = {
    "cnn": network(
        """Conv2D(4, 3, "relu", padding="same", strides=2) BatchNormalization() MaxPooling2D(2) Flatten()
        Output(3, "softmax")""",
        "(9, 9, 2)",
        'loss: "categorical_crossentropy"',
    ),
    "dense": network('Dense(5, "tanh") Output(1, "sigmoid")', "(4,)", 'loss: "binary_crossentropy"'),
    "embedding": network("Embedding(9, 4, mask_zero=true) GlobalAveragePooling1D() Dense(2)", "(6,)"),
    "lstm": network("LSTM(4) Dense(2)", "(None, 3)"),
    "transformer": network(
        """Embedding(9, 8) PositionalEncoding() TransformerEncoder(num_heads=2, ff_dim=8) GlobalAveragePooling1D()
        Output(3)""",
        "(6,)",
        'loss: "sparse_categorical_crossentropy"',
    ),
    "two_inputs": network(
        "words: { Embedding(9, 4) Flatten() } picture: { Reshape((2, -1)) Flatten() } Concatenate() Dense(2)",
        "{ words: (3,) picture: (4, 4, 1) }",
    ),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    folder = tmp_path_factory.mktemp("onnx")
    work = [{"file": each, "name": name} for name, each in FILES.items()]
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")
    command = [
        sys.executable,
        str(Path(onnx_comparison.__file__)),
        str(folder / "work.json"),
        str(folder / "found.json"),
    ]
    subprocess.run(command, check=True, timeout=550)
    return {each["name"]: each for each in json.loads((folder / "found.json").read_text(encoding="utf-8"))}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_onnxruntime_gives_what_predict_gives(name: str, results: Mapping[str, Any]) -> None:
    found = results[name]
    assert "error" not in found, found
    assert max(found["differences"]) < 1e-5
    assert found["outputs"] == ["y"]
    plan = checked(parse(FILES[name], name))
    names = ["x"] if len(plan.inputs) == 1 else [each.name for each in plan.inputs]
    assert [each for each, _ in found["inputs"]] == names
    for (_, shape), each in zip(found["inputs"], plan.inputs, strict=True):
        assert isinstance(shape[0], str)
        assert [size if isinstance(size, int) else None for size in shape[1:]] == list(each.shape)
    if name in {"cnn", "transformer"}:
        assert found["sums"] == pytest.approx([1.0] * 5, abs=1e-5)


@pytest.mark.slow
def test_an_axis_that_the_export_would_fix(tmp_path):
    file = network('LSTM(3, activation="relu") Dense(2)', "(None, 3)")
    with pytest.raises(NotExported, match="would fix axis 1 of x, which the file leaves open"):
        export(checked(parse(file, "a")), tmp_path / "a.onnx", file)
    assert not (tmp_path / "a.onnx").exists()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileUnreadable, match="could not be written: there is no folder"):
        export(checked(parse(FILES["dense"], "a")), tmp_path / "no" / "a.onnx", FILES["dense"])


def test_weights_of_another_network(tmp_path):
    file, other = FILES["dense"], FILES["lstm"]
    model = load(compile_plan(checked(parse(other, "a")), other)).build_model()
    torch.save(model.state_dict(), tmp_path / "other.pt")
    with pytest.raises(FileUnreadable, match=r"other\.pt has not the weights of this network: Missing key"):
        export(checked(parse(file, "a")), tmp_path / "a.onnx", file, weights=tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("content", "words"), [(None, "could not be read: No such file"), (b"no weights", "is no state dict, such as")]
)
def test_a_file_without_weights(tmp_path, content, words):
    if content is not None:
        (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(FileUnreadable, match=words):
        export(checked(parse(FILES["dense"], "a")), tmp_path / "a.onnx", FILES["dense"], weights=tmp_path / "w.pt")


def test_code_in_a_file_of_weights_is_not_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harmed",))

    torch.save({"Dense_1.weight": Harm()}, tmp_path / "w.pt")
    with pytest.raises(FileUnreadable, match="is no state dict"):
        export(checked(parse(FILES["dense"], "a")), tmp_path / "a.onnx", FILES["dense"], weights=tmp_path / "w.pt")
    assert not (tmp_path / "harmed").exists()
