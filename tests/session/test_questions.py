"""One truth and one numbering: whatever a user's loop is like, all questions agree, live and of the saved run."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.families import some
from torch import nn
from torch.nn import functional as F

import neuraldbg
from neuraldbg import Event, Hypothesis, NeuralDbg, Run, TrainingHalted, TriggerEngine
from neuraldbg.errors import UnknownName
from neuraldbg.nouns import EVENT_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def net(width: int = 16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))


def data(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    xs = [torch.randn(32, 8) for _ in range(steps)]
    return [(x, x.sum(1, keepdim=True)) for x in xs]


def train(
    dbg: NeuralDbg,
    model: nn.Module,
    *,
    lr: float = 0.05,
    steps: int = 40,
    loss: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor] = lambda out, y, _: F.mse_loss(out, y),
    number: Callable[[int], int | None] = lambda _: None,
    asked: Callable[[int], None] = lambda _: None,
) -> None:
    """A loop; ``number`` is the loop's own number of a step, for ``capture_step``."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    for step, (x, y) in enumerate(data(steps)):
        optimizer.zero_grad()
        loss(model(x), y, step).backward()
        optimizer.step()
        own = number(step)
        if own is not None:
            dbg.capture_step(own)
        asked(step)


class TwoHeads(nn.Module):
    """One head gets a gradient that is exactly zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.used, self.idle = nn.Linear(8, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.body(x))
        return self.used(h) + 0 * self.idle(h)


def healthy(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, steps=60)


def resumed(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, number=lambda step: 1000 + step)


def epochs(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, number=lambda step: step % 10)


def broken_in_an_epoch(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, loss=nan_from_20, number=lambda step: step % 15)


def every_tenth(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, number=lambda step: step if step % 10 == 9 else None)


def nan(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, loss=nan_from_20)


def nan_resumed(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, loss=nan_from_20, number=lambda step: 500 + step)


def zero(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, steps=56, loss=lambda out, y, _: F.mse_loss(0 * out, y))


def huge(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, lr=1e-9, loss=lambda out, y, _: F.mse_loss(out, 1e7 * y))


def diverging(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, lr=5.0, steps=12)


def frozen(dbg: NeuralDbg, model: nn.Module) -> None:
    assert isinstance(model, nn.Sequential)
    for p in model[0].parameters():
        p.requires_grad_(False)
    train(dbg, model)


def empty(dbg: NeuralDbg, model: nn.Module) -> None:
    """No step at all."""


def few(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, steps=2)


def raises(dbg: NeuralDbg, model: nn.Module) -> None:
    def stop(step: int) -> None:
        if step == 7:
            message = "a bug of the user's"
            raise ZeroDivisionError(message)

    train(dbg, model, asked=stop)


def by_hand(dbg: NeuralDbg, model: nn.Module) -> None:
    for step, (x, y) in enumerate(data(30)):
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p.sub_(0.05 * p.grad)
                p.grad = None
        dbg.capture_step(step)


def idle_head(dbg: NeuralDbg, model: nn.Module) -> None:
    train(dbg, model, steps=56)


def nan_from_20(out: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
    return F.mse_loss(out, y) * (math.nan if step >= 20 else 1.0)


SCRIPTS: list[tuple[Callable[[NeuralDbg, nn.Module], None], Callable[[], nn.Module]]] = [
    *((script, net) for script in (healthy, resumed, epochs, broken_in_an_epoch, every_tenth, nan, nan_resumed, zero)),
    *((script, net) for script in (huge, diverging, frozen, empty, few, raises, by_hand)),
    (idle_head, TwoHeads),
]


@pytest.mark.parametrize("halt", some([True, False], 2))
@pytest.mark.parametrize(("script", "make"), SCRIPTS, ids=[script.__name__ for script, _ in SCRIPTS])
def test_all_questions_agree(
    script: Callable[[NeuralDbg, nn.Module], None], make: Callable[[], nn.Module], halt: bool, tmp_path: Path
) -> None:
    model, begun = make(), []
    watched = NeuralDbg(model, halt=halt, out=tmp_path / "run")
    with suppress(TrainingHalted, ZeroDivisionError), watched as dbg:
        for kind in EVENT_KINDS:
            dbg.add_breakpoint(kind, begun.append)
        script(dbg, model)
    saved = neuraldbg.load(tmp_path / "run")
    diagnosis = dbg.diagnose()
    agree(dbg, diagnosis)
    agree(saved, diagnosis)
    assert answers(saved) == answers(dbg)
    # Breakpoints are hit by the events that the diagnosis has, and by no others, once each.
    assert {event.key for event in begun} <= {event.key for event in diagnosis.events}
    for event in diagnosis.events:
        hits = [e for e in begun if e.key[:3] == event.key[:3]]
        assert sum(e.first_step <= event.last_step for e in hits) >= 1
        assert len({e.first_step for e in hits}) == len(hits)


def agree(run: NeuralDbg | Run, diagnosis: Any) -> None:
    """Check the answers of a run against its events, hypotheses and numbers."""
    steps = run.record().steps
    known = range(steps)
    assert run.diagnose().to_dict() == diagnosis.to_dict()
    # All numbers of steps are those of optimizer steps, counted from 0.
    told = [event.first_step for event in diagnosis.events] + [event.last_step for event in diagnosis.events]
    told += [h.step for h in run.explain_failure() if h.step is not None]
    told += [node.step for node in diagnosis.chain if node.step is not None]
    health = run.analyze_gradient_health()
    # The step in which a script crashed has begun, and is not recorded.
    begun = {steps} if run.record().info.outcome.kind == "raised" else set()
    assert set(told) <= {*known, *begun}
    assert health.step == steps - 1
    for layer, state in health.layers.items():
        history = run.get_gradient_history(layer)
        assert set(history.steps.tolist()) <= set(known)
        assert (len(history) == 0) == (state == "no gradient")
        if len(history):
            norm = history.values[-1]
            assert np.isclose(norm, health.norms[layer], equal_nan=True)
            assert (state == "nonfinite") == bool(np.isnan(norm))
            assert state != "zero" or norm == 0.0
            assert state == "exploding" or not norm > 1e6
            assert run.inspect(layer).step == steps - 1
    bad = set(health.layers.values()) - {"healthy", "no gradient"}
    assert run.has_exploding_gradients() == bool(bad & {"exploding", "nonfinite"})
    assert run.has_vanishing_gradients() == bool(bad & {"zero", "vanishing"})
    assert health.healthy == (not bad)
    # A layer that is not healthy has an event, and every event has a chain.
    for event in health.events:
        assert event in diagnosis.events
    for event in diagnosis.events:
        words = event.kind.replace("_", " ")
        assert any(node.label.startswith(words) for node in run.trace_causal_chain(words.title()))
        if event.layer:
            assert any(node.layer == event.layer for node in run.trace_causal_chain(event.layer))
    explained = run.explain_failure()
    assert run.get_causal_hypotheses() == explained
    assert bool(explained) or diagnosis.verdict not in ("failing", "suspect")
    assert [h for h in explained if h.cause != "unknown"] == [
        h if explained[0].cause != "unknown" else explained[i + 1] for i, h in enumerate(diagnosis.hypotheses)
    ]
    for hypothesis in explained:
        assert run.trace_causal_chain(hypothesis)
        assert run.trace_causal_chain(hypothesis.cause) == run.trace_causal_chain(hypothesis)
        assert hypothesis.remedy.text
        assert hypothesis.evidence
    if not explained:
        assert str(explained).startswith(f"nothing found ({diagnosis.verdict}): {diagnosis.summary[:20]}")
        with pytest.raises(IndexError, match="nothing found"):
            explained[0]
    assert len(repr(run)) < 200
    assert len(str(run).splitlines()) <= 4
    assert diagnosis.verdict.upper() in str(run)


def answers(run: NeuralDbg | Run) -> list[Any]:
    """Return everything that can be asked, in a form that can be compared."""
    layers = [layer.path for layer in run.record().layout.layers if layer.path and run.record().steps]
    health = run.analyze_gradient_health()
    return [
        run.diagnose().to_json(),
        list(run.explain_failure()),
        str(run.explain_failure()),
        [str(run.trace_causal_chain(name)) for name in ("nan", "vanishing", *layers[:1])],
        [repr(pair) for pair in run.detect_coupled_failures()],
        (health.step, health.layers, str(dict(health.norms)), str(health), health.healthy),
        (run.has_exploding_gradients(), run.has_vanishing_gradients()),
        [str(run.get_gradient_history(layer).values.tolist()) for layer in layers],
        [str(run.inspect(layer).to_dict()) for layer in layers],
    ]


@pytest.mark.parametrize(
    ("script", "make", "states", "exploding", "vanishing"),
    [
        (healthy, net, {"0": "healthy", "2": "healthy"}, False, False),
        (nan, net, {"0": "nonfinite", "2": "nonfinite"}, True, False),
        (nan_resumed, net, {"0": "nonfinite", "2": "nonfinite"}, True, False),
        (zero, net, {"0": "zero", "2": "zero"}, False, True),
        (huge, net, {"0": "exploding", "2": "exploding"}, True, False),
        (idle_head, TwoHeads, {"body": "healthy", "used": "healthy", "idle": "zero"}, False, True),
        (frozen, net, {"0": "no gradient", "2": "healthy"}, False, False),
    ],
)
def test_the_state_of_gradients(
    script: Callable[[NeuralDbg, nn.Module], None],
    make: Callable[[], nn.Module],
    states: dict[str, str],
    exploding: bool,
    vanishing: bool,
) -> None:
    model = make()
    with NeuralDbg(model) as dbg:
        script(dbg, model)
        assert dbg.analyze_gradient_health().layers == states  # while it runs, too
    assert dbg.analyze_gradient_health().layers == states
    assert dbg.analyze_gradient_health().healthy == (not exploding and not vanishing)
    assert (dbg.has_exploding_gradients(), dbg.has_vanishing_gradients()) == (exploding, vanishing)


def test_a_breakpoint_fires_for_an_event_that_takes_some_steps_to_be_sure() -> None:
    """Exploding gradients are sure after three steps."""
    model, hits = net(), []
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint("exploding_gradients", lambda event: hits.append((event.layer, event.first_step, dbg.steps)))
        train(dbg, model, loss=lambda out, y, step: F.mse_loss(out, y) * (1e4 if step >= 30 else 1.0), lr=1e-6)
    assert hits == [("0", 30, 33), ("2", 30, 33)]
    assert {(e.layer, e.first_step) for e in dbg.diagnose().events if e.kind == "exploding_gradients"} == {
        ("0", 30),
        ("2", 30),
    }


def test_breakpoints_take_layers_failures_and_families() -> None:
    model = net()
    hits: dict[str, list[Event]] = {name: [] for name in ("0", "linear2", "NaN or infinite loss", "Gradient_Health")}
    dbg = NeuralDbg(model)
    dbg.add_breakpoint("linear2", hits["linear2"].append)  # before the start, too
    with dbg:
        for name in ("0", "NaN or infinite loss", "Gradient_Health"):
            dbg.add_breakpoint(name, hits[name].append)
        nan(dbg, model)
    assert {e.layer for e in hits["0"]} == {"0"}
    assert {e.layer for e in hits["linear2"]} == {"2"}
    assert [(e.kind, e.first_step) for e in hits["NaN or infinite loss"]] == [("nonfinite_loss", 20)]
    assert {e.transition for e in hits["Gradient_Health"]} == {"gradient_health"}


@pytest.mark.parametrize("halt", [False, True])
def test_a_breakpoint_on_a_cause_gets_its_hypothesis_once(halt: bool) -> None:
    model, hits = net(), []

    def hit(hypothesis: Hypothesis) -> None:
        hits.append((hypothesis.cause, dbg.steps))

    with suppress(TrainingHalted), NeuralDbg(model, halt=halt) as dbg:
        dbg.add_breakpoint("lr_too_high", hit)
        dbg.add_breakpoint("double_softmax", hit)
        train(dbg, model, lr=100.0, steps=30)
    ((cause, step),) = hits
    assert cause == "lr_too_high"
    assert step < 10  # long before the end
    assert dbg.diagnose().hypotheses[0].cause == "lr_too_high"


def test_a_cause_that_shows_without_any_event_has_its_breakpoint_in_the_loop() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(dim=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hits: list[int] = []
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint("double softmax", lambda _: hits.append(dbg.steps))
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(16, 8)), torch.randint(4, (16,))).backward()
            optimizer.step()
    assert len(hits) == 1
    assert hits[0] < 40


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("exploding_gradiens", "exploding_gradients"),
        ("gradient_explosions", "exploding_gradients"),
        ("lr_to_high", "lr_too_high"),
        ("layer7", "linear1"),
    ],
)
def test_a_breakpoint_on_an_unknown_name_is_an_error(name: str, near: str) -> None:
    model = net()
    with NeuralDbg(model) as dbg:
        train(dbg, model, steps=2)
        with pytest.raises(UnknownName, match=f"is called '{name}'. Did you mean: ") as caught:
            dbg.add_breakpoint(name, print)
        assert near in caught.value.suggestions


def test_the_docstring_of_add_breakpoint_lists_every_kind() -> None:
    for kind in EVENT_KINDS:
        assert f"``{kind}``" in (NeuralDbg.add_breakpoint.__doc__ or ""), kind


def test_a_failure_of_none_of_the_known_causes_is_told_as_unknown(tmp_path: Path) -> None:
    """The user's own loss disturbs what the model says: no cause of the taxonomy does that."""
    model = net()

    def disturbed(out: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
        return F.mse_loss(out + 10 * torch.randn_like(out) if step > 30 else out, y)

    with NeuralDbg(model, out=tmp_path / "run") as dbg:
        train(dbg, model, loss=disturbed, steps=120, lr=1e-2)
    diagnosis, explained = dbg.diagnose(), dbg.explain_failure()
    assert (diagnosis.verdict, diagnosis.hypotheses) == ("failing", ())
    (first,) = explained
    assert (first.cause, first.rank, first.confidence, first.failure) == ("unknown", 1, 0.0, "loss divergence")
    assert first.step == 31
    assert "for a reason that is none of the known causes; observed: the loss fell to" in str(first)
    weights = [evidence.weight for evidence in first.evidence]
    assert weights == sorted(weights, reverse=True)
    statements = [evidence.statement for evidence in first.evidence]
    assert statements[0].startswith("the loss fell to")
    assert "the loss is computed in another way between steps" in " ".join(statements)
    assert "Look at what step 31 was given and what step 30 did" in first.remedy.text
    assert compile(first.remedy.code, "remedy", "exec")
    assert dbg.trace_causal_chain("unknown") == dbg.trace_causal_chain(first)
    assert dbg.trace_causal_chain(first)
    assert "unknown" not in {h["cause"] for h in diagnosis.to_dict()["hypotheses"]}  # a diagnosis names causes only
    assert list(Run.load(tmp_path / "run").explain_failure()) == list(explained)


def test_noise_that_the_users_code_makes_of_the_weights_is_told_as_such() -> None:
    model = net()

    def disturbed(step: int) -> None:
        if step > 30:
            with torch.no_grad():
                model[2].weight.normal_(0, 3)

    with NeuralDbg(model) as dbg:
        train(dbg, model, asked=disturbed, steps=120, lr=1e-2)
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "failing"
    (first,) = diagnosis.hypotheses
    assert first.cause == "weights_overwritten"
    assert first.step in {31, 32}  # what is written after step 31 is what step 32 finds


def test_a_halt_without_a_known_cause_is_unknown() -> None:
    model = net()
    with suppress(TrainingHalted), NeuralDbg(model, halt=TriggerEngine(grad_threshold=0.01, spike_factor=3.0)) as dbg:
        train(dbg, model)
    (first,) = dbg.explain_failure()
    assert (first.cause, first.failure, first.step) == ("unknown", "halted training", 0)
    assert "above 0.01" in first.evidence[0].statement
    assert "Look at what step 0 was given:" in first.remedy.text


def test_what_the_answers_say_before_anything_happened() -> None:
    dbg = NeuralDbg(net())
    assert repr(dbg) == "<NeuralDbg: not started>"
    assert "never started" in str(dbg)
    with dbg:
        assert str(dbg.explain_failure()).startswith("nothing found (inconclusive): No training step was seen")
        assert str(dbg.trace_causal_chain("nan")) == "no chain: nothing about nan was found in this run"


def test_layers_of_a_sequential_are_called_as_users_call_them() -> None:
    model = net()
    with NeuralDbg(model) as dbg:
        zero(dbg, model)
    diagnosis = dbg.diagnose()
    assert "'linear2' (2)" in diagnosis.summary
    chain = dbg.trace_causal_chain("vanishing")
    assert "'linear1' (0)" in str(chain)
    assert dbg.trace_causal_chain("LINEAR1") == dbg.trace_causal_chain("0")
    assert str(dbg.analyze_gradient_health()) == "gradients at step 55: 'linear1' (0) zero, 'linear2' (2) zero"


def test_the_run_says_on_which_device_the_model_is():
    with NeuralDbg(nn.Linear(2, 1, device="meta")) as dbg:
        pass
    assert dbg.record().info.device == "meta"
    with NeuralDbg(nn.Linear(2, 1)) as dbg:
        pass
    assert dbg.record().info.device == "cpu"
