"""Other ways in which a cause shows than the one that its story tells, and near twins of them."""

from __future__ import annotations

import pytest
from tests.explain.builder import Build, falling
from tests.explain.stories_structure import adversarial, capacity_too_small

from neuraldbg.explain import diagnose


def noise_that_is_hardly_heard() -> Build:
    return adversarial(lambda step: 1e-4, noise=1e-3)


def code_of_one() -> Build:
    b = capacity_too_small().loss_term(kind="mse", classes=64, target={"std": 0.37, "min": 0.0, "max": 1.0})
    return b.loss(falling(400, 0.3, 0.06, 0.001)).loss(0.06, slice(200, None))


VARIANTS = {
    "noise_that_is_hardly_heard": (noise_that_is_hardly_heard, "mode_collapse", None, 0),
    "code_of_one": (code_of_one, "capacity_too_small", "fc2", 0),
}


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_variant_is_named(name):
    make, cause, layer, step = VARIANTS[name]
    found = diagnose(make().build())
    assert [h.cause for h in found.hypotheses[:1]] == [cause], [(h.cause, h.confidence) for h in found.hypotheses]
    top = found.hypotheses[0]
    assert (top.layer, top.step) == (layer, step)
    assert top.confidence >= 0.5
