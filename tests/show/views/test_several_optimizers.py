"""Layers that are not read in every step, and layers that no gradient reaches: trained GANs, in each view of layers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.show.small_gan import trained_gan

from neuraldbg.show.views import view
from neuraldbg.show.views.crash import picture
from neuraldbg.show.views.view import Choice


@pytest.fixture(scope="module")
def sound():
    dbg = trained_gan(cut=False)
    return dbg.record(), dbg.diagnose()


@pytest.fixture(scope="module")
def cut():
    dbg = trained_gan(cut=True)
    return dbg.record(), dbg.diagnose()


def roles(shown):
    return {node.layer: node.role for node in shown.nodes if node.layer}


def test_a_generator_without_gradients_is_not_healthy(cut):
    shown = view("dataflow", *cut)
    mine = {layer: role for layer, role in roles(shown).items() if layer.startswith("gen.")}
    assert mine.pop("gen.out") == "guilty"
    assert set(mine.values()) == {"untrained"}
    assert {node.detail for node in shown.nodes if node.layer == "gen.fc"} == {"Linear; no gradient"}
    others = {role for layer, role in roles(shown).items() if layer.startswith("disc.")}
    assert others == {"healthy"}


def test_both_models_of_a_sound_gan_are_healthy(sound):
    assert set(roles(view("dataflow", *sound)).values()) == {"healthy"}


def test_the_flow_shows_the_last_reading_of_each_layer_and_says_its_step(sound):
    run, diagnosis = sound
    shown = view("flow", run, diagnosis)
    last = dict(zip(shown.layers, shown.bars[-1].values, strict=True))
    for layer, value in last.items():
        rows = run.layout.rows("param_grad", layer)
        readings = [run.series(row, "rms") for row in rows]
        assert {int(one.steps[-1]) for one in readings} == {run.steps - 1 if layer.startswith("gen") else run.steps - 2}
        totals = [run.series(row, "total").values[-1] for row in rows]
        assert value == pytest.approx(
            np.sqrt(sum(n * one.values[-1] ** 2 for n, one in zip(totals, readings, strict=True)))
        )
    assert f"Of disc.fc, disc.head the last reading is of step {run.steps - 2}" in shown.notes


def test_a_layer_that_was_never_read_is_said_to_be_not_read(cut):
    shown = view("flow", *cut)
    assert shown.step == 1
    lost = {layer for layer, value in zip(shown.layers, shown.bars[-1].values, strict=True) if np.isnan(value)}
    assert lost == {"gen.fc", "gen.out"}
    assert shown.missing == "not read"
    assert "Not read in any step: gradient of the parameters of gen.fc, gen.out" in shown.notes
    assert "Of disc.fc, disc.head the last reading is of step 0" in shown.notes


def test_units_are_those_of_the_last_reading_of_each_layer():
    dbg = trained_gan(cut=False, rounds=60)  # units are judged over 300 rows of 20 steps
    run, diagnosis = dbg.record(), dbg.diagnose()
    shown = view("units", run, diagnosis)
    assert shown.layers == ("gen.act", "disc.act")
    assert np.isfinite(shown.bars[0].values).all()
    assert f"Of gen.act, disc.act the last reading is of step {run.steps - 2}" in shown.notes


def test_gradients_that_were_never_read_take_no_memory(cut, sound):
    for (run, diagnosis), known in ((cut, False), (sound, True)):
        shown = view("memory", run, diagnosis, Choice(layer="gen.fc"))
        gradients = next(bar for bar in shown.bars if bar.name == "their gradients")
        assert bool(np.isfinite(gradients.values).all()) is known
        assert shown.missing == "none was read"
        assert ("No gradient was read of gen.fc, gen.out" in shown.notes) is not known


def test_the_crash_picture_says_of_which_layers_no_gradient_was_read(cut, sound):
    assert picture(*cut).missing == "No gradient was read of gen.fc, gen.out"
    assert picture(*sound).missing == ""
    assert {curve.layer for curve in picture(*cut).gradients} == {"disc.fc", "disc.head"}
