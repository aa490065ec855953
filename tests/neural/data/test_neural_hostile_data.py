"""Data that are odd, broken or just beside what a network takes: brought to fit and said, or an error in words."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neural import checked, compile_plan, load, parse
from neural.data import memory, samples_for
from neural.errors import DataUnfit


def plan(shape, layers, loss="sparse_categorical_crossentropy", split=0.2, batch=16):
    settings = f"train {{ batch_size: {batch} validation_split: {split} }}"
    text = f'network Net {{ input: {shape} layers: {layers} loss: "{loss}" optimizer: Adam {settings} }}'
    return checked(parse(text, "net.neural"))


FLAT = plan("(4,)", "Output(3)")
BINARY = plan("(4,)", 'Dense(1, "sigmoid")', "binary_crossentropy")
Y = np.arange(30) % 3


@pytest.fixture
def found(tmp_path):
    """Return the data of arrays for a network, which has been trained on them."""

    def look(network, train=True, **arrays):
        np.savez(tmp_path / "given.npz", **arrays)
        samples = samples_for(network, data=tmp_path / "given.npz")
        if train:
            trained(network, samples, tmp_path)
        return samples

    return look


def trained(network, samples, tmp_path):
    samples.save(tmp_path / "data.npz")
    module = load(compile_plan(network))
    with np.load(tmp_path / "data.npz") as data:
        module.train(module.build_model(), data, epochs=1, device="cpu")


# ---------------------------------------------------------------- arrays that are brought to fit


def test_channels_that_come_first_are_moved_and_not_reshaped(found):
    network = plan("(5, 6, 3)", "Flatten() Output(3)")
    x = np.random.default_rng(0).random((30, 3, 5, 6)).astype(np.float32)
    samples = found(network, x=x, y=Y)
    assert (samples.arrays["x"] == x.transpose(0, 2, 3, 1)).all()
    assert samples.notes == ("the channels of (3, 5, 6) come last: (5, 6, 3)",)


def test_axes_that_were_swapped_are_no_matter_of_reshaping(found):
    with pytest.raises(DataUnfit, match=r"has the shape \(4, 6\), and the input of the network is \(6, 4\)"):
        found(plan("(6, 4)", "Flatten() Output(3)"), x=np.zeros((30, 4, 6)), y=Y)


@pytest.mark.parametrize("kind", [">f8", "longdouble", "uint64", "uint16", "bool", "float16"])
def test_every_type_of_numbers_is_one_that_torch_reads(found, kind):
    x = (np.arange(120).reshape(30, 4) % 2).astype(kind)
    samples = found(FLAT, x=x, y=Y.astype(">i4"))
    assert samples.arrays["x"].tolist() == x.tolist()
    assert samples.arrays["y"].tolist() == Y.tolist()


def test_labels_that_are_as_many_as_the_outputs_are_numbered_anew(found):
    samples = found(FLAT, x=np.zeros((30, 4)), y=10 * (1 + Y))
    assert samples.arrays["y"].tolist() == Y.tolist()
    assert samples.notes == ("labels count from 0: 10 became 0, 20 became 1, 30 became 2",)
    samples = found(BINARY, x=np.zeros((30, 4)), y=np.where(Y == 0, -1, 1))
    assert samples.arrays["y"].tolist() == [float(each != 0) for each in Y]
    assert samples.notes == ("labels -1 and 1 became 0 and 1",)


def test_one_hot_targets_become_numbers_of_classes(found):
    samples = found(FLAT, x=np.zeros((30, 4)), y=np.eye(3)[Y])
    assert samples.arrays["y"].tolist() == Y.tolist()


def test_without_targets_the_input_of_an_autoencoder_is_the_target(found):
    x = np.random.default_rng(0).random((30, 4))
    samples = found(plan("(4,)", "Dense(2) Dense(4)", "mse"), x=x)
    assert (samples.arrays["y"] == x).all()


def test_arrays_that_nothing_reads_are_named(found):
    samples = found(FLAT, x_train=np.zeros((30, 4)), y_train=Y, x_test=np.zeros(3), words=np.array(["a"]))
    assert samples.notes == (
        "x is the array 'x_train'",
        "y is the array 'y_train'",
        "arrays that are not used: x_test, words",
    )


def test_inputs_have_the_names_that_the_compiled_model_reads(tmp_path):
    for names in (("x", "y"), ("file", "allow_pickle")):
        text = (
            f"network Two {{ input: {{ {names[0]}: (2,) {names[1]}: (3,) }} "
            f'layers: Concatenate("{names[0]}", "{names[1]}") Output(1) loss: mse optimizer: Adam }}'
        )
        network = checked(parse(text, "two.neural"))
        trained(network, samples_for(network, dataset="synthetic"), tmp_path)


def test_a_sample_that_would_be_alone_in_a_batch_is_left_out(found):
    network = plan("(4,)", "Dense(4) BatchNormalization() Output(3)")
    samples = found(network, x=np.random.default_rng(0).random((22, 4)), y=np.arange(22) % 3)
    assert len(samples.arrays["y"]) < 22
    assert "alone in a batch" in samples.notes[0]


def test_samples_in_the_order_of_their_classes_are_noticed(found):
    samples = found(FLAT, x=np.zeros((30, 4)), y=np.sort(Y))
    assert samples.notes == ("the samples are sorted by class, and the last ones are for validation: shuffle them",)


# ---------------------------------------------------------------- arrays that cannot fit


@pytest.mark.parametrize(
    ("network", "arrays", "words"),
    [
        (
            plan("(4,)", "Embedding(5, 2) Flatten() Output(3)"),
            {"x": np.full((30, 4), 7), "y": Y},
            "its Embedding has those from 0 to 4: give it input_dim=8",
        ),
        (BINARY, {"x": np.zeros((30, 4)), "y": Y}, 'give Net Output(3, "softmax") and categorical_crossentropy'),
        (BINARY, {"x": np.zeros((30, 4)), "y": Y / 7 + 3}, "takes 0, 1 and what is between: scale them"),
        (FLAT, {"x": np.zeros((0, 4)), "y": np.zeros(0, int)}, "has 0 samples"),
        (FLAT, {"x": np.zeros((1, 4)), "y": [0]}, "has 1 samples, and none is left"),
        (FLAT, {"x": np.zeros((30, 4)), "y": np.full(30, 2**63, np.uint64)}, "too large for a class"),
        (FLAT, {"x": np.zeros((30, 4)), "y": Y - 100 * (Y == 0)}, None),
        (FLAT, {"x": np.zeros(30), "y": Y}, "give a sample an axis"),
    ],
)
def test_what_would_crash_the_training_is_an_error_before_it(found, network, arrays, words):
    if words is None:
        assert found(network, **arrays).arrays["y"].max() == 2
        return
    with pytest.raises(DataUnfit) as caught:
        found(network, train=False, **arrays)
    assert words in str(caught.value)


def test_what_needs_more_memory_than_allowed_is_refused_before_it_is_read(found, monkeypatch):
    monkeypatch.setattr(memory, "MOST", 1000)
    with pytest.raises(DataUnfit, match="give a file with fewer samples"):
        found(FLAT, x=np.zeros((30, 400)), y=Y)
    with pytest.raises(DataUnfit, match="give the network a smaller input"):
        samples_for(plan("(28, 28, 1)", "Flatten() Output(10)"), dataset="digits")


# ---------------------------------------------------------------- paths


def test_paths_that_lead_to_no_data(tmp_path):
    (tmp_path / "loop.npz").symlink_to(tmp_path / "loop.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    os.mkfifo(tmp_path / "pipe.csv")
    for name, words in (
        ("loop.npz", "a link that leads nowhere"),
        ("one.npz", "cannot be read as .npz: numpy.savez"),
        ("pipe.csv", "is no data"),
        ("a" * 300, "cannot be read: File name too long"),
    ):
        with pytest.raises(DataUnfit) as caught:
            samples_for(FLAT, data=tmp_path / name)
        assert words in str(caught.value)


def test_folders_of_images_as_they_are_found(tmp_path):
    network = plan("(4, 4, 1)", "Flatten() Output(2)")
    for name in ("train/ü", "train/b", "test/ü"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DataUnfit, match=r"has the folders test, train, which are no classes: give .*/train$"):
        samples_for(network, data=tmp_path)
    for number in range(10):
        deep = np.full((6, 6), 65535, np.uint16)
        Image.fromarray(deep).save(tmp_path / "train" / "üb"[number % 2] / f"{number}.png")
    folder = tmp_path / "train"
    (folder / "b/broken.png").write_bytes((folder / "b/1.png").read_bytes()[:40])
    (folder / "b/circle").symlink_to(folder)
    (folder / "notes.txt").write_text("mine")
    samples = samples_for(network, data=folder)
    assert samples.arrays["x"].min() == 1.0, "16 bits are white, too"
    assert len(samples.arrays["y"]) == 10
    told = " ".join(samples.notes)
    assert "2 files that are no images were left out" in told
    assert "notes.txt" in told
    assert "1 images cannot be read, and were left out" in told
    assert "broken.png" in told
    trained(network, samples, tmp_path)
    (folder / "b/circle").unlink()
    with pytest.raises(DataUnfit, match=r"has 6 images and no folders, .*folder for each class"):
        samples_for(network, data=folder / "b")


# ---------------------------------------------------------------- tables

ROWS = "\n".join(f"{place},{place % 7},{place % 3}" for place in range(30)) + "\n"
TWO = plan("(2,)", "Output(3)")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (ROWS.replace(",", ";").replace("0;0;0", "a;b;label\n0;0;0", 1), "the columns are separated by semicolons"),
        ("a,b,c\n" + ROWS, "the targets are the column 'c', the last one"),
        (
            ",a,b,y\n" + "".join(f"{place},{row}\n" for place, row in enumerate(ROWS.split())),
            "the column '' counts the rows, and is left out",
        ),
        (ROWS.replace("0,0,0", "0.5,0,0", 1), "the first row has numbers and no names"),
    ],
)
def test_tables_as_programs_write_them(tmp_path, text, note):
    (tmp_path / "a.csv").write_text(text)
    samples = samples_for(TWO, data=tmp_path / "a.csv")
    assert samples.arrays["x"].shape == (30, 2)
    assert samples.arrays["y"].tolist() == Y.tolist()
    assert any(note in each for each in samples.notes)
    trained(TWO, samples, tmp_path)


def test_a_class_without_a_name_is_a_missing_value(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,label\n1,2,x\n1,2,\n")
    with pytest.raises(DataUnfit, match="the column 'label' has 1 missing values, the first in row 2"):
        samples_for(TWO, data=tmp_path / "a.csv")


# ---------------------------------------------------------------- made-up data


@pytest.mark.parametrize(
    ("activation", "loss", "low", "high"),
    [
        ("softplus", "poisson", 0, np.inf),
        ("softmax", "kl_divergence", 0, 1),
        ("tanh", "mse", -1, 1),
        ("sigmoid", "mse", 0, 1),
        ("linear", "hinge", -1, 1),
    ],
)
def test_made_up_targets_are_what_the_loss_and_the_output_can_give(tmp_path, activation, loss, low, high):
    network = plan("(6,)", f'Dense(2, "{activation}")', loss)
    samples = samples_for(network, dataset="synthetic")
    y = samples.arrays["y"]
    assert low <= y.min() < y.max() <= high
    trained(network, samples, tmp_path)


def test_made_up_words_of_a_language_model_stay_within_memory():
    network = plan("(64,)", "Embedding(20000, 8) Output(20000)", "categorical_crossentropy")
    samples = samples_for(network, dataset="synthetic")
    assert len(samples.arrays["y"]) * 64 * 20000 * 8 <= memory.MOST // 4
    assert samples.arrays["x"].min() >= 1
    assert samples.arrays["x"].max() < 20000
    assert any("samples are made, as each is large" in note for note in samples.notes)


def test_the_example_of_the_page_runs():
    page = Path(__file__).resolve().parents[3] / "docs" / "neural.md"
    (example,) = re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(example, {}, "neural.md", None, 0)
    result = doctest.DocTestRunner().run(test, out=told.append)
    assert (result.attempted, told) == (6, [])
