"""Views of time and memory against hand-made facts, and those of weights and stability against plain computations."""

from __future__ import annotations

import numpy as np
import pytest
from tests.explain.run_builder import Build
from tests.show.made_profiles import HEALTHY, MB, deep, footprint, growth, profiled, timing

from neuraldbg.nouns import column
from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.show.format.unit_amounts import amount, per_cent
from neuraldbg.show.views import view
from neuraldbg.show.views.memory import whole_note
from neuraldbg.show.views.stability import WINDOW, usual
from neuraldbg.show.views.timed import timing_of, work_note
from neuraldbg.show.views.view import Choice

LAYERS = ("fc1", "act1", "fc2")


def shown(name, run, **choice):
    return view(name, run, HEALTHY, Choice(**choice))


def by_name(bars):
    return {bar.name: bar.values.tolist() for bar in bars.bars}


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_profile_holds_the_own_times_in_the_order_of_the_calls():
    bars = shown("profile", profiled(LAYERS))
    assert bars.layers == LAYERS
    assert by_name(bars) == {"forward": pytest.approx([1, 2, 3]), "backward": pytest.approx([2, 4, 6])}
    assert (bars.scale.unit, bars.stacked) == ("ms", True)
    assert bars.sums.tolist() == pytest.approx([3, 6, 9])
    # A step takes 5 times the forward passes of 6 ms.
    assert bars.words == ("3 ms, 10%", "6 ms, 20%", "9 ms, 30%")
    said = " ".join(bars.notes)
    assert "A step takes 30 ms: 30% data loader, 20% forward, 40% backward, 5.0% optimizer, 5.0% other" in said
    assert "18 MFLOP in a step, 1 GFLOP/s in forward and backward passes: 2.0% of the 50 GFLOP/s" in said
    assert "Typical of 4 sampled steps (steps 3 to 40)" in said


def test_one_layer_and_what_is_inside_of_it():
    run = profiled(("block.a", "block.b", "fc1"))
    assert shown("profile", run, layer="block.b").layers == ("block.b",)
    assert shown("timeline", run, layer="block.a").rows == ("one step", "block.a")
    # The others still take their time: the chosen layer begins where it did.
    whole, alone = shown("timeline", run), shown("timeline", run, layer="block.b")
    assert [(s.start, s.end) for s in alone.spans if s.row == 1] == [
        (s.start, s.end) for s in whole.spans if s.row == 2
    ]


def test_of_many_layers_the_costliest_are_shown_and_the_rest_is_said():
    paths = deep(300)
    bars = shown("profile", profiled(paths), rows=20)
    assert bars.layers == paths[-20:]
    own = 3e-3 * np.arange(1, 301)
    rest = per_cent(own[:-20].sum(), timing(paths)["step_s"])
    assert f"20 of 300 layers are shown, the costliest: the others take {rest}" in bars.notes


def test_the_parts_of_a_step():
    bars = shown("phases", profiled(LAYERS))
    assert bars.layers == ("data loader", "forward", "backward", "optimizer", "other")
    assert by_name(bars) == {"time": pytest.approx([9, 6, 12, 1.5, 1.5])}
    assert bars.words[0] == "9 ms, 30%"
    assert not bars.of_layers


@pytest.mark.parametrize("changes", [{"steps": 1}, {"usual_s": 0.001}])
def test_parts_of_steps_that_are_no_ordinary_ones_are_not_drawn(changes):
    fact = timing(LAYERS, **changes)
    bars = shown("phases", Build().layer("fc1", "Linear").fact("timing", 9, **fact).build())
    assert not bars.layers
    assert "are not told" in bars.empty
    assert "of the" not in work_note(timing_of(Build().fact("timing", 9, **fact).build()))


@pytest.mark.parametrize("changes", [{"steps": 1}, {"usual_s": 0.001}])
def test_no_share_is_told_of_steps_that_are_no_ordinary_ones(changes):
    build = Build().fact("timing", 9, **timing(deep(40), **changes))
    for path in deep(40):
        build.layer(path, "Linear")
    run = build.build()
    caution = timing_of(run).caution()
    for name in ("timeline", "profile"):
        drawn = shown(name, run, rows=10)
        assert "%" not in " ".join((*drawn.words, *drawn.notes)), "seconds are told, and no share"
        assert any(" layers are shown, the costliest: the others take " in note for note in drawn.notes)
        assert drawn.notes[0].startswith(caution)


def nested():
    """A container with two layers in it, and one after it: own times 1, 2, 3 and 4 ms forward, twice that backward."""
    fact = timing(("net", "net.a", "net.b", "head"), data_s=None)
    return Build().layer("net.a", "Linear").layer("net.b", "Linear").layer("head", "Linear").fact("timing", 9, **fact)


