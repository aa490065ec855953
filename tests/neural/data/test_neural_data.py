"""Data of every source, fitted to networks: what is read, what is changed and said, what is refused."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from neural import checked, compile_plan, load, parse
from neural.data import samples_for
from neural.errors import DataUnfit, MissingPackage


def plan(shape, last, loss="sparse_categorical_crossentropy", layers=""):
    training = f'loss: "{loss}" optimizer: Adam train {{ batch_size: 16 }}'
    text = f"network Net {{ input: {shape} layers: {layers} {last} {training} }}"
    return checked(parse(text, "net.neural"))


def trains(network, samples, tmp_path):
    """Train one epoch on the file that is saved, as the program does."""
    samples.save(tmp_path / "data.npz")
    module = load(compile_plan(network))
    with np.load(tmp_path / "data.npz") as data:
        (numbers,) = module.train(module.build_model(), data, epochs=1, device="cpu")
    assert np.isfinite(numbers["loss"])
    return numbers


FLAT = plan("(4,)", "Output(3)")


# ---------------------------------------------------------------- files


@pytest.fixture
def table():
    draw = np.random.default_rng(0)
    rows = [
        f"{a:.3f},{b:.3f},{c:.3f},{d:.3f},{'xyz'[i % 3]}" for i, (a, b, c, d) in enumerate(draw.normal(size=(60, 4)))
    ]
    return "a,b,c,d,label\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_csv_file_with_classes_in_words(tmp_path, table, ends, mark):
    path = tmp_path / "a.csv"
    path.write_bytes((mark + table.replace("\n", ends)).encode("utf-8"))
    samples = samples_for(FLAT, data=path)
    assert samples.arrays["x"].shape == (60, 4)
    assert samples.arrays["y"].tolist()[:4] == [0, 1, 2, 0]
    assert samples.notes == ("the targets are the column 'label'", "classes by number: x 0, y 1, z 2")
    trains(FLAT, samples, tmp_path)


def test_a_parquet_file_is_the_same_table(tmp_path, table):
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(io.BytesIO(table.encode())), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(table)
    one, other = (samples_for(FLAT, data=tmp_path / f"a.{kind}") for kind in ("csv", "parquet"))
    assert (one.arrays["x"] == other.arrays["x"]).all()
    assert (one.arrays["y"] == other.arrays["y"]).all()


def test_columns_of_several_inputs_begin_with_their_names(tmp_path):
    inputs = "input: { a: (2,) b: (1,) }"
    text = f'network Two {{ {inputs} layers: Concatenate("a", "b") Output(1) loss: mse optimizer: Adam }}'
    network = checked(parse(text, "two.neural"))
    (tmp_path / "t.csv").write_text("a_1,b,a_2,y\n" + "1,2,3,4\n" * 20)
    samples = samples_for(network, data=tmp_path / "t.csv")
    assert samples.arrays["a"][0].tolist() == [1, 3]
    assert samples.arrays["b"][0].tolist() == [2]
    trains(network, samples, tmp_path)


def test_arrays_of_a_file_are_taken_as_they_are(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 3
    np.savez(tmp_path / "a.npz", x=x, y=y)
    samples = samples_for(FLAT, data=tmp_path / "a.npz")
    assert (samples.arrays["x"] == x).all()
    assert samples.notes == ()
    assert not samples.synthetic


def test_a_folder_of_images(tmp_path):
    draw = np.random.default_rng(0)
    for name, size in (("cat", (20, 12)), ("dog", (9, 9))):
        (tmp_path / "p" / name / "more").mkdir(parents=True)
        for number in range(6):
            where = tmp_path / "p" / name / ("more" if number > 3 else "")
            Image.fromarray(draw.integers(0, 255, (*size, 3), np.uint8)).save(where / f"{number}.png")
    (tmp_path / "p/cat/notes.txt").write_text("mine")
    Image.new("L", (5, 5), 255).save(tmp_path / "p/dog/white.png")
    network = plan("(8, 10, 3)", "Output(2)", layers="Conv2D(4, 3) Flatten()")
    samples = samples_for(network, data=tmp_path / "p")
    assert samples.arrays["x"].shape == (13, 8, 10, 3)
    assert sorted(samples.arrays["y"].tolist()) == [0] * 6 + [1] * 7
    assert set(samples.arrays["y"][-5:].tolist()) == {0, 1}, "the last samples are for validation, and need both"
    (white,) = (samples.arrays["x"].min(axis=(1, 2, 3)) == 1.0).nonzero()[0]
    assert samples.arrays["y"][white] == 1
    assert samples.arrays["x"].min() >= 0
    assert samples.notes[0] == "classes by number: cat 0, dog 1"
    assert "1 file that is no image was left out" in samples.notes[2]
    trains(network, samples, tmp_path)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "network", "note"),
    [
        ("digits", plan("(8, 8, 1)", "Output(10)", layers="Flatten()"), None),
        (
            "digits",
            plan("(28, 28, 3)", "Output(10)", layers="Flatten()"),
            "images of (8, 8, 1) are brought to (28, 28, 3)",
        ),
        ("digits", plan("(64,)", "Output(10)"), "samples of (8, 8, 1) are reshaped to (64,)"),
        ("digits", plan("(64,)", "Output(10)", "categorical_crossentropy"), None),
        ("digits", plan("(8, 8)", "Output(10)", layers="LSTM(4)"), "samples of (8, 8, 1) are reshaped to (8, 8)"),
        ("digits", plan("(64,)", 'Dense(64, "sigmoid")', "mse"), "the inputs are the targets, as of an autoencoder"),
        ("Iris", FLAT, "each feature has a mean of 0 and a deviation of 1"),
        ("wine", plan("(13,)", "Output(3)"), None),
        ("breast-cancer", plan("(30,)", 'Dense(1, "sigmoid")', "binary_crossentropy"), None),
        (
            "breast_cancer",
            plan("(30,)", 'Dense(2, "sigmoid")', "binary_crossentropy"),
            "classes are given as 2 numbers",
        ),
        ("diabetes", plan("(10,)", "Dense(1)", "mse"), "the targets have a mean of 0 and a deviation of 1"),
        ("linnerud", plan("(3,)", "Dense(3)", "mse"), None),
    ],
)
def test_data_sets_of_scikit_learn(tmp_path, name, network, note):
    samples = samples_for(network, dataset=name)
    assert samples.source.startswith("scikit-learn's ")
    assert note is None or any(note in each for each in samples.notes)
    first, again = trains(network, samples, tmp_path), samples_for(network, dataset=name)
    assert all((samples.arrays[key] == again.arrays[key]).all() for key in samples.arrays)
    assert first


def test_enlarged_digits_are_the_digits():
    samples = samples_for(plan("(16, 16, 1)", "Output(10)", layers="Flatten()"), dataset="digits")
    small = samples_for(plan("(8, 8, 1)", "Output(10)", layers="Flatten()"), dataset="digits")
    assert (samples.arrays["x"] == small.arrays["x"].repeat(2, axis=1).repeat(2, axis=2)).all()


SHAPES = [
    plan("(28, 28, 1)", "Output(10)", layers="Conv2D(4, 3) Flatten()"),
    plan("(12,)", "Output(3)", layers="Embedding(50, 8) LSTM(8)"),
    plan("(None, 5)", "Output(2)", layers="GRU(6)"),
    plan("(6, 4)", "Dense(3, 'softmax')", "categorical_crossentropy", layers="LSTM(5, return_sequences=true)"),
    plan("(20,)", "Dense(1, 'sigmoid')", "binary_crossentropy"),
    plan("(20,)", "Dense(2)", "mse"),
    plan("(20,)", "Dense(20, 'sigmoid')", "binary_crossentropy", layers="Dense(4)"),
]


@pytest.mark.parametrize("network", SHAPES, ids=lambda each: each.layers[0].type)
def test_made_up_data_can_be_learned_and_say_so(tmp_path, network):
    samples = samples_for(network, dataset="synthetic", seed=3)
    assert samples.synthetic
    assert samples.source == "made-up data"
    again, other = (samples_for(network, dataset="synthetic", seed=seed) for seed in (3, 4))
    assert (samples.arrays["x"] == again.arrays["x"]).all()
    assert not (samples.arrays["x"] == other.arrays["x"]).all()
    samples.save(tmp_path / "data.npz")
    module = load(compile_plan(network))
    torch.manual_seed(0)
    with np.load(tmp_path / "data.npz") as data:
        numbers = module.train(module.build_model(), data, epochs=12, device="cpu")
    assert numbers[-1]["loss"] < 0.97 * numbers[0]["loss"]


def test_a_data_set_of_torchvision_is_read_from_the_disk_alone(tmp_path):
    """torchvision itself cannot be installed beside this torch: a stand-in with its names."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "datasets.py").write_text(
        "import numpy as np, pathlib\n"
        "class MNIST:\n"
        "    def __init__(self, root, train=True, download=False):\n"
        "        if download: print('downloaded to', root)\n"
        "        elif not (pathlib.Path(root) / 'MNIST').exists(): raise RuntimeError('Dataset not found.')\n"
        "        self.data, self.targets = np.full((50, 28, 28), 255, np.uint8), np.arange(50) % 10\n"
    )
    (tmp_path / "there/MNIST").mkdir(parents=True)
    program = (
        "import sys, pathlib\n"
        "from neural import checked, parse\n"
        "from neural.data import samples_for\n"
        "plan = checked(parse('network N { input: (28, 28, 1) layers: Flatten() Output(10) optimizer: Adam }', 'n'))\n"
        "root = pathlib.Path(sys.argv[1]) if sys.argv[1:] else None\n"
        "got = samples_for(plan, dataset='MNIST', data=root, download='download' in sys.argv)\n"
        "print(got.arrays['x'].shape, got.arrays['x'].max(), got.source)\n"
    )

    def said(*args):
        done = subprocess.run(
            [sys.executable, "-c", program, *args], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert said("there") == "(50, 28, 28, 1) 1.0 torchvision's mnist in there\n"
    assert "mnist is not on disk in elsewhere: name the folder with --data" in said("elsewhere")
    assert "downloaded to elsewhere" in said("elsewhere", "download")


def test_without_torchvision_it_is_named():
    with pytest.raises(MissingPackage, match="cifar10 needs the package torchvision: pip install torchvision"):
        samples_for(plan("(32, 32, 3)", "Output(10)", layers="Flatten()"), dataset="CIFAR10")


# ---------------------------------------------------------------- what cannot be


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


REFUSED = [
    (FLAT, {}, "say what Net is trained on: --data with a folder of images"),
    (FLAT, {"dataset": "iriss"}, "there is no data set 'iriss': did you mean iris?"),
    (FLAT, {"dataset": "iris", "data": Path()}, "--data and --dataset are two sources"),
    (
        plan("(20,)", "Output(3)"),
        {"dataset": "wine"},
        "a sample of scikit-learn's wine has the shape (13,), and the input",
    ),
    (
        plan("(13,)", "Output(2)"),
        {"dataset": "wine"},
        "has 3 classes from 0 to 2, and the last layer has 2 outputs: give it 3",
    ),
    (plan("(10,)", "Output(3)"), {"dataset": "diabetes"}, "takes classes, and the targets are no whole numbers"),
    (plan("(10,)", "Output(3)", layers="Embedding(9, 4) Flatten()"), {"dataset": "diabetes"}, "takes whole numbers"),
    (
        plan("(4,)", "Dense(5)", "mse"),
        {"dataset": "linnerud"},
        "a sample of scikit-learn's linnerud has the shape (3,)",
    ),
    (
        plan("(3,)", "Dense(5)", "mse"),
        {"dataset": "linnerud"},
        "a target of scikit-learn's linnerud has the shape (3,)",
    ),
]


@pytest.mark.parametrize(("network", "asked", "words"), REFUSED)
def test_what_does_not_fit_is_said_with_what_to_do(network, asked, words):
    with pytest.raises(DataUnfit) as caught:
        samples_for(network, **asked)
    assert words in str(caught.value)


FILES = [
    ("nothing.npz", None, "there is no "),
    ("a.txt", "x", "is no data: give a folder of images, or a file .npz"),
    ("a.npz", "no archive", "cannot be read as .npz"),
    ("a.npz", b"", "cannot be read as .npz"),
    ("a.csv", "", "cannot be read"),
    ("a.csv", "a,b\n", "has 2 columns and 0 rows"),
    ("a.csv", "a\n1\n", "has 1 column and 1 row:"),
    ("a.csv", "a,a,y\n1,2,3\n", "two columns 'a'"),
    ("a.csv", "a,b,c,d,y\n" + "1,2,x,3,0\n" * 9, "the column 'c' holds words, and features are numbers"),
    ("a.csv", "a,b,c,d,y\n1,2,3,4,0\n1,,3,4,1\n", "the column 'b' has no value in line 3 of the file: fill it"),
    (
        "a.csv",
        "a,b,c,d,y\n1,2,3,4,0\n\n1,,3,4,1\n1,,3,4,1\n",
        "the column 'b' has 2 missing values, the first in line 4 of the file: fill them",
    ),
    ("a.csv", "1.5,2,3,4,0\n1,,3,4,1\n", "the column 'f1' has no value in line 2 of the file"),
    ("a.csv", "a,b,c,d,y\n1,2,2020-01-01,3,0\n", "the column 'c' holds dates or times, and features"),
    ("a.csv", "a,b,c,d,y\n1,2,3,4,0\n", "has 1 sample, and none is left beside those for validation"),
    ("a.parquet", "no table", "cannot be read"),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES)
def test_files_that_cannot_be_read_are_an_error_in_words(tmp_path, name, content, words):
    path = tmp_path / name if content is None else write(tmp_path / name, content)
    with pytest.raises(DataUnfit) as caught:
        samples_for(FLAT, data=path)
    assert words in str(caught.value)


def test_archives_that_are_not_what_is_needed(tmp_path):
    path = tmp_path / "a.npz"
    for arrays, words in (
        ({"x": np.zeros((5, 4))}, "holds x: give the inputs as `x`"),
        ({"x": np.zeros((5, 4)), "y": np.array(["a"] * 5)}, "y holds <U1, and a network takes numbers"),
        ({"x": np.zeros((5, 4)), "y": np.zeros(4, int)}, "different numbers of samples: x 5, y 4"),
        ({"x": np.zeros((5, 4)), "y": np.float32(3)}, "y is a single number"),
        (
            {"a": np.zeros((5, 4)), "b": np.zeros((5, 4)), "y": np.zeros(5)},
            "has a, b, and Net has one input: call it x",
        ),
        ({"x": np.zeros((5, 4)), "y": np.full(5, 7)}, "has the single class 7"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(DataUnfit) as caught:
            samples_for(FLAT, data=path)
        assert words in str(caught.value)
    np.savez(path, x=np.array([object()]), y=np.zeros(1))
    with pytest.raises(DataUnfit, match=r"cannot be read as \.npz"):
        samples_for(FLAT, data=path)


def test_a_folder_without_images(tmp_path):
    network = plan("(8, 8, 1)", "Output(2)", layers="Flatten()")
    with pytest.raises(DataUnfit, match="has no images in folders of their classes"):
        samples_for(network, data=tmp_path)
    (tmp_path / "a").mkdir()
    write(tmp_path / "a/x.png", "no image")
    with pytest.raises(DataUnfit, match=r"x\.png cannot be read as an image"):
        samples_for(network, data=tmp_path)
    with pytest.raises(DataUnfit, match="does not take one image"):
        samples_for(FLAT, data=tmp_path)


def test_values_that_are_not_finite_stay_and_are_said(tmp_path):
    x = np.zeros((20, 4))
    x[3, 1] = np.nan
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 3)
    samples = samples_for(FLAT, data=tmp_path / "a.npz")
    assert samples.notes == ("1 sample of x holds NaN or infinity, and stays as it is",)
    assert np.isnan(samples.arrays["x"][3, 1])


def test_labels_from_one_count_from_zero(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 4)), y=1 + np.arange(20) % 3)
    samples = samples_for(FLAT, data=tmp_path / "a.npz")
    assert samples.arrays["y"].tolist()[:3] == [0, 1, 2]
    assert samples.notes == ("labels from 1 to 3 count from 0",)


@pytest.mark.parametrize(("scales", "noted"), [((1, 1, 1000, 1e6), True), ((1, 2, 3, 50), False)])
def test_columns_of_very_different_scales_are_noted(tmp_path, scales, noted):
    draw = np.random.default_rng(0).normal(size=(60, 4)) * scales
    rows = [",".join(f"{value:.4f}" for value in row) + f",{place % 3}" for place, row in enumerate(draw)]
    (tmp_path / "a.csv").write_text("a,b,c,d,label\n" + "\n".join(rows) + "\n")
    notes = samples_for(FLAT, data=tmp_path / "a.csv").notes
    told = [note for note in notes if re.match(r"the columns' standard deviations range from \S+ to 1e\+06, and", note)]
    assert len(told) == noted
