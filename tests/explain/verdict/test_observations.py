"""What is unusual beside sound trainings: told, ranked, no alarm, and nothing that a named cause is about."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.explain.run_builder import Build

from neuraldbg.errors import ConfigError
from neuraldbg.explain import Case, diagnose
from neuraldbg.explain.evidence.quantities import WORDS, quantities
from neuraldbg.explain.verdict import observations
from neuraldbg.nouns import Hypothesis, Observation, RunRecord


def with_inputs(scale: float = 1.0, offset: float = 0.0) -> Build:
    build = Build(steps=60)
    rms = float(np.hypot(scale, offset))
    read = {"mean": offset, "std": scale, "rms": rms, "min": offset - 3 * scale, "max": offset + 3 * scale}
    for stat, value in read.items():
        build.stat("input", "", stat, value)
    return build


def sound() -> list[Build]:
    """Sound trainings whose inputs differ in scale by a factor of two."""
    return [with_inputs(1 + i / 29, 0.1) for i in range(30)]


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> observations.Ordinary:
    text = observations.limits((Case(one.build()) for one in sound()), {"programs": 30})
    made = observations.parse(text)
    monkeypatch.setattr(observations, "measured", lambda: made)
    return made


def test_limits_are_the_extremes_of_sound_trainings(ordinary: observations.Ordinary) -> None:
    assert ordinary.trainings["input.rms"] == 30
    assert ordinary.low["input.rms"] == pytest.approx(1.0, rel=0.02)
    assert ordinary.high["input.rms"] == pytest.approx(2.0, rel=0.02)
    assert ordinary.median["input.rms"] == pytest.approx(1.5, rel=0.05)


def test_what_lies_far_beyond_is_told_and_is_no_alarm(ordinary: observations.Ordinary) -> None:
    run = with_inputs(40.0).build()
    found = diagnose(run)
    (one,) = [each for each in found.observations if each.quantity == "input.rms"]
    assert one.statement == "the root mean square of the inputs is 40"
    assert (round(one.limit, 1), one.trainings) == (2.0, 30)
    assert str(one) == f"the root mean square of the inputs is 40 (at most {one.limit:.4g} in 99% of sound trainings)"
    (low,) = [each for each in diagnose(with_inputs(0.01).build()).observations if each.quantity == "input.rms"]
    assert str(low).endswith(f" is 0.01 (at least {low.limit:.4g} in 99% of sound trainings)")
    assert found.to_dict()["observations"][0]["quantity"]


@pytest.mark.parametrize("scale", [1.0, 2.0, 5.5])
def test_what_is_usual_or_nearly_is_not(ordinary: observations.Ordinary, scale: float) -> None:
    assert not [one for one in diagnose(with_inputs(scale).build()).observations if one.quantity == "input.rms"]


def test_the_most_unusual_comes_first(ordinary: observations.Ordinary) -> None:
    found = diagnose(with_inputs(6.0, offset=3000.0).build()).observations
    assert [one.beyond for one in found] == sorted((one.beyond for one in found), reverse=True)
    assert {one.quantity for one in found} >= {"input.rms", "input.offset"}


def test_what_a_named_cause_is_about_is_left_to_it(ordinary: observations.Ordinary) -> None:
    case = Case(with_inputs(4000.0, offset=9000.0).build())
    of_data = [one for one in observations.observations(case, ()) if WORDS[one.quantity].category == "data"]
    assert of_data
    named = Hypothesis("unnormalised_inputs", "data", 0.9, "inputs that are not normalised")
    for one in observations.observations(case, [named]):
        assert WORDS[one.quantity].category != "data"
    doubtful = replace(named, confidence=0.3)
    assert observations.observations(case, [doubtful]) == observations.observations(case, ())


def test_the_limits_that_came_with_the_package_cover_what_they_were_measured_on() -> None:
    shipped = observations.measured()
    assert set(shipped.high) <= set(WORDS)
    assert len(shipped.high) > 15
    for id_ in shipped.high:
        assert 0 < shipped.low[id_] <= shipped.median[id_] <= shipped.high[id_]
        assert shipped.trainings[id_] >= observations.FEW
    assert shipped.provenance["command"]


@pytest.mark.parametrize("text", ["[]", "{}", json.dumps({"schema": observations.SCHEMA, "low": 3}), "{"])
def test_damaged_limits_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ordinary\.json is damaged"):
        observations.parse(text)


def test_every_quantity_is_positive_and_has_words() -> None:
    for build in (Build(steps=60), Build(steps=60).ruin(30), Build(steps=2)):
        for one in quantities(Case(build.build())):
            assert one.value > 0
            assert "{}" in WORDS[one.id].said


def test_a_record_with_layers_and_no_numbers_has_no_quantities() -> None:
    whole = Build(steps=60).build()
    bare = RunRecord(layout=whole.layout)
    assert quantities(Case(bare)) == []
    assert diagnose(bare).observations == ()


def test_an_observation_names_its_side() -> None:
    assert "at most 2" in str(Observation("x is 5", "input.rms", 5.0, 2.0, 30, 1.0))
    assert "at least 2" in str(Observation("x is 1", "input.rms", 1.0, 2.0, 30, 1.0))