def test_a_timeline_lays_layers_inside_of_one_another_and_backward_in_reverse():
    shows = shown("timeline", nested().build())
    assert shows.rows == ("one step", "net", "net.a", "net.b", "head")
    assert shows.layers == (None, "net", "net.a", "net.b", "head")
    laid = {
        (shows.rows[span.row], shows.parts[span.part]): pytest.approx((span.start, span.end)) for span in shows.spans
    }
    assert laid == {
        ("one step", "forward"): (0, 10),
        ("net", "forward"): (0, 6),
        ("net.a", "forward"): (1, 3),
        ("net.b", "forward"): (3, 6),
        ("head", "forward"): (6, 10),
        ("one step", "backward"): (10, 30),
        ("head", "backward"): (10, 18),
        ("net", "backward"): (18, 30),
        ("net.b", "backward"): (18, 24),
        ("net.a", "backward"): (24, 28),
        ("one step", "optimizer"): (30, 32.5),
        ("one step", "other"): (32.5, 35),
    }
    assert any("start times were not measured" in note for note in shows.notes)


def test_a_layer_that_a_file_names_twice_is_laid_once():
    fact = timing(("a", "a", "a.b", "a.b", "a.b.c", "a.b.c"))
    spans = shown("timeline", Build().fact("timing", 9, **fact).build()).spans
    assert len(spans) == 5 + 2 * 3


@pytest.mark.parametrize("name", ["profile", "phases", "timeline", "memory_over_time", "memory_peak"])
def test_a_run_that_was_not_measured_says_how_to_measure_it(name):
    bare = shown(name, profiled(parts=()))
    assert "neuraldbg run --profile" in bare.empty
    timed = shown(name, profiled(parts=("timing",)))
    assert bool(timed.empty) == name.startswith("memory")


def test_layers_without_a_backward_pass_have_none():
    fact = timing(LAYERS)
    for layer in fact["layers"]:
        layer |= {"backward_s": None, "own_backward_s": None}
    bars = shown("profile", Build().fact("timing", 9, **fact, backward_split=False).build())
    assert [bar.name for bar in bars.bars] == ["forward"]
    assert any("could not be split" in note for note in bars.notes)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_measured_memory_is_shown_by_what_it_holds():
    bars = shown("memory", profiled(LAYERS))
    assert bars.layers == LAYERS
    assert by_name(bars) == {
        "parameters": [1, 0, 3], "gradients": [1, 0, 3], "optimizer state": [2, 0, 6], "outputs": [0.5, 1, 1.5],
    }  # fmt: skip
    assert (bars.scale.unit, bars.step, bars.words) == ("MiB", 7, ("4.5 MiB", "1 MiB", "13.5 MiB"))
    said = " ".join(bars.notes)
    assert "Peak of the step: 21 MiB, backward of 'fc1', 2.1% of 1,000 MiB (measured by tensors of the step)" in said
    assert (
        "Together: 4 MiB parameters, 4 MiB gradients, 8 MiB optimizer state; "
        "3 MiB more are held when the backward pass begins" in said
    )


def test_outputs_that_were_not_measured_are_no_zero_and_the_sizes_that_were_read_are_drawn():
    unknown = [{"layer": path, "parameters": MB, "gradients": MB, "optimizer": MB} for path in LAYERS]
    build = Build().fact("footprint", 7, **{**footprint(LAYERS), "layers": unknown, "activations": None, "peak": None})
    run = build.build()
    bars = shown("memory", run)
    assert [bar.name for bar in bars.bars] == ["parameters", "their gradients", "outputs of a step"], (
        "sizes that were read"
    )
    known = run.known(FootprintFact)
    assert known is not None
    assert whole_note(known).endswith("; outputs not measured")


def test_memory_falls_back_on_the_sizes_that_were_read():
    bars = shown("memory", profiled(LAYERS, parts=("timing",)))
    weights = 4 * (64 * 64 + 64)
    assert dict(zip(bars.layers, by_name(bars)["parameters"], strict=True))["fc1"] == weights
    assert "not the memory that the allocator holds" in bars.notes[0]


def test_peaks_of_layers_beside_that_of_the_step():
    fact = footprint(LAYERS)
    bars = shown("memory_peak", profiled(LAYERS))
    assert by_name(bars) == {
        "forward": pytest.approx([one["peak"] / MB for one in fact["layers"]]),
        "backward": pytest.approx([one["backward_peak"] / MB for one in fact["layers"]]),
    }
    assert bars.limits == (("peak of the step", 21.0),)


def test_memory_over_time_in_the_unit_that_fits_with_its_growth():
    run = profiled(LAYERS, steps=40)
    lines = shown("memory_over_time", run)
    resident, device = lines.lines
    assert resident.values.tolist() == pytest.approx((300 + 1.6 * np.arange(40)).tolist())
    assert set(device.values.tolist()) == {20.0}
    assert lines.y.unit == "MiB"
    assert lines.notes == ("Resident memory grew by 1.6 MiB a step, from step 0 to 120",)
    still = Build().fact("growth", 50, **growth(resident_per_step=-5.0)).scalar("resident", MB).build()
    assert shown("memory_over_time", still).notes == ()
    value = {"counts": 0, "first": 0, "last": 0, "slope_first": 40, "slope_last": 900, "survivors": []}
    little = Build().fact("growth", 900, **growth(**value, resident_per_step=40.0)).scalar("resident", MB).build()
    assert shown("memory_over_time", little).notes == ()
    much = Build().fact("growth", 900, **growth(**value, resident_per_step=MB)).scalar("resident", MB).build()
    assert shown("memory_over_time", much).notes == ("Resident memory grew by 1 MiB a step, from step 40 to 900",)


