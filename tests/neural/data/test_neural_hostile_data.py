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
        (FLAT, {"x": np.zeros((1, 4)), "y": [0]}, "has 1 sample, and none is left"),
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
    assert "1 image cannot be read, and was left out" in told
    assert "broken.png" in told
    trained(network, samples, tmp_path)
    (folder / "b/circle").unlink()
    with pytest.raises(DataUnfit, match=r"has 6 images and no folders, .*folder for each class"):
        samples_for(network, data=folder / "b")


def picture(folder, values, name="1.png"):
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(folder / name)


def test_pictures_of_16_bits_are_not_scaled_by_their_own_brightness(tmp_path):
    network = plan("(4, 4, 1)", "Flatten() Output(2)")
    for place, value in enumerate((200, 2000, 65535)):
        picture(tmp_path / "a", np.full((4, 4), value, np.uint16), f"{place}.png")
        picture(tmp_path / "b", np.full((4, 4), value, np.int32), f"{place}.tif")
    samples = samples_for(network, data=tmp_path)
    for number in (0, 1):
        means = sorted(samples.arrays["x"][samples.arrays["y"] == number].mean(axis=(1, 2, 3)))
        assert means == pytest.approx([200 / 65535, 2000 / 65535, 1])
    assert "images are resized to 4x4 with 1 channel, and their values are from 0 to 1: 16 bits divided by 65535" in (
        samples.notes
    )
    picture(tmp_path / "b", np.full((4, 4), 70_000, np.int32), "3.tif")
    with pytest.raises(DataUnfit, match=r"3\.tif has values from 70000 to 70000: .* need them from 0 to 65535$"):
        samples_for(network, data=tmp_path)


def test_pictures_of_floats_are_taken_as_they_are_or_refused(tmp_path):
    network = plan("(4, 4, 3)", "Flatten() Output(2)")
    for place, value in enumerate((0.25, 0.5, 1.0)):
        picture(tmp_path / "a", np.full((6, 6), value, np.float32), f"{place}.tif")
        picture(tmp_path / "b", np.full((6, 6), int(value * 100), np.uint8), f"{place}.png")
    samples = samples_for(network, data=tmp_path)
    means = sorted(samples.arrays["x"][samples.arrays["y"] == 0].mean(axis=(1, 2, 3)))
    assert means == pytest.approx([0.25, 0.5, 1.0])
    assert any(note.endswith("from 0 to 1: floats as they are, 8 bits divided by 255") for note in samples.notes)
    picture(tmp_path / "b", np.full((4, 4), 7.5, np.float32), "3.tif")
    with pytest.raises(
        DataUnfit, match=r"3\.tif has values from 7\.5 to 7\.5: images of floats need them from 0 to 1$"
    ):
        samples_for(network, data=tmp_path)


# ---------------------------------------------------------------- targets that are none


@pytest.mark.parametrize(
    ("y", "loss", "error", "note"),
    [
        (np.random.default_rng(0).normal(size=(30, 3)), "sparse_categorical_crossentropy", "are not one-hot, and", ""),
        (np.ones((30, 3), int), "sparse_categorical_crossentropy", "for shares of classes take loss", ""),
        (np.eye(3)[Y], "sparse_categorical_crossentropy", "", "one-hot targets became numbers of classes"),
        (np.full((30, 3), -0.5), "categorical_crossentropy", "has targets from -0.5 to -0.5, and", ""),
        (np.ones((30, 3)), "categorical_crossentropy", "", "30 targets do not sum to 1, as shares of classes do"),
        (np.full((30, 3), 1 / 3, np.float16), "categorical_crossentropy", "", ""),
    ],
)
def test_rows_of_targets_are_shares_of_classes(tmp_path, y, loss, error, note):
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).random((30, 2)), y=y)
    network = plan("(2,)", "Output(3)", loss)
    if error:
        with pytest.raises(DataUnfit, match=error):
            samples_for(network, data=tmp_path / "a.npz")
        return
    notes = [each for each in samples_for(network, data=tmp_path / "a.npz").notes if "sum to" in each or "hot" in each]
    assert [each[: len(note)] for each in notes] == ([note] if note else [])


def test_a_single_class_of_a_binary_loss_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((30, 2)), y=np.ones(30))
    samples = samples_for(plan("(2,)", "Output(1)", "binary_crossentropy"), data=tmp_path / "a.npz")
    assert "all targets are 1: there is nothing to tell apart" in samples.notes


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


SAMPLE, NAMES = "it is a sample", "was taken as names"


@pytest.mark.parametrize(
    ("text", "count", "note"),
    [
        ("3,0,a\n4,2,b\n3,1,a\n3,2,b\n", 4, SAMPLE),
        ("5,3,cat\n4,2,dog\n1,3,cat\n", 3, SAMPLE),
        ("0,1,2\n3,1,0\n0,5,2\n", 3, SAMPLE),
        ("0.5,1,a\n3,1,b\n0,5,b\n", 3, SAMPLE),
        ("0,1,2\n3.5,1.0,0\n0.1,5.5,1\n", 2, NAMES),  # pandas's names
        ("0,1,2\n30,10,0\n20,50,1\n", 2, NAMES),
        ("2019,2020,country\n3,1,a\n0,5,b\n", 2, NAMES),
        ("0,1,label\n3,1,0\n0,5,2\n", 2, ""),
        ("a,b,c\n3,1,0\n0,5,2\n", 2, ""),
    ],
)
def test_the_first_row_of_a_table_is_a_sample_if_its_cells_could_be_data(tmp_path, text, count, note):
    (tmp_path / "a.csv").write_text(text)
    samples = samples_for(plan("(2,)", "Output(6)", split=0.0), data=tmp_path / "a.csv")
    assert len(samples.arrays["y"]) == count
    told = [each for each in samples.notes if SAMPLE in each or NAMES in each]
    assert [note in each for each in told] == ([True] if note else [])


def test_a_class_without_a_name_is_a_missing_value(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,label\n1,2,x\n1,2,\n")
    with pytest.raises(DataUnfit, match="the column 'label' has no value in line 3 of the file"):
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


def test_a_table_that_is_no_utf_8_is_read_as_latin_1(tmp_path):
    rows = "a,b,c,d,y\n" + "1,2,3,4,\u00e9t\u00e9\n4,3,2,1,hiver\n2,2,2,2,mai\n" * 4
    (tmp_path / "old.csv").write_bytes(rows.encode("latin-1"))
    (tmp_path / "new.csv").write_bytes(rows.encode())
    old, new = (samples_for(FLAT, data=tmp_path / name) for name in ("old.csv", "new.csv"))
    classes = "classes by number: hiver 0, mai 1, \u00e9t\u00e9 2"
    assert classes in old.notes
    assert classes in new.notes
    said = "the file is no UTF-8, and was read as Latin-1"
    assert said in old.notes
    assert said not in new.notes
