"""Pictures of networks: what is in them, that nothing overlaps, and that a page needs nothing else."""

import itertools
import re
import struct
from xml.etree import ElementTree as ET

import pytest
from tests.neural.sample_files import CNN, MODELS, RESIDUAL, network

from neural import NeuralError, checked, parse
from neural.cli import main
from neural.visual import drawn
from neural.visual.data_flow import flow_of
from neural.visual.layered import placed

UNET = network(
    """
    Conv2D(4, 3, padding="same", name="first")
    MaxPooling2D()
    Conv2D(8, 3, padding="same", name="second")
    MaxPooling2D()
    Conv2D(16, 3, padding="same")
    UpSampling2D()
    Conv2D(8, 2, padding="same", name="up")
    Concatenate("second", "up")
    left: { Conv2D(8, 3, padding="same") Dropout(0.1) }
    right: { Conv2D(8, 1) }
    Add()
    UpSampling2D()
    Conv2D(4, 2, padding="same", name="last")
    Concatenate("first", "last")
    ResidualConnection { Conv2D(8, 3, padding="same") ResidualConnection { BatchNormalization() } } * 2
    Output(1, "sigmoid")""",
    "(16, 16, 1)",
)
CHAIN = network("Dense(8)\n" * 60, "(8,)")


def plan_of(text):
    return checked(parse(text))


def frames(spots, x=0.0, y=0.0):
    """Return the rectangles of boxes that stand beside each other, group by group."""
    here = [(spot.node.name, x + spot.x, y + spot.y, spot.width, spot.height) for spot in spots]
    groups = [here]
    for spot in spots:
        if spot.inner is not None:
            groups += frames(spot.inner.spots)
    return groups


@pytest.mark.parametrize("text", [*MODELS.values(), UNET, CHAIN], ids=[*MODELS, "unet", "chain"])
def test_no_boxes_of_a_picture_overlap_and_all_lie_within(text):
    place = placed(flow_of(plan_of(text)))
    for group in frames(place.spots):
        for one, other in itertools.combinations(group, 2):
            apart_x = one[1] + one[3] <= other[1] or other[1] + other[3] <= one[1]
            apart_y = one[2] + one[4] <= other[2] or other[2] + other[4] <= one[2]
            assert apart_x or apart_y, (one, other)
    for spot in place.spots:
        assert spot.x >= -0.01
        assert spot.x + spot.width <= place.width + 0.01
        assert spot.y >= -0.01
        assert spot.y + spot.height <= place.height + 0.01
        if spot.inner is not None:
            assert spot.inner.width <= spot.width
            assert spot.inner.height <= spot.height


@pytest.mark.parametrize("text", [UNET, CHAIN], ids=["unet", "chain"])
def test_no_edge_passes_through_a_box(text):
    place = placed(flow_of(plan_of(text)))
    for way in place.ways:
        for one, other in itertools.pairwise(way.points):
            if one[0] != other[0]:
                continue  # curves run in the gaps between rows, where no box is
            for spot in place.spots:
                beside = not spot.x < one[0] < spot.x + spot.width
                low, high = sorted((one[1], other[1]))
                assert beside or high <= spot.y + 0.01 or low >= spot.y + spot.height - 0.01, (way, spot)


def test_every_edge_of_the_plan_is_drawn_and_the_loss_reads_the_output():
    plan = plan_of(UNET)
    flow = flow_of(plan)
    read = {(name, layer.name) for layer in plan.layers for name in layer.inputs}
    assert set(flow.edges) == {*read, (plan.output, "loss")}
    assert len(placed(flow).ways) == len(flow.edges)


def test_a_residual_block_ends_with_a_sum_that_its_projection_reaches():
    blocks = [node for node in flow_of(plan_of(RESIDUAL)).nodes if node.kind == "block"]
    edges = [set(node.inner.edges) for node in blocks]
    assert any(("", "sum") in each for each in edges)
    for layer, found in zip([each for each in plan_of(RESIDUAL).layers if each.children], edges, strict=True):
        projection = layer.parameters.get("projection")
        if projection:
            assert (projection, "sum") in found
            assert ("", "sum") not in found


def test_a_chain_of_60_layers_is_no_tower():
    place = placed(flow_of(plan_of(CHAIN)))
    assert place.height < 1.5 * place.width


def test_an_svg_is_well_formed_and_says_names_shapes_and_parameters():
    root = ET.fromstring(drawn(plan_of(CNN), "svg"))
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words == [
        "Digits: 43,706 parameters",
        "input",
        "(28, 28, 1) of numbers",
        "Conv2D_1",
        "filters=8, kernel_size=(3, 3),",
        'activation="relu"',
        "(26, 26, 8) \N{MIDDLE DOT} 80 parameters",
        "MaxPooling2D_2",
        "pool_size=(2, 2)",
        "(13, 13, 8)",
        "Flatten_3",
        "(1352,)",
        "Dense_4",
        'units=32, activation="relu"',
        "(32,) \N{MIDDLE DOT} 43,296 parameters",
        "Dropout_5",
        "rate=0.25",
        "(32,)",
        "Output_6",
        'units=10, activation="softmax"',
        "(10,) \N{MIDDLE DOT} 330 parameters",
        "loss: sparse_categorical_crossentropy",
        "Adam, learning rate 0.002",
    ]


def test_a_page_holds_no_address_and_no_markup_of_the_file():
    text = network("""Dense(3, name="<script>alert(1)</script>") Dense(2, name='a & "b\x07')""", "(4,)")
    page = drawn(plan_of(text), "html")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x07" not in page
    addresses = re.findall(r"https?://[^\"' <]+|url\([^)]*\)", page)
    assert set(addresses) == {"http://www.w3.org/2000/svg", "url(#head)"}
    assert "prefers-color-scheme: dark" in page


def test_a_png_is_a_png_of_a_size_that_can_be_read():
    content = drawn(plan_of(UNET), "png")
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    wide, high = struct.unpack(">II", content[16:24])
    assert wide > 1000
    assert high > 1000


def test_a_png_needs_matplotlib(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(NeuralError, match=r"pip install 'neuraldbg\[plot\]'"):
        drawn(plan_of(CNN), "png")


def test_other_formats_and_endless_networks_are_refused():
    with pytest.raises(NeuralError, match="choose one of html, png, svg"):
        drawn(plan_of(CNN), "pdf")
    with pytest.raises(NeuralError, match="3,000 layers"):
        drawn(plan_of(network("Dense(2) * 3000", "(2,)")), "svg")


# ---------------------------------------------------------------- the command


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.neural").write_text(CNN, encoding="utf-8")
    return tmp_path


def test_the_command_writes_beside_the_file_and_clean_removes_it(model, capsys):
    assert main(["visualize", "a.neural"]) == 0
    assert main(["visualize", "a.neural", "-f", "svg"]) == 0
    assert main(["visualize", "a.neural", "-o", "mine.png"]) == 0
    assert (model / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (model / "mine.png").read_bytes().startswith(b"\x89PNG")
    assert main(["clean", "--yes"]) == 0
    assert sorted(each.name for each in model.iterdir()) == ["a.neural", "mine.png"]
    assert "a.html: the network Digits, 43,706 parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.neural", "-o", "a.pdf"], "name a file .html, .svg or .png"),
        (["a.neural", "-o", "no/such/folder.svg"], "could not be written"),
        (["b.neural"], "b.neural"),
    ],
)
def test_wrong_use_is_status_2(model, capsys, arguments, said):
    assert main(["visualize", *arguments]) == 2
    assert said in capsys.readouterr().err