# --- weights and stability -------------------------------------------------------------------------------------------


def test_weights_are_shown_beside_their_size_at_the_start():
    build = Build(steps=30)
    rms = {name: build.table[:, build.row("param", "fc1", name), column("rms")] for name in ("weight", "bias")}
    rms["weight"][:] = 0.5 * np.linspace(1, 3, 30)
    rms["bias"][:] = 0.1
    build.stat("param", "fc2", "rms", 0.0, name="weight").stat("param", "fc2", "rms", 0.0, name="bias")
    lines = shown("weight_growth", build.build())
    (line,) = [line for line in lines.lines if line.layer == "fc1"]
    norm = np.sqrt(rms["weight"] ** 2 * 64 * 64 + rms["bias"] ** 2 * 64)
    np.testing.assert_allclose(line.values, norm / norm[0], rtol=1e-5)
    assert "fc2" not in [line.layer for line in lines.lines]
    assert any("start at 0: fc2" in note for note in lines.notes)
    assert any(
        note.startswith(f"Changed most by the last reading: fc1 {norm[-1] / norm[0]:.3g} times") for note in lines.notes
    )
    # The start is that of the run, not of what is zoomed into.
    part = shown("weight_growth", build.build(), first=20)
    (zoomed,) = [line for line in part.lines if line.layer == "fc1"]
    np.testing.assert_allclose(zoomed.values, (norm / norm[0])[20:], rtol=1e-5)


def test_the_usual_size_is_the_median_of_the_values_before():
    values = np.random.default_rng(0).random(80)
    found = usual(values)
    assert np.isnan(found[:5]).all()
    for i in range(5, 80):
        assert found[i] == np.median(values[max(0, i - WINDOW) : i])


def test_spikes_of_the_gradient_norm_are_counted_and_the_largest_is_named():
    build = Build(steps=100).scalar("grad_norm", 1.0).scalar("grad_norm", 4.0, 40).scalar("grad_norm", 12.0, 70)
    lines = shown("stability", build.build())
    (norm,) = [line for line in lines.lines if line.name == "gradient norm"]
    assert dict(zip(norm.steps.tolist(), norm.values.tolist(), strict=True))[70] == 12
    assert any("3 times its usual size or more in 2 steps: the most 12 times, in step 70" in one for one in lines.notes)
    calm = shown("stability", Build(steps=100).build())
    assert any("never 3 times its usual size" in note for note in calm.notes)


def test_a_loss_that_swings_is_told_from_one_with_noise():
    t = np.arange(200)
    swinging = Build(steps=200).loss(1 + 0.2 * (-1.0) ** t + 0.01 * np.random.default_rng(0).normal(size=200)).build()
    noisy = Build(steps=200).loss(1 + 0.1 * np.random.default_rng(0).normal(size=200)).build()
    assert any("The loss swings" in note for note in shown("stability", swinging).notes)
    assert not any("swings" in note for note in shown("stability", noisy).notes)
    noise = next(note for note in shown("stability", noisy).notes if note.startswith("The loss changes by"))
    # Half of the differences of two normal numbers of deviation 0.1 are larger than 0.6745 * 0.1 * sqrt(2).
    assert float(noise.split("by ")[1].split("%")[0]) == pytest.approx(9.5, rel=0.2)


def test_gradients_that_point_against_each_other_are_said():
    back = Build(steps=60).scalar("gradient_turn", -0.6).build()
    along = Build(steps=60).scalar("gradient_turn", 0.6).build()
    assert any("point against each other in 100%" in note for note in shown("stability", back).notes)
    assert not any("against each other" in note for note in shown("stability", along).notes)


# --- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (0.0123, "s", "12.3 ms"), (2.0, "s", "2 s"), (1.2e-5, "s", "12 us"), (999.0, "B", "999 B"),
        (4.2 * 2**20, "B", "4.2 MiB"), (0, "B", "0 B"), (1.5e12, "FLOP/s", "1.5 TFLOP/s"), (None, "s", ""),
        (0.9999, "s", "1 s"), (1e9 - 0.01, "FLOP/s", "1 GFLOP/s"), (2.0**20 - 1, "B", "1 MiB"), (0.0, "s", "0 us"),
    ],
)  # fmt: skip
def test_amounts_are_written_in_the_unit_that_fits(value, kind, said):
    assert amount(value, kind) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (3, 10, "30%"), (0.5, 10, "5.0%"), (1e-4, 10, "<0.1%"), (0, 10, "0%"), (None, 10, ""), (1, None, ""),
        (1, 0, ""),
    ],
)  # fmt: skip
def test_shares_are_written_in_per_cent(part, whole, said):
    assert per_cent(part, whole) == said
