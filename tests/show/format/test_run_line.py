"""The line of facts about a run: how many steps were read how, and what watching each kind took."""

from __future__ import annotations

from neuraldbg.show.format.run_line import facts_line, spent

COST = {
    "budget": 0.01,
    "allowance_s": 2.0,
    "own_s": 3.0,
    "training_s": 100.0,
    "full_steps": 500,
    "sighted_steps": 400,
    "full_s": 2.0,
    "sighted_s": 0.8,
    "light_steps": 1500,
    "parts_s": {"light steps": 0.7, "writing": 0.1, "layers": 2.2},
}


def test_steps_of_which_only_the_layers_were_read_are_told_apart() -> None:
    assert spent(COST) == (
        "3.0 s on 1 min 40 s of training: 20 ms in each of 100 full steps, 2 ms in each of 400 of which only the "
        "layers were read, 0.13 ms in each of 1,500 light ones; allowed: 2 s at the start, then 1%"
    )


def test_without_such_steps_nothing_is_said_of_them() -> None:
    said = spent(COST | {"sighted_steps": 0, "full_s": 0.0, "sighted_s": 0.0})
    assert said.startswith(
        "3.0 s on 1 min 40 s of training: 4.4 ms in each of 500 full steps, 0.47 ms in each of 1,500 light"
    )
    assert "only the layers" not in said
    old = {name: value for name, value in COST.items() if not name.startswith(("sighted", "full_s"))}
    assert spent(old | {"full_steps": 500}) == said, "a run that an older version recorded"


def test_the_line_counts_both() -> None:
    run = {"steps": 2000, "overhead_ratio": 0.009, "coverage": {"cost": COST}}
    assert facts_line(run, " · ") == "2,000 steps · overhead 0.9% · 100 steps read in full, the layers of 400 more"
    run["coverage"] = {"cost": COST | {"sighted_steps": 0}}
    assert facts_line(run, " · ").endswith("500 steps read in full")
