"""Which pictures stand first, and that a picture is the same whenever and wherever it is drawn."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from neuraldbg.nouns import Diagnosis, Event, Hypothesis
from neuraldbg.show.report.describe import described
from neuraldbg.show.report.pictures import pictures
from neuraldbg.show.report.svg import DRAWN, NAMES, THEMES, inline
from neuraldbg.show.views import VIEWS, view
from neuraldbg.show.views.view import Choice


def leading(run, kinds, category="architecture", explains=None, layer=None):
    events = tuple(Event(kind, "loss", i, i + 5, "first") for i, kind in enumerate(kinds))
    cause = Hypothesis("x", category, 0.9, "x", explains=kinds if explains is None else explains, layer=layer)
    front, rest = pictures(run, Diagnosis("failing", "x", events=events, hypotheses=(cause,)))
    return [(one.view.name, one.title, one.why) for one in front], rest


def test_pictures_of_what_the_cause_explains_stand_first(doomed, quiet):
    front, _ = leading(quiet.run, ("dead_units",))
    assert [(name, why) for name, _, why in front] == [
        ("units", "For cause 1: dead units in first from step 0"),
        ("heatmap", "For cause 1: dead units in first from step 0"),
    ]
    assert front[1][1].startswith("Dead")
    front, _ = leading(doomed.run, ("vanishing_gradients",))
    assert [name for name, _, _ in front] == ["flow", "heatmap"]
    front, _ = leading(doomed.run, ("loss_plateau",), "loss", layer="first")
    assert [name for name, _, _ in front] == ["loss", "series"]
    front, _ = leading(doomed.run, ("nonfinite_gradient",))
    assert [name for name, _, _ in front] == ["heatmap"]
    front, _ = leading(doomed.run, ("update_ratio_high", "loss_spike"), "optimisation")
    assert [name for name, _, _ in front] == ["updates", "loss"]


def test_what_no_cause_explains_is_said_and_does_not_lead(quiet):
    front, rest = leading(quiet.run, ("loss_plateau", "dead_units"), explains=("loss_plateau",))
    assert [why for _, _, why in front] == ["For cause 1: loss plateau in first from step 0"]
    (units,) = [one for one in rest if one.view.name == "units"]
    assert units.why == "Not explained by a cause: dead units in first from step 1"


def test_every_view_is_somewhere(doomed):
    front, rest = pictures(doomed.run, doomed.diagnosis)
    names = {one.view.name for one in (*front, *rest)}
    assert names == {member.name for member in VIEWS} - {"chain"}
    assert len(front) == 5
    assert not any(one.view.empty for one in front)


def test_two_optimizers_of_causes_do_not_hide_each_other(quiet):
    causes = (
        Hypothesis("a", "loss", 0.6, "a", explains=("loss_spike",)),
        Hypothesis("b", "architecture", 0.4, "b", explains=("dead_units",)),
        Hypothesis("c", "architecture", 0.1, "c", explains=("vanishing_gradients",)),
    )
    events = tuple(Event(kind, "loss", 3, 4) for kind in ("loss_spike", "dead_units", "vanishing_gradients"))
    front, _ = pictures(quiet.run, Diagnosis("failing", "x", events=events, hypotheses=causes))
    assert [(one.view.name, one.why[:11]) for one in front] == [
        ("loss", "For cause 1"),
        ("units", "For cause 2"),
        ("heatmap", "For cause 2"),
    ]


def test_the_words_for_a_heat_map_have_its_extreme(doomed):
    shown = view("heatmap", doomed.run, doomed.diagnosis, Choice(kind="param_grad", stat="norm"))
    layer, column = np.unravel_index(np.nanargmax(shown.values), shown.values.shape)
    largest = float(np.nanmax(shown.values))
    said = re.search(r"largest value, ([\d.,e+-]+), is in (.+?) at step (\d+)", described(shown)).groups()
    assert float(said[0].replace(",", "")) == pytest.approx(largest, rel=0.01)
    assert said[1:] == (shown.layers[layer], str(shown.steps[column]))


def test_the_words_for_a_line_have_its_ends_and_its_top(quiet):
    loss = quiet.run.scalar("loss").values
    said = re.search(
        r"Loss: ([\d.e-]+) at step 0, ([\d.e-]+) at step 149", described(view("loss", quiet.run, quiet.diagnosis))
    )
    assert [float(one) for one in said.groups()] == pytest.approx([loss[0], loss[-1]], rel=0.01)


def test_a_picture_has_no_colour_of_its_own_but_those_of_cells(doomed):
    for name in ("loss", "flow", "updates", "units"):
        svg = inline(view(name, doomed.run, doomed.diagnosis), "a")
        assert set(re.findall(r"#[0-9a-fA-F]{6}\b", svg)) == set(), name
        used = set(re.findall(r"var\((--[\w-]+)\)", svg))
        assert {"--ground", "--ink"} <= used <= set(THEMES["light"]) == set(THEMES["dark"])


def test_every_meaning_has_a_shade_of_its_own():
    assert len(NAMES) == len(set(NAMES.values())) == len(THEMES["light"])
    for colour, name in NAMES.items():  # nobody sees the difference
        apart = [abs(int(colour[i : i + 2], 16) - int(THEMES["light"][name][i : i + 2], 16)) for i in (1, 3, 5)]
        assert max(apart) <= 3
    assert DRAWN.cells == "viridis"


def test_two_pictures_share_no_id(doomed):
    shown = view("updates", doomed.run, doomed.diagnosis)
    first, second = (ET.fromstring(inline(shown, ident)) for ident in ("a", "b"))
    ids = [{e.get("id") for e in root.iter() if e.get("id")} for root in (first, second)]
    assert all(ids)
    assert not ids[0] & ids[1]


@pytest.mark.slow
def test_the_same_bytes_in_another_process(doomed, tmp_path):
    code = (
        "import sys, pickle; run, diagnosis = pickle.load(open(sys.argv[1], 'rb'))\n"
        "from neuraldbg.saved import backgrounds\n"
        "from neuraldbg.show.report.write import report\n"
        "open(sys.argv[2], 'w', encoding='utf-8').write(report(run, diagnosis, 'html', backgrounds(diagnosis)))\n"
    )
    (tmp_path / "run").write_bytes(pickle.dumps((doomed.run, doomed.diagnosis)))
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run"), str(tmp_path / "out")], check=True)
    assert (tmp_path / "out").read_text(encoding="utf-8") == doomed.html


def test_layers_of_a_crowd_are_counted(doomed):
    events = tuple(Event("dead_units", "activation_regime", 2, 9, f"layer{i}") for i in range(9))
    cause = replace(doomed.diagnosis.hypotheses[0], category="architecture", explains=("dead_units",), layer=None)
    front, _ = pictures(doomed.run, Diagnosis("failing", "x", events=events, hypotheses=(cause,)))
    assert front[0].why == "For cause 1: dead units in layer0, layer1, layer2 and 6 more from step 2"


def test_a_run_without_a_cause_shows_how_it_went_and_what_was_seen(quiet):
    front, _ = pictures(quiet.run, quiet.diagnosis)
    assert [(one.view.name, one.why) for one in front] == [("loss", ""), ("series", ""), ("heatmap", "")]
    seen = Diagnosis("healthy", "x", events=(Event("dead_units", "activation_regime", 2, 9, "relu"),))
    front, _ = pictures(quiet.run, seen)
    assert [one.view.name for one in front] == ["loss", "series", "heatmap", "units", "heatmap"]
    assert front[3].why == "Not explained by a cause: dead units in relu from step 2"
